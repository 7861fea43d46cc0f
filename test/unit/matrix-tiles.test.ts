// Which form of a product of many rows is taken, and what the larger one needs.
import { expect, test } from 'vitest';
import { loadWgsl } from '../../src/gpu/wgsl-node.ts';
import { manyLaunch } from '../../src/kernels/matrix-matmul-lora.ts';
import { wideGrid, wideIsFaster, wideStorage } from '../../src/kernels/matrix-tiles.ts';

test('the wide form is taken where the tall tiles would leave a wave half empty, and not where they fill it', () => {
  // Measured at 3,072 rows of 2,048 terms: o 1.22 times as fast, qkv 0.94, gate and up 0.96 times.
  expect(wideIsFaster(3072, 2048)).toBe(true);
  expect(wideIsFaster(3072, 4096)).toBe(false);
  expect(wideIsFaster(3072, 12_288)).toBe(false);
  expect(wideIsFaster(128, 2048)).toBe(false);
});

test('the launch of a product covers every output with the tiles of its kernel', () => {
  for (const rows of [65, 128, 129, 192, 193, 1024, 3072]) {
    for (const columns of [24, 2048, 4096, 6144, 12_288]) {
      const { kernel, grid, constants } = manyLaunch(rows, columns, 2048, 16);
      const wide = kernel.name.endsWith('-wide');
      expect(grid[0] * 128).toBeGreaterThanOrEqual(columns);
      expect(grid[1] * (wide ? 192 : 128)).toBeGreaterThanOrEqual(rows);
      expect(constants).toEqual({ PANELS: wide ? 32 : 64, RANK4: 4 });
      expect(wide).toBe(wideIsFaster(rows, columns));
    }
  }
  expect(wideGrid(193, 129)).toEqual([2, 2, 1]);
});

test('what an adapter must have room for is the workgroup memory that the wide shader declares', () => {
  const text = loadWgsl('matrix-matmul-lora-wide.wgsl');
  const sizes = Array.from(
    text.matchAll(/array<array<vec4<u32>, (\d+)>, (\d+)>/g),
    ([, n, of]) => Number(n) * Number(of),
  );
  expect(sizes).toHaveLength(2);
  expect(sizes.reduce((sum, size) => sum + size * 16, 0)).toBe(wideStorage);
});
