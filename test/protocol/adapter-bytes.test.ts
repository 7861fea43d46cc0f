// One training of german-agent-ci in process and through both reference services: the same adapter, moments and rollouts.
// Three steps by default; SHADERL_PROTOCOL_STEPS=64 for the long form, which compares `quickstart` too.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { checkpointFolder } from '../../src/checkpoint.ts';
import { compareBranches } from '../../src/experiment/compare-branches.ts';
import { trainingConfig } from '../../src/experiment/plan.ts';
import { readBranch } from '../../src/experiment/qualify-resume.ts';
import { parseRecipe } from '../../src/experiment/recipe.ts';
import { withoutTimings } from '../../src/journal-events.ts';
import { createNodeStorage } from '../../src/lib/storage-node.ts';
import { quickstart } from '../../workers/quickstart-node.ts';
import { withEnvironment } from '../../workers/services/run-environment.ts';
import { trainRun } from '../../workers/train-node.ts';
import { embedded } from '../support/experiment-fixture.ts';

const long = process.env['SHADERL_PROTOCOL_STEPS'] !== undefined;
const steps = Number(process.env['SHADERL_PROTOCOL_STEPS'] ?? 3);
const hour = 3_600_000;
const base = mkdtempSync(join(tmpdir(), 'shaderl-bytes-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));
const file = new URL('../../recipes/german-agent-ci.json', import.meta.url);

async function trained(env: 'local' | 'nemo-gym' | 'openenv') {
  const json = JSON.parse(readFileSync(file, 'utf8'));
  const training = { ...json.training, steps, data: { count: steps }, checkpoints: { every: steps } };
  const recipe = parseRecipe(
    JSON.stringify({ ...json, training, dev: { ...json.dev, steps: [steps] } }),
    file.pathname,
  );
  const run = await trainingConfig(recipe, embedded);
  const folder = join(base, env);
  const asked = { env, url: null, sessions: 2, folder: join(folder, 'service'), name: 'train' };
  const outcome = await withEnvironment(asked, (environment) =>
    trainRun(run, { resume: false, qualify: 'here', folder, environment }),
  );
  expect(outcome).toMatchObject({ status: 'finished', steps });
  return readBranch(createNodeStorage(folder), env, steps);
}

let local: Awaited<ReturnType<typeof trained>>;
beforeAll(async () => {
  local = await trained('local');
}, hour);

test.each(['nemo-gym', 'openenv'] as const)(
  'a training through %s has the bytes of the one in process',
  async (env) => {
    const branch = await trained(env);
    expect(await compareBranches(local, branch)).toEqual([]);
    expect(local.rollouts.size).toBe(steps);
    const adapter = (name: string) =>
      readFileSync(join(base, name, checkpointFolder(steps), 'adapter_model.safetensors'));
    expect(adapter(env)).toEqual(adapter('local'));
    // The environment was really used: some tool answered.
    expect(JSON.stringify([...branch.rollouts.values()])).toContain('"dispatched":true');
  },
  hour,
);

test.runIf(long)(
  'quickstart through its service has the bytes of the one in process',
  async () => {
    const made = async (env: 'local' | 'openenv') => {
      const output = join(base, `quickstart-${env}`);
      const summary = await quickstart({ output, steps: 2, env });
      const evaluated = ['before', 'after'].map((name) => {
        const {
          wallSeconds: _w,
          droppedTokens: _d,
          ...rest
        } = JSON.parse(readFileSync(join(output, `evaluations/${name}.json`), 'utf8'));
        return withoutTimings(rest);
      });
      return { adapter: summary?.adapterSha256, evaluated };
    };
    expect(await made('openenv')).toEqual(await made('local'));
  },
  hour,
);
