// The text of a product of few rows on every adapter, subgroup matrices rewritten as sums (tools/matrix-few/emulated.ts):
// staging, clamped rows and columns, epilogue and guards. One tile: the others come from the same template and take
// minutes to compile on a software adapter; tools/matrix-few/emulate.ts runs them.
import { expect, test } from 'vitest';
import { fewConstants, fewKernel } from '../../src/kernels/matrix-few.ts';
import { fewGrid, fewTiles } from '../../src/kernels/matrix-few-tiles.ts';
import { loraProductCase } from '../../src/kernels/matrix-matmul-lora.ts';
import { matrixPlain, plainGrid } from '../../src/kernels/matrix-plain.ts';
import { runCase, runOnce } from '../../src/kernels/qualify.ts';
import { emulatedFew } from '../../tools/matrix-few/emulated.ts';
import { useGpu } from '../support/gpu.ts';

const gpu = useGpu();
const few = fewTiles.find(({ name }) => name === '8x32x32')!;
const bytes = () => gpu().identity.limits.maxComputeWorkgroupStorageSize;

test('a tile of few rows keeps its bounds and its guards, its tile in workgroup memory or not', {
  timeout: 120_000,
}, async () => {
  for (const room of [bytes(), 0]) {
    const kernel = emulatedFew(fewKernel(few), room);
    for (const run of room > 0 ? kernel.cases() : kernel.cases().slice(-1)) {
      expect(await runCase(gpu(), kernel, run), run.name).toMatchObject({ stable: true, guarded: true, passed: true });
    }
  }
});

test('a tile whose text is wrong fails', { timeout: 60_000 }, async () => {
  const kernel = emulatedFew(fewKernel(few), bytes());
  const run = kernel.cases().at(-1)!;
  const source = kernel.source!.replace('min(n, p.columns - 1u)', 'min(n, p.columns - 2u)');
  expect(source).not.toBe(kernel.source);
  expect((await runCase(gpu(), { ...kernel, name: 'a wrong tile', source }, run)).passed).toBe(false);
});

test('a tile of few rows sums as the plain product does', { timeout: 60_000 }, async () => {
  const run = loraProductCase(7, 100, 192, 2, 16, [40]);
  const [rows, columns] = [run.params['rows']!, run.params['columns']!];
  const plain = await runOnce(gpu(), matrixPlain, { ...run, grid: plainGrid(rows, columns) });
  const constants = fewConstants({ tile: few, late: false }, 192, 16);
  const kernel = emulatedFew(fewKernel(few), bytes());
  expect(await runOnce(gpu(), kernel, { ...run, constants, grid: fewGrid(few, columns) })).toEqual(plain);
});
