// The second arm: what it copies, what it refuses, and when it takes the first arm's baseline over.
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buildEvaluation } from '../../src/evaluation/results.ts';
import { parseSidecar } from '../../src/experiment/baseline.ts';
import { type DriverOptions, runExperiment } from '../../src/experiment/driver.ts';
import { loadPlan } from '../../src/experiment/freeze-node.ts';
import { readFirstArm } from '../../src/experiment/matched-node.ts';
import type { LoadedPlan } from '../../src/experiment/plan.ts';
import { preparePlan } from '../../src/experiment/prepare-node.ts';
import { parseRecipe } from '../../src/experiment/recipe.ts';
import { verifyExperiment } from '../../src/experiment/verify-node.ts';
import { readJournal } from '../../src/journal.ts';
import { sha256Hex } from '../../src/lib/sha256-node.ts';
import { createNodeStorage } from '../../src/lib/storage-node.ts';
import { experimentReport } from '../../workers/experiment/report-node.ts';
import {
  type Inputs,
  preparedPlan,
  type SmallPortsOptions,
  smallPorts,
  smallRecipe,
  writeInputs,
} from '../support/experiment-fixture.ts';

const base = mkdtempSync(join(tmpdir(), 'shaderl-second-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));
type Prepared = LoadedPlan & { folder: string };
let inputs: Inputs;
/** A finished first arm; tests that change one copy it. */
let first: Prepared;
const once: DriverOptions = { resume: false, qualificationOnly: false };
const again: DriverOptions = { resume: true, qualificationOnly: false };

const run = async (plan: Prepared, options: DriverOptions = once, ports: SmallPortsOptions = {}) =>
  runExperiment(plan, await smallPorts(plan, ports), options);

const failure = (work: Promise<unknown>) =>
  work.then(
    () => expect.unreachable('it was not refused'),
    (error: { name: string; code: string; message: string }) => error,
  );

/** A second arm of a folder. Its program may have been worked on since: the first one's is written into it. */
async function second(from: string, change: { baseline?: 'reuse' | 'rerun'; recipe?: object } = {}): Promise<Prepared> {
  const output = join(mkdtempSync(join(base, 'second-')), 'run');
  const arm = await readFirstArm(from);
  const recipe = parseRecipe(JSON.stringify(change.recipe ?? smallRecipe), 'r');
  const { baseline, tokenizer, mathDev, mgsm } = arm.plan.inputs;
  await preparePlan({
    ...{ baseline: baseline.folder, tokenizer: tokenizer.folder, mathDev: mathDev.path, mgsm: mgsm.path },
    ...{ env: 'local', output, recipe, shaders: {} },
    first: { arm, baseline: change.baseline ?? 'reuse' },
  });
  return { ...(await loadPlan(join(output, 'plan.json'), output)), folder: output };
}

const copyOf = (folder: string): string => {
  const to = mkdtempSync(join(base, 'first-'));
  cpSync(folder, to, { recursive: true });
  return to;
};

/** Every file of a folder with its hash. */
const bytesOf = (folder: string): Record<string, string> =>
  Object.fromEntries(
    readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name))
      .sort()
      .map((file) => [file.slice(folder.length), sha256Hex(readFileSync(file))]),
  );

const sidecar = ({ folder }: Prepared, stage: string) =>
  parseSidecar(readFileSync(join(folder, `baseline/${stage}.json`), 'utf8'), stage);
const read = (plan: Prepared, file: string) => readFileSync(join(plan.folder, file));
const entriesOf = async ({ folder }: Prepared) =>
  (await readJournal(createNodeStorage(folder), 'journal.jsonl')).entries;

beforeAll(async () => {
  inputs = writeInputs(base);
  first = await preparedPlan(base, inputs);
  expect(await run(first)).toMatchObject({ status: 'finished' });
}, 60_000);

