// Whole training runs on the embedded policy in processes of their own: equal runs, stops and kills end in equal bytes.
import { execFile } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { auditRun } from '../../src/audit-node.ts';
import { newestVerified, type VerifiedCheckpoint } from '../../src/checkpoint.ts';
import { comparableState } from '../../src/checkpoint-state.ts';
import { effectiveEntries, journalDigestWithoutTimings, readJournal } from '../../src/journal.ts';
import { sha256Hex } from '../../src/lib/sha256-node.ts';
import { createNodeStorage } from '../../src/lib/storage-node.ts';

const run = promisify(execFile);
const child = fileURLToPath(new URL('../support/train-child.ts', import.meta.url));
// An absolute path: the processes run in folders from which tsx would not be found.
const tsx = new URL('../../node_modules/tsx/dist/loader.mjs', import.meta.url).href;
const model = fileURLToPath(new URL('../../fixtures/embedded-policy', import.meta.url));
let folder = '';

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'shaderl-train-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A configuration file of a small run; `output` is the same text in all of them, so that their plans are equal. */
function configure(
  name: string,
  overrides: Record<string, unknown> = {},
): { file: string; cwd: string; output: string } {
  const cwd = join(folder, name);
  const config = {
    model,
    output: 'run',
    steps: 4,
    generation: { temperature: 1, topP: 0.95, topK: 50, maxCompletionTokens: 100 },
    grpo: { groupSize: 2, groupsPerStep: 2, beta: 0.05, numIterations: 2 },
    optimizer: { learningRate: 0.002 },
    lora: { rank: 4, alpha: 8 },
    checkpoints: { every: 100 },
    ...overrides,
  };
  const file = join(folder, `${name}.json`);
  writeFileSync(file, JSON.stringify(config));
  return { file, cwd, output: join(cwd, 'run') };
}

async function train(setup: { file: string; cwd: string }, ...args: string[]) {
  mkdirSync(setup.cwd, { recursive: true });
  // One qualification serves all the folders: it is of the device and the shaders.
  const qualified = join(folder, 'qualification.json');
  const own = join(setup.cwd, 'runs/qualification-portable/qualification.json');
  if (existsSync(qualified) && !existsSync(own)) {
    mkdirSync(dirname(own), { recursive: true });
    copyFileSync(qualified, own);
  }
  const result = await run(process.execPath, ['--import', tsx, child, setup.file, ...args], {
    cwd: setup.cwd,
    env: { ...process.env, XDG_RUNTIME_DIR: process.env['XDG_RUNTIME_DIR'] ?? '/tmp' },
    timeout: 200_000,
  });
  if (!existsSync(qualified)) copyFileSync(own, qualified);
  return result;
}

/** What two equal runs share: the bytes of the last checkpoint, its comparable state, the journal less timings. */
async function record(output: string) {
  const storage = createNodeStorage(output);
  const { checkpoint } = await newestVerified(storage);
  const { files, state } = checkpoint as VerifiedCheckpoint;
  const { entries } = await readJournal(storage, 'journal.jsonl');
  const effective = effectiveEntries(entries);
  return {
    step: state.step,
    adapter: sha256Hex(files['adapter_model.safetensors']),
    optimizer: sha256Hex(files['optimizer.safetensors']),
    state: comparableState(state),
    digest: await journalDigestWithoutTimings(effective),
    evidence: effective.flatMap((entry) => (entry.kind === 'step' ? [entry.data.rollouts.evidenceSha256] : [])),
  };
}

describe('a training run', () => {
  test('ends in the same bytes when it is repeated, stopped after any step and resumed, or killed and resumed', async () => {
    const whole = configure('whole');
    await train(whole);
    const wanted = await record(whole.output);
    expect(wanted.step).toBe(4);
    expect(new Set(wanted.evidence).size).toBe(2);

    const again = configure('again');
    await train(again);
    expect(await record(again.output)).toEqual(wanted);

    // Step 1 is in the middle of a batch that is used twice.
    for (const stop of ['1', '2']) {
      const parted = configure(`stopped-${stop}`);
      await train(parted, stop);
      expect((await record(parted.output)).step).toBe(Number(stop));
      await train(parted, '-', 'resume');
      const { digest: _digest, ...rest } = await record(parted.output);
      const { digest: _wanted, ...wantedRest } = wanted;
      expect(rest).toEqual(wantedRest);
    }

    const killed = configure('killed', { checkpoints: { every: 1 } });
    await expect(train(killed, '-', 'start', '3')).rejects.toMatchObject({ signal: 'SIGKILL' });
    await train(killed, '-', 'resume');
    const end = await record(killed.output);
    expect([end.adapter, end.optimizer, end.evidence]).toEqual([wanted.adapter, wanted.optimizer, wanted.evidence]);

    const audit = await auditRun(whole.output);
    expect(audit).toMatchObject({ findings: [], rollouts: 8 });
  }, 600_000);

  test('refuses a used folder without resume, and another configuration with it', async () => {
    const used = configure('used', { steps: 1, grpo: { groupSize: 2 } });
    await train(used);
    await expect(train(used)).rejects.toThrow(/used-folder|it holds a run already/);
    const other = configure('used', { steps: 2, grpo: { groupSize: 2 } });
    await expect(train(other, '-', 'resume')).rejects.toThrow(/its configuration has SHA-256/);
    expect(readFileSync(join(used.output, 'journal.jsonl'), 'utf8')).toContain('"run-end"');
  });
});
