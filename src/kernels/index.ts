// The registry: every kernel that qualification runs. Data only.
import type { QualifiedKernel } from '../gpu/kernel.ts';
import { adamw } from './adamw.ts';
import { addInto } from './add-into.ts';
import { advance } from './advance.ts';
import { attentionKvGradient, attentionKvGradientLanes } from './attention-kv-gradient.ts';
import { attentionScores, attentionScoresLanes } from './attention-scores.ts';
import { attentionSoftmax, attentionSoftmaxWide } from './attention-softmax.ts';
import { attentionSoftmaxBackward } from './attention-softmax-backward.ts';
import { attentionValues, attentionValuesLanes } from './attention-values.ts';
import { embed } from './embed.ts';
import { gatherRows } from './gather-rows.ts';
import { grpoGradient } from './grpo-gradient.ts';
import { logprobs } from './logprobs.ts';
import { logprobsBackward } from './logprobs-backward.ts';
import { logprobsWide } from './logprobs-wide.ts';
import { matmul, matmulLanes, matmulSkinny, matmulTiled } from './matmul.ts';
import { matmulNn, matmulNnLanes, matmulNnTiled } from './matmul-nn.ts';
import { matmulTn, matmulTnLanes, matmulTnTiled } from './matmul-tn.ts';
import { normBlocks } from './norm-blocks.ts';
import { normFinish } from './norm-finish.ts';
import { qkNormRope } from './qk-norm-rope.ts';
import { qkNormRopeBackward } from './qk-norm-rope-backward.ts';
import { rmsnorm, rmsnormRows } from './rmsnorm.ts';
import { rmsnormBackward, rmsnormBackwardRows } from './rmsnorm-backward.ts';
import { rowList } from './row-list.ts';
import { rowSums } from './row-sums.ts';
import { rowTops } from './row-tops.ts';
import { sample } from './sample.ts';
import { sampleWide } from './sample-wide.ts';
import { swiglu } from './swiglu.ts';
import { swigluBackward } from './swiglu-backward.ts';

export const kernels: readonly QualifiedKernel[] = [
  embed,
  gatherRows,
  matmul,
  matmulLanes,
  matmulTiled,
  matmulSkinny,
  matmulNn,
  matmulNnLanes,
  matmulNnTiled,
  matmulTn,
  matmulTnLanes,
  matmulTnTiled,
  rmsnorm,
  rmsnormRows,
  rmsnormBackward,
  rmsnormBackwardRows,
  qkNormRope,
  qkNormRopeBackward,
  attentionScores,
  attentionScoresLanes,
  attentionSoftmax,
  attentionSoftmaxWide,
  attentionValues,
  attentionValuesLanes,
  attentionSoftmaxBackward,
  attentionKvGradient,
  attentionKvGradientLanes,
  swiglu,
  swigluBackward,
  addInto,
  adamw,
  grpoGradient,
  logprobs,
  logprobsWide,
  logprobsBackward,
  normBlocks,
  normFinish,
  sample,
  rowTops,
  rowSums,
  rowList,
  sampleWide,
  advance,
];