describe('the plan of a second arm', () => {
  test('is the first one in everything but arm, service and name, its data the same bytes', async () => {
    const plan = await second(first.folder, {
      recipe: { ...smallRecipe, name: 'arm b', service: { maxSessions: 64 } },
    });
    const { arm: _a, service: _s, matched, recipe, ...rest } = plan.plan;
    const { arm: _b, service: _t, matched: none, recipe: firstRecipe, ...firstRest } = first.plan;
    expect(rest).toEqual(firstRest);
    expect(recipe).toEqual({ ...firstRecipe, name: 'arm b', service: { ...firstRecipe.service, maxSessions: 64 } });
    expect(none).toBeNull();
    expect(matched).toEqual({ folder: first.folder, planSha256: first.sha256, arm: 'local', baseline: 'reuse' });
    for (const { path } of Object.values(plan.plan.data)) expect(read(plan, path)).toEqual(read(first, path));
  });

  test.each([
    ['a number', { ...smallRecipe, comparison: { resamples: 101 } }, 'comparison.resamples', '101', '100'],
    ['a seed', { ...smallRecipe, final: { ...smallRecipe.final, seeds: [42, 7] } }, 'final.seeds[1]', '7', '1729'],
  ])('is refused if its recipe changes %s', async (_name, recipe, key, found, wanted) => {
    const error = await failure(second(first.folder, { recipe }));
    expect(error).toMatchObject({ name: 'PlanError', code: 'other-recipe' });
    expect(error.message).toContain(`found recipe key "${key}" with ${found}; wanted ${wanted}`);
  });

  test('is refused if an input changed since, naming the file', async () => {
    const file = join(inputs.baseline, 'generation_config.json');
    const good = readFileSync(file, 'utf8');
    writeFileSync(file, `${good} `);
    const error = await failure(second(first.folder));
    expect(error).toMatchObject({ code: 'not-matched' });
    expect(error.message).toContain('(generation_config.json)');
    writeFileSync(file, good);
  });

  test('is refused if the first one is a second arm, or its data are other bytes than it froze', async () => {
    const plan = await second(first.folder);
    expect(await failure(second(plan.folder))).toMatchObject({ code: 'second-arm' });
    const altered = copyOf(first.folder);
    const file = join(altered, 'data/train.jsonl');
    writeFileSync(file, readFileSync(file, 'utf8').replace('"split":"train"', '"split":"final"'));
    const error = await failure(second(altered));
    expect(error).toMatchObject({ code: 'plan-changed' });
    expect(error.message).toContain(`${file}: found SHA-256`);
  });
});

