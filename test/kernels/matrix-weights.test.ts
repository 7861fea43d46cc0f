// What can be said of the family's loading without a device that has it.
import { describe, expect, test } from 'vitest';
import { matrixFeature } from '../../src/kernels/matrix-index.ts';
import { forwardKernel, lowConstants, lowTile, narrowConstants, packedWidth } from '../../src/kernels/matrix-tiles.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import { loadFamilyWeights } from '../../src/model/matrix-load.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { goldenPath } from '../support/golden.ts';
import { useGpu } from '../support/gpu.ts';

const gpu = useGpu();

describe('the kernel of a forward product', () => {
  const widths = [64, 576, 1024, 1536, 2048, 2560, 3072, 6144, 9728, 12288];

  test('splits every width into whole panels, and never stages more than a thread has registers for', () => {
    for (const k of widths) {
      for (const rows of [1, 4, 16, 17, 32, 33, 64]) {
        const tile = lowTile(rows, k);
        const { PANELS } = lowConstants(tile, k) as { PANELS: number };
        expect(PANELS * tile.TILE_K).toBe(k);
        for (const side of [tile.TILE_M, tile.TILE_N]) {
          const loads = (side * tile.TILE_K) / 1024;
          expect(Number.isInteger(loads) && loads >= 1 && loads <= 8, `${rows} rows, ${k} wide`).toBe(true);
        }
        if (forwardKernel(rows, 2048, k) === 'narrow')
          expect(Number.isInteger(narrowConstants(k)['PANELS'])).toBe(true);
      }
      expect(packedWidth(k)).toBe(k);
    }
  });

  test('is the tall one above 64 rows, and a narrow one only where 256 divides the width', () => {
    expect(forwardKernel(65, 2048, 2048)).toBe('tall');
    expect(forwardKernel(64, 2048, 2048)).toBe('narrow');
    expect(forwardKernel(4, 12288, 2048)).toBe('low');
    expect(forwardKernel(4, 1536, 576)).toBe('low');
  });
});

test('a device without subgroup matrices is refused by name, and the portable family gives no report', async () => {
  const files = await openModelFiles(folderSource(goldenPath('tiny-qwen3-tied')));
  const { model, report } = await loadFamilyWeights(gpu(), files, 'portable', { positions: 16 });
  expect(report).toBeNull();
  model.destroy();
  if (gpu().device.features.has(matrixFeature)) return;
  await expect(loadFamilyWeights(gpu(), files, 'matrix', { positions: 16 })).rejects.toThrow(/subgroup matrices/);
});
