// The GPU sampler: qualification, the goldens of transformers, Philox, the drawn distribution, independence of the batch.
import { describe, expect, test } from 'vitest';
import { testValues, withStride } from '../../src/kernels/case-data.ts';
import { logprobs, rowGrid } from '../../src/kernels/logprobs.ts';
import { type DrawSettings, keyRow, noId, sample, sampleReference, sampleScalars } from '../../src/kernels/sample.ts';
import { philox4x32, SAMPLE_KEY_TAG, type SampleKey } from '../../src/lib/rng.ts';
import { goldenData, readGolden } from '../support/golden.ts';
import { useGpu } from '../support/gpu.ts';
import { describeQualification, floats, runKernel } from './run-kernel.ts';

const gpu = useGpu();
const plain: DrawSettings = { temperature: 1, topK: 0, topP: 1, minP: 0 };

describeQualification(gpu, sample);

/** Draws one id a key; `logits` [rows, vocabulary], or one row for all keys with stride 0. */
async function draw(
  logits: Float32Array<ArrayBuffer>,
  vocabulary: number,
  keys: readonly SampleKey[],
  settings: DrawSettings,
  stride = vocabulary,
  distribution = false,
) {
  const out = await runKernel(
    gpu(),
    sample,
    { rows: keys.length, vocabulary, stride, rowOffset: 0, ...sampleScalars(settings) },
    rowGrid(keys.length),
    {
      logits,
      keys: Uint32Array.from(keys.flatMap((key) => keyRow(key))),
      ids: keys.length,
      logprobs: keys.length,
      distribution: distribution ? keys.length * vocabulary : 4,
    },
    { DISTRIBUTION: distribution ? 1 : 0 },
  );
  return { ids: out['ids']!, logprobs: out['logprobs']!, distribution: floats(out['distribution']!) };
}

const keysOf = (count: number, from: Partial<SampleKey> = {}): SampleKey[] =>
  Array.from({ length: count }, (_, position) => ({ seed: 7, step: 1, group: 2, member: 3, position, ...from }));

describe('the goldens of transformers', () => {
  const file = readGolden('sampling.safetensors');
  const logits = Float32Array.from(goldenData(file, 'logits'));
  const all = file.metadata['settings'] as Record<string, [number, number, number, number]>;

  test.each(Object.entries(all))(
    'setting %s: probabilities within 1e-6, none outside the kept set',
    async (name, s) => {
      const [temperature, topK, topP, minP] = s;
      const golden = goldenData(file, `${name}.probs`);
      const { distribution, ids } = await draw(logits, 320, keysOf(8), { temperature, topK, topP, minP }, 320, true);
      for (let r = 0; r < 8; r++) {
        // torch's unstable sort decides which ids of a tie top-p keeps; ids of one logit are compared as a set.
        const sorted = (values: ArrayLike<number>) =>
          Array.from({ length: 320 }, (_, v) => [logits[r * 320 + v]!, values[r * 320 + v]!] as const).sort(
            (a, b) => a[0] - b[0] || a[1] - b[1],
          );
        const [found, wanted] = [sorted(distribution), sorted(golden)];
        const worst = found.reduce((most, [, p], i) => Math.max(most, Math.abs(p - wanted[i]![1])), 0);
        expect(worst <= 1e-6).toBe(true);
        expect(found.map(([, p]) => p > 0)).toEqual(wanted.map(([, p]) => p > 0));
        expect(distribution[r * 320 + ids[r]!]).toBeGreaterThan(0);
      }
    },
  );
});

describe('the random number', () => {
  test('is the TypeScript Philox for a thousand keys', async () => {
    // On a flat row of 4096 ids the id drawn is the upper 12 bits of the number.
    const keys = Array.from({ length: 1000 }, (_, i) => {
      const [seed, step, group, member] = philox4x32([i, 1, 2, 3], [4, 5]);
      return { seed, step, group, member, position: i % 3 === 0 ? 0xffffffff - i : i * 977 };
    });
    const { ids } = await draw(new Float32Array(4096).fill(-3), 4096, keys, plain, 0);
    const words = keys.map(
      (k) => philox4x32([k.position, k.member, k.group, k.step], [k.seed, SAMPLE_KEY_TAG])[0] >>> 20,
    );
    expect([...ids]).toEqual(words);
  });

  test.each([
    ['seed', { seed: 8 }],
    ['step', { step: 2 }],
    ['group', { group: 9 }],
    ['member', { member: 4 }],
  ])('changes with the %s', async (_name, change) => {
    const row = new Float32Array(300);
    const first = await draw(row, 300, keysOf(20), plain, 0);
    const other = await draw(row, 300, keysOf(20, change), plain, 0);
    expect([...first.ids]).not.toEqual([...other.ids]);
  });
});