describe('the baseline of a second arm', () => {
  test('is the first one, byte for byte, with a sidecar that names plan, lines and selections', async () => {
    const before = bytesOf(first.folder);
    const plan = await second(first.folder);
    const evaluated: string[] = [];
    const change = (ports: Awaited<ReturnType<typeof smallPorts>>) => ({
      evaluate: (...args: Parameters<typeof ports.evaluate>) => {
        evaluated.push(args[0].name);
        return ports.evaluate(...args);
      },
    });
    expect(await run(plan, once, { change })).toMatchObject({ status: 'finished' });
    expect(evaluated.filter((name) => name.includes('baseline'))).toEqual([]);
    expect(bytesOf(first.folder)).toEqual(before);
    const firstEntries = await entriesOf(first);
    for (const [stage, units] of [
      ['dev', 2],
      ['final', 2],
      ['retention', 2],
    ] as const) {
      const { reused, source, selection } = sidecar(plan, stage);
      expect({ reused, reports: source?.reports.length }).toEqual({ reused: true, reports: units });
      expect(source?.specSha256).toBe(first.sha256);
      const end = firstEntries[source!.manifest.line - 1]!;
      expect(end).toMatchObject({ kind: 'stage-end', sha256: source?.manifest.sha256, data: { stage } });
      for (const { result, rollouts } of source!.reports) {
        for (const { file, sha256 } of [result, rollouts]) {
          expect(sha256Hex(read(plan, file))).toBe(sha256);
          expect(read(plan, file)).toEqual(read(first, file));
        }
      }
      expect(selection.source).toMatchObject({
        planSha256: first.sha256,
        selectionSha256: sha256Hex(read(first, 'selection.json')),
      });
      const own = stage === 'dev' ? null : sha256Hex(read(plan, 'selection.json'));
      expect(selection.own).toMatchObject({ planSha256: plan.sha256, selectionSha256: own });
    }
    const { content } = await experimentReport(plan.folder);
    expect(content.baselines.map(({ suite, reused }) => [suite, reused])).toEqual([
      ['dev', true],
      ['final', true],
      ['retention', true],
    ]);
    expect(content.cannotShow.join()).toContain("through this arm's own service");
  });

  test('has its own qualification and training, whose bytes are those of the first arm', async () => {
    const plan = await second(first.folder);
    await run(plan);
    const record = JSON.parse(read(plan, 'evidence/resume-qualification.json').toString('utf8'));
    expect(record).toMatchObject({ passed: true, planSha256: plan.sha256 });
    const adapter = 'training/checkpoints/step-000004/adapter_model.safetensors';
    expect(read(plan, adapter)).toEqual(read(first, adapter));
  });

  test('is run again whole if the plan says so', async () => {
    const plan = await second(first.folder, { baseline: 'rerun' });
    expect(await run(plan)).toMatchObject({ status: 'finished' });
    expect(sidecar(plan, 'dev')).toMatchObject({ reused: false, reason: 'the plan asks for it', source: null });
    const entries = await entriesOf(plan);
    const baselines = entries.filter((entry) => entry.kind === 'evaluation' && entry.data.step === 0);
    expect(baselines).toHaveLength(6);
  });

  test.each([
    [
      'has not passed the stage',
      async (folder: string) => {
        const file = join(folder, 'journal.jsonl');
        const lines = readFileSync(file, 'utf8').split('\n');
        const end = lines.findIndex((line) => line.includes('"kind":"stage-end"') && line.includes('"stage":"final"'));
        writeFileSync(file, `${lines.slice(0, end).join('\n')}\n`);
      },
      { dev: true, final: false, retention: false },
      'it has not passed its stage final',
    ],
    [
      'has an evaluation whose bytes are others',
      async (folder: string) => {
        const file = join(folder, 'evaluations/final-agent-baseline-seed-1729.json');
        writeFileSync(file, `${readFileSync(file, 'utf8')} `);
      },
      { dev: true, final: false, retention: true },
      'final-agent-baseline-seed-1729.json: found SHA-256',
    ],
    [
      'has a journal that was forged',
      async (folder: string) => {
        const file = join(folder, 'journal.jsonl');
        writeFileSync(file, readFileSync(file, 'utf8').replace('"passed":true', '"passed":false'));
      },
      { dev: false, final: false, retention: false },
      'found content with sha256',
    ],
  ])('is run again whole, suite by suite, if the first arm %s', async (_name, alter, reused, reason) => {
    const folder = copyOf(first.folder);
    const plan = await second(folder);
    await alter(folder);
    expect(await run(plan)).toMatchObject({ status: 'finished' });
    for (const [stage, wanted] of Object.entries(reused))
      expect([stage, sidecar(plan, stage).reused]).toEqual([stage, wanted]);
    expect(sidecar(plan, 'final').reason).toContain(reason);
  });

  test('is run again on another device', async () => {
    const plan = await second(first.folder);
    const change = () => ({
      device: async () => ({ facts: { device: 'another', family: 'portable' }, qualification: '{}\n' }),
    });
    expect(await run(plan, once, { change })).toMatchObject({ status: 'finished' });
    expect(sidecar(plan, 'dev')).toMatchObject({ reused: false, reason: 'the first arm: it ran on another device' });
  });

  test('is reused whatever it scored: here the first baseline failed everything', async () => {
    const poor = await preparedPlan(base, inputs);
    const change = (ports: Awaited<ReturnType<typeof smallPorts>>) => ({
      evaluate: async (...args: Parameters<typeof ports.evaluate>) => {
        const answer = await ports.evaluate(...args);
        if (args[0].step !== 0) return answer;
        const { schema: _s, totals: _t, ...rest } = answer.evaluation;
        const items = rest.items.map((item) => ({ ...item, outcome: 'wrong' as const, strict: false }));
        return { ...answer, evaluation: buildEvaluation({ ...rest, items }) };
      },
    });
    expect(await run(poor, once, { change })).toMatchObject({ status: 'finished' });
    const plan = await finished(poor.folder);
    expect(['dev', 'final', 'retention'].map((stage) => sidecar(plan, stage).reused)).toEqual([true, true, true]);
    const { content } = await experimentReport(plan.folder);
    expect(content.final?.a.correct).toBe(0);
  });

  test('is never half the one and half the other: a copy that was interrupted goes on, or is refused', async () => {
    const folder = copyOf(first.folder);
    const plan = await second(folder);
    /** Dies when the first baseline of the final suite is journaled. */
    const dying = (ports: Awaited<ReturnType<typeof smallPorts>>) => {
      let copied = 0;
      const { append } = ports.journal;
      return {
        journal: {
          ...ports.journal,
          append: (event: Parameters<typeof append>[0]) => {
            if (event.kind === 'evaluation' && event.data.name.startsWith('final-agent-baseline')) {
              copied += 1;
              if (copied > 1) return Promise.reject(new Error('killed'));
            }
            return append(event);
          },
        },
      };
    };
    await expect(run(plan, once, { change: dying })).rejects.toThrow('killed');
    const file = join(folder, 'evaluations/final-agent-baseline-seed-1729.json');
    const good = readFileSync(file, 'utf8');
    writeFileSync(file, `${good} `);
    const error = await failure(run(plan, again));
    expect(error).toMatchObject({ name: 'CheckpointError', code: 'evidence-changed' });
    expect(error.message).toContain(`taking over ${folder}/evaluations/final-agent-baseline-seed-1729.json`);
    writeFileSync(file, good);
    const kept = read(plan, 'baseline/final.json');
    rmSync(join(plan.folder, 'baseline/final.json'));
    expect(await failure(run(plan, again))).toMatchObject({ name: 'PlanError', code: 'no-sidecar' });
    writeFileSync(join(plan.folder, 'baseline/final.json'), kept);
    expect(await run(plan, again)).toMatchObject({ status: 'finished' });
    expect((await experimentReport(plan.folder)).contentSha256).toBe(
      (await experimentReport((await finished(folder)).folder)).contentSha256,
    );
  });

  test('is verified against its sidecar and the first arm', async () => {
    const plan = await finished();
    const check = async () => {
      const { checks } = await verifyExperiment(plan.folder, null);
      return checks.find(({ name }) => name.includes('taken over'));
    };
    expect(await check()).toMatchObject({ passed: true, detail: [] });
    const file = join(plan.folder, 'baseline/dev.json');
    const good = readFileSync(file, 'utf8');
    const { source } = sidecar(plan, 'dev');
    writeFileSync(file, good.replace(source!.reports[0]!.result.sha256, 'f'.repeat(64)));
    expect(await check()).toMatchObject({ passed: false });
    writeFileSync(file, good);
  });
});

const finishedArms = new Map<string, Promise<Prepared>>();
/** A finished second arm; the same plan has the same bytes, so one of each first arm is enough. */
function finished(from: string = first.folder): Promise<Prepared> {
  const made =
    finishedArms.get(from) ??
    (async () => {
      const plan = await second(from);
      await run(plan);
      return plan;
    })();
  finishedArms.set(from, made);
  return made;
}
