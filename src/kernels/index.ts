// The registry: every kernel that qualification runs. Data only.
import type { QualifiedKernel } from '../gpu/kernel.ts';
import { adamw } from './adamw.ts';
import { addInto } from './add-into.ts';
import { attentionKvGradient } from './attention-kv-gradient.ts';
import { attentionScores } from './attention-scores.ts';
import { attentionSoftmax } from './attention-softmax.ts';
import { attentionSoftmaxBackward } from './attention-softmax-backward.ts';
import { attentionValues } from './attention-values.ts';
import { embed } from './embed.ts';
import { gatherRows } from './gather-rows.ts';
import { grpoGradient } from './grpo-gradient.ts';
import { logprobs } from './logprobs.ts';
import { logprobsBackward } from './logprobs-backward.ts';
import { matmul } from './matmul.ts';
import { matmulNn } from './matmul-nn.ts';
import { matmulTn } from './matmul-tn.ts';
import { normBlocks } from './norm-blocks.ts';
import { normFinish } from './norm-finish.ts';
import { qkNormRope } from './qk-norm-rope.ts';
import { qkNormRopeBackward } from './qk-norm-rope-backward.ts';
import { rmsnorm } from './rmsnorm.ts';
import { rmsnormBackward } from './rmsnorm-backward.ts';
import { sample } from './sample.ts';
import { swiglu } from './swiglu.ts';
import { swigluBackward } from './swiglu-backward.ts';

export const kernels: readonly QualifiedKernel[] = [
  embed,
  gatherRows,
  matmul,
  matmulNn,
  matmulTn,
  rmsnorm,
  rmsnormBackward,
  qkNormRope,
  qkNormRopeBackward,
  attentionScores,
  attentionSoftmax,
  attentionValues,
  attentionSoftmaxBackward,
  attentionKvGradient,
  swiglu,
  swigluBackward,
  addInto,
  adamw,
  grpoGradient,
  logprobs,
  logprobsBackward,
  normBlocks,
  normFinish,
  sample,
];
