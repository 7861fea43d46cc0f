// Writes shaders/matrix-few-*.wgsl: `npx tsx tools/matrix-few/write.ts`. A test compares the files with the template.
import { writeFileSync } from 'node:fs';
import { fewTiles } from '../../src/kernels/matrix-few-tiles.ts';
import { fewShader } from './template.ts';

for (const tile of fewTiles) {
  writeFileSync(new URL(`../../shaders/matrix-few-${tile.name}.wgsl`, import.meta.url), fewShader(tile));
}
