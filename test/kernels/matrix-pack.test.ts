import { cacheFork } from '../../src/kernels/cache-fork.ts';
import { cacheRowsBackward } from '../../src/kernels/cache-rows-backward.ts';
import { loraTranspose } from '../../src/kernels/lora-transpose.ts';
import { matrixPack } from '../../src/kernels/matrix-pack.ts';
import { matrixPlain } from '../../src/kernels/matrix-plain.ts';
import { matrixRows } from '../../src/kernels/matrix-rows.ts';
import { matrixWeightScan } from '../../src/kernels/matrix-weight-scan.ts';
import { useGpu } from '../support/gpu.ts';
import { describeQualification } from './run-kernel.ts';

// These need no subgroup matrices: and are held to their definitions on every adapter.
const gpu = useGpu();
describeQualification(gpu, matrixPack);
describeQualification(gpu, cacheFork);
describeQualification(gpu, cacheRowsBackward);
describeQualification(gpu, matrixRows);
describeQualification(gpu, matrixPlain);
describeQualification(gpu, loraTranspose);
describeQualification(gpu, matrixWeightScan);
