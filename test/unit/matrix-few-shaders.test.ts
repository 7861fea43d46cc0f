// The shaders that a template writes are what the template writes.
import { expect, test } from 'vitest';
import { loadWgsl } from '../../src/gpu/wgsl-node.ts';
import { fewStorage } from '../../src/kernels/matrix-config.ts';
import { fewPlan, fewTiles, roundOf } from '../../src/kernels/matrix-few-tiles.ts';
import { fewShader } from '../../tools/matrix-few/template.ts';

test.each(fewTiles)('shaders/matrix-few-$name.wgsl is the text of its template', (tile) => {
  expect(loadWgsl(`matrix-few-${tile.name}.wgsl`)).toBe(fewShader(tile));
});

test('every product of few rows has a tile that its sum fits', () => {
  for (const rows of [1, 4, 5, 8, 9, 16, 17, 64]) {
    for (const columns of [64, 2048, 4096, 12_288]) {
      for (let k = 64; k <= 12_288; k += 64) {
        const { tile } = fewPlan(rows, columns, k);
        expect(k % roundOf(tile)).toBe(0);
        expect(tile.rows).toBeGreaterThanOrEqual(rows);
      }
    }
  }
});

test('the largest tile is what an adapter of the family must have room for', () => {
  const sizes = fewTiles.map((tile) => Number(/array<vec4<u32>, (\d+)>/.exec(fewShader(tile))![1]) * 16 + 16);
  expect(Math.max(...sizes)).toBe(fewStorage);
});
