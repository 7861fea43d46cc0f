// Public bug cases E1, E2, E4 and E5 on the GPU: what is sampled, and which log-prob is recorded for it.
import { describe, expect, test } from 'vitest';
import { testValues } from '../../src/kernels/case-data.ts';
import { logprobs, rowGrid } from '../../src/kernels/logprobs.ts';
import { type DrawSettings, keyRow, sample, sampleScalars } from '../../src/kernels/sample.ts';
import type { SampleKey } from '../../src/lib/rng.ts';
import { floats, runKernel } from '../kernels/run-kernel.ts';
import { useGpu } from '../support/gpu.ts';

const gpu = useGpu();
const plain: DrawSettings = { temperature: 1, topK: 0, topP: 1, minP: 0 };
const f32 = (...values: number[]) => Float32Array.from(values);

/** Log-probs of `targets`, one row of logits for all of them. */
async function scored(
  row: Float32Array<ArrayBuffer>,
  targets: ArrayLike<number>,
  temperature: number,
  vocabulary?: number,
) {
  const rows = targets.length;
  const params = {
    rows,
    vocabulary: vocabulary ?? row.length,
    stride: 0,
    rowOffset: 0,
    inverseTemperature: 1 / temperature,
  };
  const buffers = { logits: row, targets: Uint32Array.from(targets), stats: rows * 4 };
  const { stats } = await runKernel(gpu(), logprobs, params, rowGrid(rows), buffers);
  return floats(stats!).filter((_, i) => i % 4 === 2);
}

/** Draws one id a key; the same row of logits for all, or `stride` elements a key. */
async function drawn(
  logits: Float32Array<ArrayBuffer>,
  keys: readonly SampleKey[],
  settings: DrawSettings,
  { vocabulary = logits.length, stride = 0 } = {},
) {
  const { ids, logprobs: truncated } = await runKernel(
    gpu(),
    sample,
    { rows: keys.length, vocabulary, stride, rowOffset: 0, ...sampleScalars(settings) },
    rowGrid(keys.length),
    {
      logits,
      keys: Uint32Array.from(keys.flatMap((key) => keyRow(key))),
      ids: keys.length,
      logprobs: keys.length,
    },
  );
  return { ids: [...ids!], truncated: [...floats(truncated!)] };
}

const keysOf = (count: number, of: (i: number) => Partial<SampleKey>): SampleKey[] =>
  Array.from({ length: count }, (_, i) => ({ seed: 7, step: 1, group: 0, member: 0, position: 0, ...of(i) }));

const close = (found: ArrayLike<number>, wanted: readonly number[], tolerance = 1e-6) =>
  wanted.every((value, i) => Math.abs(found[i]! - value) <= tolerance);

describe('E1: log-probs at the sampling temperature', () => {
  test('are those of the divided logits', async () => {
    const row = f32(2, 1, 0);
    expect(close(await scored(row, [0, 1, 2], 1), [-0.407606, -1.407606, -2.407606])).toBe(true);
    expect(close(await scored(row, [0, 1, 2], 0.5), [-0.142932, -2.142932, -4.142932])).toBe(true);
  });

  test('have the same bits whether the id was just drawn or is scored again in a batch, so every ratio is 1', async () => {
    const row = testValues(700, 3, 0.2);
    for (const temperature of [0.6, 1, 1.7]) {
      const keys = keysOf(16, (position) => ({ position }));
      const { ids } = await drawn(row, keys, { ...plain, temperature, topK: 50, topP: 0.9 });
      const batch = await scored(row, ids, temperature);
      const single = await Promise.all(ids.map(async (id) => (await scored(row, [id], temperature))[0]!));
      expect([...batch]).toEqual(single);
      expect([...batch].map((value, i) => Math.exp(value - single[i]!))).toEqual(ids.map(() => 1));
    }
  });
});

describe('E2: truncated sampling', () => {
  test('records the full log-prob and the renormalised one apart', async () => {
    const row = f32(3, 2, 1, 0);
    const { ids, truncated } = await drawn(
      row,
      keysOf(64, (position) => ({ position })),
      { ...plain, topK: 2 },
    );
    expect([...new Set(ids)].sort()).toEqual([0, 1]);
    const first = ids.indexOf(0);
    expect(close([truncated[first]!], [-0.313262])).toBe(true);
    expect(close(await scored(row, [0], 1), [-0.44019])).toBe(true);
    const full = await scored(row, ids, 1);
    ids.forEach((_, i) => {
      expect(Math.abs(Math.exp(full[i]! - truncated[i]!) - 0.880797) <= 1e-6).toBe(true);
    });
  });
});

describe('E4: padded rows of the head', () => {
  const vocabulary = 151_669;
  const logits = testValues(151_936, 5, 0.1);
  logits[151_700] = 90;
  logits[151_935] = 1e30;

  test('are never drawn, greedy or not, though one of them is the largest', async () => {
    const keys = keysOf(6, (position) => ({ position }));
    for (const settings of [{ ...plain, temperature: 0 }, plain, { ...plain, topK: 20, topP: 0.95 }]) {
      const { ids } = await drawn(logits, keys, settings, { vocabulary });
      for (const id of ids) expect(id).toBeLessThan(vocabulary);
    }
    const greedy = await drawn(logits, keys.slice(0, 1), { ...plain, temperature: 0 }, { vocabulary });
    const real = logits.subarray(0, vocabulary);
    expect(greedy.ids[0]).toBe(real.indexOf(real.reduce((a, b) => Math.max(a, b))));
  });

  test('take no part in the trainer’s log-prob either, and scoring one gives NaN', async () => {
    const values = await scored(logits, [12, 151_700], 1, vocabulary);
    const exact =
      logits[12]! - Math.log(logits.subarray(0, vocabulary).reduce((sum, value) => sum + Math.exp(value), 0));
    expect(Math.abs(values[0]! - exact) <= 1e-4).toBe(true);
    expect(values[1]).toBeNaN();
  });
});

describe('E5: one seed, four members', () => {
  const steps = 12;
  const logits = testValues(400, 11, 0.1);
  const rollout = async (member: number) =>
    (
      await drawn(
        logits,
        keysOf(steps, (position) => ({ member, position })),
        plain,
      )
    ).ids;

  test('members differ, and each is reproducible by itself', async () => {
    const members = await Promise.all([0, 1, 2, 3].map(rollout));
    expect(new Set(members.map((ids) => ids.join())).size).toBe(4);
    expect(await rollout(2)).toEqual(members[2]);
  });

  test('the order of scheduling and the size of the batch change no id', async () => {
    const members = await Promise.all([0, 1, 2, 3].map(rollout));
    const order = [3, 1, 0, 2];
    const keys = Array.from({ length: steps }, (_, position) => order.map((member) => ({ member, position }))).flat();
    const mixed = await drawn(
      logits,
      keysOf(keys.length, (i) => keys[i]!),
      plain,
    );
    order.forEach((member, slot) => {
      expect(mixed.ids.filter((_, i) => i % 4 === slot)).toEqual(members[member]);
    });
  });
});
