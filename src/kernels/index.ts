// The registry: every kernel that qualification runs. Data only.
import type { QualifiedKernel } from '../gpu/kernel.ts';
import { matmul } from './matmul.ts';

export const kernels: readonly QualifiedKernel[] = [matmul];
