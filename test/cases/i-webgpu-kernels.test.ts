// Public bug cases I2, I3 and I5: folded grids, values past f16, and no Infinity or NaN in any shader.
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { adamw, adamwGrid } from '../../src/kernels/adamw.ts';
import { adamwScalars } from '../../src/kernels/adamw-reference.ts';
import { addInto, addIntoGrid } from '../../src/kernels/add-into.ts';
import { logprobs, rowGrid } from '../../src/kernels/logprobs.ts';
import { logprobsBackward, logprobsBackwardGrid } from '../../src/kernels/logprobs-backward.ts';
import { rmsnorm } from '../../src/kernels/rmsnorm.ts';
import { floats, runKernel } from '../kernels/run-kernel.ts';
import { useGpu } from '../support/gpu.ts';

const gpu = useGpu();

// Past 65,535 workgroups in x, and past 32,768, where the grid folds.
describe('I2: more workgroups than one dimension holds', () => {
  test.each([32_768, 65_535].flatMap((groups) => [-1, 0, 1].map((by) => [groups, by] as const)))(
    'an element-wise kernel of %i workgroups and %i element is right to the last one',
    async (groups, by) => {
      const count = groups * 256 + by;
      const a = new Float32Array(Math.ceil(count / 4) * 4);
      const b = new Float32Array(a.length);
      for (let i = 0; i < a.length; i++) {
        a[i] = i & 0xfff;
        b[i] = i >>> 12;
      }
      const grid = addIntoGrid(count);
      expect(Math.max(...grid)).toBeLessThanOrEqual(65_535);
      const out = floats((await runKernel(gpu(), addInto, { count }, grid, { b, a }))['a']!);
      let wrong = 0;
      for (let i = 0; i < out.length; i++) if (out[i] !== (i < count ? a[i]! + b[i]! : a[i])) wrong++;
      expect(wrong).toBe(0);
    },
  );

  test.each([65_535 * 64 - 1, 65_535 * 64, 65_535 * 64 + 1])('AdamW updates all of %i elements', async (count) => {
    const scalars = adamwScalars(1, 0.5, { beta1: 0, beta2: 0, eps: 1e-8, weightDecay: 0 });
    const weights = new Float32Array(count + 3);
    const out = await runKernel(gpu(), adamw, { count, offset: 0, ...scalars }, adamwGrid(count), {
      clip: Float32Array.of(1, 1),
      gradient: new Float32Array(count + 3).fill(4),
      weights,
      m: count + 3,
      v: count + 3,
    });
    const moments = floats(out['m']!);
    let wrong = 0;
    for (let i = 0; i < count + 3; i++) if (moments[i] !== (i < count ? 4 : 0)) wrong++;
    expect(wrong).toBe(0);
  });

  test.each([65_535, 65_536, 65_537])(
    'softmax over %i rows, one workgroup each, forward and backward',
    async (rows) => {
      // Rows repeat with period 5, so the first five are the reference for all.
      const logits = Float32Array.from({ length: rows * 4 }, (_, i) => ((Math.floor(i / 4) % 5) - 2) * (i % 4));
      const targets = Uint32Array.from({ length: rows }, (_, r) => (r % 5) % 3);
      const params = { rows, vocabulary: 3, rowOffset: 0, inverseTemperature: 1 };
      const forward = await runKernel(gpu(), logprobs, { ...params, stride: 4 }, rowGrid(rows), {
        logits,
        targets,
        stats: rows * 4,
      });
      const stats = forward['stats']!;
      const repeats = (words: Uint32Array) => {
        let wrong = 0;
        for (let i = 0; i < rows * 4; i++) if (words[i] !== words[i % 20]) wrong++;
        return wrong;
      };
      expect(repeats(stats)).toBe(0);
      for (let r = 0; r < 5; r++) {
        const x = [...logits.subarray(r * 4, r * 4 + 3)];
        const exact = x[(r % 5) % 3]! - Math.log(x.reduce((sum, value) => sum + Math.exp(value), 0));
        expect(Math.abs(floats(stats)[r * 4 + 2]! - exact) <= 1e-6).toBe(true);
      }
      const backward = await runKernel(
        gpu(),
        logprobsBackward,
        { ...params, stride4: 1 },
        logprobsBackwardGrid(rows, 1),
        { targets, stats, gradient: new Float32Array(rows).fill(1), logits },
      );
      expect(repeats(backward['logits']!)).toBe(0);
      expect(floats(backward['logits']!)[0]).toBeCloseTo(1 - Math.exp(floats(stats)[2]!), 6);
    },
  );
});

