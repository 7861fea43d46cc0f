// The digests of a step's record are those of the files that a checkpoint would hold, and they are made while the next
// step's rollouts are: the loop waits for them before it needs them, and writes every completed step down.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openJournal } from '../../src/journal.ts';
import { sha256Hex } from '../../src/lib/sha256-node.ts';
import { createNodeStorage } from '../../src/lib/storage-node.ts';
import { resolveRunConfig } from '../../src/run-config.ts';
import { type AuditRollouts, train } from '../../src/train.ts';
import { trainStateDigests } from '../../src/train-digests-node.ts';
import { encodeTrainState } from '../../src/train-state.ts';
import { stubPorts } from '../support/train-ports.ts';

const names = ['layers.0.self_attn.q_proj.lora_A', 'layers.0.self_attn.q_proj.lora_B', 'layers.10.mlp.up_proj.lora_A'];

function tensors(sizes: readonly number[], seed: number): Map<string, Float32Array> {
  return new Map(names.map((name, i) => [name, Float32Array.from({ length: sizes[i]! }, (_, j) => seed + i - j / 7)]));
}

describe('digests of the trainer’s state', () => {
  const config = { rank: 6, alpha: 12, useRslora: false, targets: ['q_proj', 'up_proj'] } as never;

  // The last: more than one piece of 4 MiB in a tensor, and a piece that ends inside of one.
  test.each([[[12, 18, 6]], [[6 * 7, 6 * 5, 6 * 3]], [[6 * 200_000, 6 * 90_001, 6 * 400_000]]])(
    'are those of the files for tensors of %j values',
    async (sizes) => {
      const state = { adapter: tensors(sizes, 1), m: tensors(sizes, 2), v: tensors(sizes, 3) };
      const files = encodeTrainState(state, config, 'base');
      expect(await trainStateDigests(state, config)).toEqual({
        adapter: sha256Hex(files['adapter_model.safetensors']),
        optimizer: sha256Hex(files['optimizer.safetensors']),
      });
    },
  );

  test('are refused for a value that is not finite', async () => {
    const state = { adapter: tensors([12, 18, 6], 1), m: tensors([12, 18, 6], 2), v: tensors([12, 18, 6], 3) };
    state.adapter.get(names[1]!)![17] = Number.NaN;
    await expect(trainStateDigests(state, config)).rejects.toMatchObject({ code: 'not-finite' });
  });
});

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'shaderl-digests-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const clean: AuditRollouts = async () => ({ findings: [], duplicates: { rate: 0 } });
const digest = (step: number) => ({ adapter: `${step}`.repeat(64), optimizer: 'b'.repeat(64) });

async function config(steps: number) {
  const settings = { model: 'm', output: 'o', steps, data: { count: 1 }, grpo: { groupSize: 2 } };
  const text = JSON.stringify({ ...settings, generation: { maxCompletionTokens: 8 } });
  return (await resolveRunConfig(text, 'run.json')).config;
}

async function openPorts(name: string, audit: AuditRollouts) {
  const storage = createNodeStorage(join(folder, name));
  const { journal } = await openJournal(storage, 'journal.jsonl', () => new Date(0).toISOString());
  return { ...stubPorts(storage, journal, audit, () => []), journal, storage };
}

const start = { step: 0, cursor: { epoch: 0, index: 0 } };

test('a step’s digests are waited for beside the next step’s rollouts, which carry them', async () => {
  const { made, journal, storage } = await openPorts('beside', clean);
  let open = (): void => {};
  const rolled = new Promise<void>((resolve) => {
    open = resolve;
  });
  let calls = 0;
  const order: string[] = [];
  const { environment } = made;
  await train(
    await config(2),
    {
      ...made,
      // The first step's digests stay away until a rollout of the second step has ended.
      async digests() {
        const step = calls;
        calls += 1;
        if (step === 1) await rolled;
        return digest(step);
      },
      environment: {
        ...environment,
        async verify(...asked) {
          order.push('verified');
          if (order.length === 3) open();
          return environment.verify(...asked);
        },
      },
      onStep: (step) => order.push(`step ${step}`),
    },
    start,
  );
  expect(order.slice(0, 3)).toEqual(['verified', 'verified', 'verified']);
  expect(order.filter((entry) => entry !== 'verified')).toEqual(['step 1', 'step 2']);
  expect(journal.entries.map(({ kind }) => kind)).toEqual(['audit', 'step', 'audit', 'step']);
  const recorded = journal.entries.filter((entry) => entry.kind === 'step');
  expect(recorded.map(({ data }) => data.adapterSha256)).toEqual([digest(1).adapter, digest(2).adapter]);
  for (const [i, { data }] of recorded.entries()) {
    const text = new TextDecoder().decode(await storage.read(data.rollouts.file));
    const policies = text
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line).policy);
    expect(policies).toEqual([digest(i).adapter, digest(i).adapter]);
  }
});

test('a completed step is on record although the next one is refused', async () => {
  const { made, journal } = await openPorts('refused', async (_, __, { step }) => ({
    findings: step === 2 ? ['[mask] step 2'] : [],
    duplicates: { rate: 0 },
  }));
  await expect(train(await config(2), made, start)).rejects.toMatchObject({ code: 'audit-failed' });
  expect(journal.entries.map(({ kind }) => kind)).toEqual(['audit', 'step', 'audit']);
});

test('digests that fail end the run with their own error, before anything of the next step is kept', async () => {
  const { made, journal } = await openPorts('failed', clean);
  let calls = 0;
  const digests = async () => {
    calls += 1;
    if (calls === 2) throw new Error('the device was lost');
    return digest(1);
  };
  await expect(train(await config(2), { ...made, digests }, start)).rejects.toThrow('the device was lost');
  expect(journal.entries).toEqual([]);
});
