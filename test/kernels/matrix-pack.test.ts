import { matrixPack } from '../../src/kernels/matrix-pack.ts';
import { matrixWeightScan } from '../../src/kernels/matrix-weight-scan.ts';
import { useGpu } from '../support/gpu.ts';
import { describeQualification } from './run-kernel.ts';

// These two need no subgroup matrices: they are held to their definitions on every adapter.
const gpu = useGpu();
describeQualification(gpu, matrixPack);
describeQualification(gpu, matrixWeightScan);