describe('what is drawn', () => {
  const row = testValues(50, 3, 0.8).map((value) => Math.max(-4, Math.min(4, value)));

  test.each([
    ['everything', plain, 49],
    ['top-k 12', { ...plain, topK: 12 }, 11],
    ['top-p 0.7 at T 0.8', { ...plain, temperature: 0.8, topP: 0.7 }, null],
  ] as const)('follows the distribution (%s): chi-square over 6000 positions', async (_name, settings, freedom) => {
    const scaled = row.map((value) => Math.fround(value * Math.fround(1 / settings.temperature)));
    const { distribution } = sampleReference(scaled, settings, 0.5);
    const { ids } = await draw(row, 50, keysOf(6000), settings, 0);
    const counts = new Float64Array(50);
    for (const id of ids) counts[id]!++;
    let chi = 0;
    let kept = 0;
    distribution.forEach((p, v) => {
      if (p === 0) expect(counts[v]).toBe(0);
      else {
        kept++;
        chi += (counts[v]! - 6000 * p) ** 2 / (6000 * p);
      }
    });
    const degrees = kept - 1;
    if (freedom !== null) expect(degrees).toBe(freedom);
    // Mean and four deviations of chi-square; the seed is fixed, so this holds or fails for ever.
    expect(chi).toBeLessThan(degrees + 4 * Math.sqrt(2 * degrees));
    expect(chi).toBeGreaterThan(Math.max(0, degrees - 4 * Math.sqrt(2 * degrees)));
  });

  test('has the same id and bits alone, in a batch of seven and in another order', async () => {
    const settings = { temperature: 0.9, topK: 100, topP: 0.9, minP: 0.001 };
    const vocabulary = 333;
    const logits = testValues(7 * vocabulary, 8, 0.5);
    const at = (r: number) => logits.subarray(r * vocabulary, (r + 1) * vocabulary);
    const keys = keysOf(7).map((key, r) => ({ ...key, member: r, position: 50 - r }));
    const batch = await draw(logits, vocabulary, keys, settings);
    const order = [6, 3, 0, 5, 1, 4, 2];
    const mixed = new Float32Array(logits.length);
    order.forEach((r, i) => {
      mixed.set(at(r), i * vocabulary);
    });
    const other = await draw(
      mixed,
      vocabulary,
      order.map((r) => keys[r]!),
      settings,
    );
    for (let r = 0; r < 7; r++) {
      const alone = await draw(at(r).slice(), vocabulary, [keys[r]!], settings);
      const i = order.indexOf(r);
      expect([alone.ids[0], alone.logprobs[0]]).toEqual([batch.ids[r], batch.logprobs[r]]);
      expect([other.ids[i], other.logprobs[i]]).toEqual([batch.ids[r], batch.logprobs[r]]);
    }
  });

  test('greedy takes the lowest of the most likely ids, and -0 ties with 0', async () => {
    const logits = Float32Array.from([1, 5, 5, 2, -1, -0, 0, -2]);
    const found = await draw(logits, 4, keysOf(2), { ...plain, temperature: 0 });
    expect([...found.ids]).toEqual([1, 1]);
    expect([...floats(found.logprobs)]).toEqual([0, 0]);
  });

  test('without filters has the log-prob that the training kernel gives, within rounding', async () => {
    const vocabulary = 1000;
    const logits = testValues(vocabulary, 9, 0.2);
    const keys = keysOf(40);
    const found = await draw(logits, vocabulary, keys, plain, 0);
    const { stats } = await runKernel(
      gpu(),
      logprobs,
      { rows: 40, vocabulary, stride: 0, rowOffset: 0, inverseTemperature: 1 },
      rowGrid(40),
      { logits, targets: found.ids, stats: 160 },
    );
    for (let i = 0; i < 40; i++) {
      const difference = Math.abs(floats(stats!)[i * 4 + 2]! - floats(found.logprobs)[i]!);
      expect(difference <= 5e-6).toBe(true);
    }
  });

  test.each([0, 1])('from a row that holds a NaN is no id and a NaN log-prob (temperature %s)', async (temperature) => {
    const logits = testValues(300, 4);
    logits[222] = Number.NaN;
    const settings = { temperature, topK: 5, topP: 0.9, minP: 0.1 };
    const found = await draw(logits, 300, keysOf(1), settings);
    expect(found.ids[0]).toBe(noId);
    expect(floats(found.logprobs)[0]).toBeNaN();
  });

  test('is never an id of the padded head, whatever its logit', async () => {
    const logits = withStride(testValues(3 * 290, 6, 0.3), 3, 290, 300, 90);
    for (const settings of [plain, { ...plain, topK: 3 }, { ...plain, topP: 0.5 }, { ...plain, temperature: 0 }]) {
      const { ids } = await draw(logits, 290, keysOf(3), settings, 300);
      for (const id of ids) expect(id).toBeLessThan(290);
    }
  });
});

test('settings outside their range are refused', () => {
  expect(() => sampleScalars({ ...plain, topP: 0 })).toThrowErrorMatchingInlineSnapshot(
    `[KernelError: preparing a draw: found temperature 1, topK 0, topP 0, minP 0; wanted temperature >= 0 (0 = greedy), an integer topK >= 0, 0 < topP <= 1, 0 <= minP <= 1. Correct the settings.]`,
  );
  for (const bad of [{ temperature: -1 }, { temperature: Number.NaN }, { topK: 1.5 }, { minP: 2 }, { topP: 1.1 }])
    expect(() => sampleScalars({ ...plain, ...bad })).toThrow(/Correct the settings/);
});
