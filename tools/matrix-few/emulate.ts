// Runs the cases of tiles of few rows without subgroup matrices, on whatever adapter there is:
// `npx tsx tools/matrix-few/emulate.ts TILE...` (none: all tiles; four of them took some ten minutes on two busy cores).
import { openGpu } from '../../src/gpu/device.ts';
import { fewKernel } from '../../src/kernels/matrix-few.ts';
import { fewTiles } from '../../src/kernels/matrix-few-tiles.ts';
import { runCase } from '../../src/kernels/qualify.ts';
import { emulatedFew } from './emulated.ts';

const names = process.argv.slice(2);
const known = fewTiles.map(({ name }) => name);
const unknown = names.find((name) => !known.includes(name));
if (unknown !== undefined) {
  console.error(`emulating tiles: found ${unknown}; wanted some of ${known.join(', ')}. Name one of them.`);
  process.exit(2);
}
const gpu = await openGpu();
let failed = 0;
for (const few of fewTiles.filter(({ name }) => names.length === 0 || names.includes(name))) {
  const kernel = emulatedFew(fewKernel(few), gpu.identity.limits.maxComputeWorkgroupStorageSize);
  for (const run of kernel.cases()) {
    const { passed, worst, at, stable, guarded } = await runCase(gpu, kernel, run);
    const what = passed ? '' : ` ${at}${stable ? '' : ', bits change'}${guarded ? '' : ', wrote past an output'}`;
    console.log(
      `${passed ? 'passed' : 'FAILED'}  ${few.name}  ${run.name}  ${worst.toPrecision(3)} of its bound${what}`,
    );
    if (!passed) failed += 1;
  }
}
gpu.destroy();
process.exitCode = failed > 0 ? 1 : 0;
