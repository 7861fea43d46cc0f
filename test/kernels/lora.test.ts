// LoRA's f32 kernels of the matrix family need no subgroup matrices: they are held to their definitions on every adapter.
import { logprobsBackwardPack } from '../../src/kernels/logprobs-backward-pack.ts';
import { loraDz } from '../../src/kernels/lora-dz.ts';
import { loraGradient } from '../../src/kernels/lora-gradient.ts';
import { matrixPlainNn } from '../../src/kernels/matrix-plain-nn.ts';
import { orderedSum } from '../../src/kernels/ordered-sum.ts';
import { useGpu } from '../support/gpu.ts';
import { describeQualification } from './run-kernel.ts';

const gpu = useGpu();
describeQualification(gpu, loraDz);
describeQualification(gpu, loraGradient);
describeQualification(gpu, orderedSum);
describeQualification(gpu, matrixPlainNn);
describeQualification(gpu, logprobsBackwardPack);