describe('I3: values past the range of f16', () => {
  test.each([
    ['one entry 795 among ones', (i: number) => (i === 500 ? 795 : 1)],
    ['a row of 300s, squares 90,000', () => 300],
    ['a row of 70,000s', () => 70_000],
  ])('RMSNorm of %s matches f64', async (_name, value) => {
    const x = Float32Array.from({ length: 1024 }, (_, i) => value(i));
    const out = await runKernel(gpu(), rmsnorm, { rows: 1, columns: 1024, k4: 256, eps: 1e-6 }, [1, 1, 1], {
      x,
      gain: new Float32Array(1024).fill(1),
      out: 1024,
    });
    const scale = 1 / Math.sqrt(x.reduce((sum, v) => sum + v * v, 0) / 1024 + 1e-6);
    const found = floats(out['out']!);
    expect(found.every((v, i) => Math.abs(v - x[i]! * scale) <= 1e-6 * Math.abs(x[i]! * scale))).toBe(true);
  });

  test('log-probs of logits of 70,000 match f64', async () => {
    const logits = Float32Array.of(70_000, 70_001, 69_998, -70_000);
    const out = await runKernel(
      gpu(),
      logprobs,
      { rows: 4, vocabulary: 4, stride: 0, rowOffset: 0, inverseTemperature: 1 },
      rowGrid(4),
      { logits, targets: Uint32Array.of(0, 1, 2, 3), stats: 16 },
    );
    const logSum = 70_001 + Math.log(Math.exp(-1) + 1 + Math.exp(-3));
    logits.forEach((logit, i) => {
      const wanted = logit - logSum;
      expect(Math.abs(floats(out['stats']!)[i * 4 + 2]! - wanted) <= 1e-6 * Math.max(1, Math.abs(wanted))).toBe(true);
    });
  });
});

const folder = new URL('../../shaders/', import.meta.url);
const shaders = readdirSync(folder)
  .filter((name) => name.endsWith('.wgsl'))
  .map((name) => [name, readFileSync(new URL(name, folder), 'utf8').replace(/\/\/.*$/gm, '')] as const);

/** What of I5 a shader's code (comments stripped) breaks. */
function faults(code: string): string[] {
  const rules: [string, RegExp][] = [
    ['a division by a literal zero', /\/\s*\(?\s*-?\s*0*\.?0+(?:\.0*)?[fh]?\b(?!\.?\d)/],
    ['a name for Infinity or NaN', /\b(?:inf|infinity|nan|neg_inf|isinf|isnan|isfinite)\b/i],
    ['the bits of an Infinity or a NaN as a constant', /bitcast<\w+>\(\s*0x[7f]f[8-f]0[0-9a-f]{4}u?\s*\)/i],
    ['a comparison of a value with itself', /\b([a-z_]\w*(?:\.\w+|\[[^\]]*\])?)\s*(?:!=|==)\s*\1\s*[^\w.[]/i],
  ];
  const found = rules.filter(([, pattern]) => pattern.test(code)).map(([name]) => name);
  const literals = code.match(/\b\d[\d.]*e\+?\d+/gi) ?? [];
  if (literals.some((literal) => Number(literal) > 3.4028235e38)) found.push('a literal that f32 does not hold');
  // A mask added to a score can overflow: -3.4e38 + -1e38. Masks are chosen by select instead.
  if (/[+]\s*-?\d(?:\.\d+)?e\+?3[0-9]\b|-?\d(?:\.\d+)?e\+?3[0-9]\b\s*[+]/.test(code))
    found.push('a mask that is added');
  return found;
}

describe('I5: no Infinity and no NaN in shaders', () => {
  test('there are shaders to look at', () => {
    expect(shaders.length).toBeGreaterThan(10);
  });

  test.each(shaders)('%s has none, as a constant, a test or an added mask', (_name, code) => {
    expect(faults(code)).toEqual([]);
  });

  test.each([
    ['const NEG_INF = -1.0/0.0;', 2],
    ['let a = x / 0.0;', 1],
    ['if (x != x) { return 0.0; }', 1],
    ['if (v[i] == v[i] ) {', 1],
    ['let m = bitcast<f32>(0xff800000u);', 1],
    ['let m = bitcast<f32>(0x7fc00000u);', 1],
    ['if (isNan(x)) {', 1],
    ['score = score + -3.4028235e38;', 1],
    ['let big = 3.5e38;', 1],
    ['let fine = x / 0.5 + y / 10.0 + select(-1e38, s, seen);', 0],
  ])('the scan finds in %s: %i', (code, count) => {
    expect(faults(`${code} `).length).toBe(count);
  });
});
