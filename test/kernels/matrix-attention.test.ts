// The matrix family's attention: its kernels need no subgroup matrices, so they are held to their definitions on every
// adapter; and one row at a time, in tiles of rows, alone or beside others, they give the same bits.
import { describe, expect, test } from 'vitest';
import type { KernelCase, QualifiedKernel } from '../../src/gpu/kernel.ts';
import { attentionCanonicalChecks } from '../../src/kernels/attention-canonical.ts';
import { attentionFlash, flashRows, flashTiles } from '../../src/kernels/attention-flash.ts';
import { attentionFlashDkv, attentionFlashDq, attentionRowSums } from '../../src/kernels/attention-flash-backward.ts';
import { attentionPartial, partialConstants } from '../../src/kernels/attention-partial.ts';
import { cacheRows } from '../../src/kernels/cache-rows.ts';
import { runShapes } from '../../src/kernels/cached-attention-cases.ts';
import { useGpu } from '../support/gpu.ts';
import { describeQualification } from './run-kernel.ts';

const gpu = useGpu();

/** A software adapter takes seconds to compile a tile of attention, so few are tried here; the family qualifies all. */
const few = (kernel: QualifiedKernel, chosen: (run: KernelCase) => boolean): QualifiedKernel => ({
  ...kernel,
  cases: () => kernel.cases().filter(chosen),
});
const grouped = ({ constants }: KernelCase) =>
  constants!['ROWS'] === 16 && constants!['D8'] === 8 && constants!['GROUP'] === 2;

describeQualification(gpu, cacheRows);
describeQualification(gpu, attentionPartial);
describeQualification(gpu, few(attentionFlash, grouped));
describeQualification(gpu, attentionRowSums);
describeQualification(gpu, few(attentionFlashDq, grouped));
describeQualification(gpu, few(attentionFlashDkv, grouped));

describe('attention of the matrix family', () => {
  test('gives a row the same bits alone, in a batch of single rows and in a tile of a ragged batch', async () => {
    const results = await attentionCanonicalChecks(gpu(), runShapes[1]!);
    expect(results.filter(({ passed }) => !passed)).toEqual([]);
    expect(results.length).toBeGreaterThanOrEqual(5);
  });

  test('cuts runs into tiles at their own first row, at jumps of the position and at slots, the longest first', () => {
    const meta = [...Array.from({ length: 40 }, (_, t) => [1, t]), [0, 7], [0, 8], [0, 10]].flat();
    expect([...flashTiles(Uint32Array.from(meta), 16)]).toEqual(
      [
        [32, 8, 1, 32],
        [16, 16, 1, 16],
        [0, 16, 1, 0],
        [42, 1, 0, 10],
        [40, 2, 0, 7],
      ].flat(),
    );
  });

  test('refuses heads that the kernels do not take, with the remedy', () => {
    expect(() => partialConstants(9, 64, true)).toThrow(/9 query heads of 64 .* Use the portable kernels/);
    expect(() => partialConstants(2, 40, true)).toThrow(/multiple of 16/);
    expect(() => partialConstants(1.5, 64, true)).toThrow(/1.5 query heads/);
  });

  test('takes the largest tile that fits the workgroup memory, and says what it needs where none does', () => {
    expect(flashRows(128, 49152)).toBe(32);
    expect(flashRows(128, 32768)).toBe(16);
    expect(flashRows(32, 16384)).toBe(16);
    expect(() => flashRows(128, 16384)).toThrow(/heads of 128 take \d+ bytes/);
    expect(() => flashRows(256, 49152)).toThrow(/at most 128 elements/);
  });
});
