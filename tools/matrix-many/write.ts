// Writes the products of many rows: `npx tsx tools/matrix-many/write.ts`. A test compares the files with the template.
import { writeFileSync } from 'node:fs';
import { manyShaders } from './template.ts';

for (const [name, text] of manyShaders) {
  writeFileSync(new URL(`../../shaders/${name}.wgsl`, import.meta.url), text);
}
