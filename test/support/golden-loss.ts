// The golden loss batch (grpo-losses) and TRL's recorded batches as the loss and model code takes them.
// Not a trainer: shapes only. Invariant: prompt padding is stripped by the recorded mask, never by token value.

import type { LossBatch, LossOptions } from '../../src/grpo/losses.ts';
import type { LossKind } from '../../src/kernels/loss-terms.ts';
import { lossDefaults } from '../../src/kernels/loss-terms.ts';
import { type GoldenFile, goldenData, readGolden } from './golden.ts';

export interface GoldenLoss {
  file: GoldenFile;
  batch: LossBatch;
  promptLength: number;
  temperature: number;
  /** [4][40] */
  sequences: number[][];
  options(kind: LossKind): LossOptions;
}

/** grpo-losses.safetensors. The golden's dppo losses have no KL, all others do. */
export function goldenLoss(): GoldenLoss {
  const file = readGolden('grpo-losses.safetensors');
  const number = (name: string) => file.metadata[name] as number;
  const completion = goldenData(file, 'completion_mask');
  const tool = goldenData(file, 'tool_mask');
  const ids = goldenData(file, 'input_ids');
  const batch: LossBatch = {
    rowStarts: [0, 28, 56, 84, 112],
    mask: completion.map((bit, i) => bit * tool[i]!),
    truncated: null,
    logprobs: goldenData(file, 'policy_logps'),
    old: goldenData(file, 'old_logps'),
    sampled: goldenData(file, 'old_logps'),
    reference: goldenData(file, 'ref_logps'),
    advantages: goldenData(file, 'advantages'),
    entropy: goldenData(file, 'entropy'),
  };
  const options = (kind: LossKind): LossOptions => ({
    ...lossDefaults,
    kind,
    epsilonLow: number('epsilon_low'),
    epsilonHigh: number('epsilon_high'),
    cispoMaxRatio: number('cispo_max_ratio'),
    dppoDelta: number(kind === 'dppo_kl' ? 'dppo_kl_delta' : 'dppo_tv_delta'),
    beta: kind.startsWith('dppo') ? 0 : number('beta'),
    maskTruncated: false,
    maxCompletionLength: number('max_completion_length'),
  });
  return {
    file,
    batch,
    promptLength: number('prompt_len'),
    temperature: number('temperature'),
    sequences: [0, 1, 2, 3].map((r) => [...ids.slice(r * 40, (r + 1) * 40)]),
    options,
  };
}

export interface TrlStep {
  /** Prompt and completion of each row, padding stripped. */
  sequences: number[][];
  promptLengths: number[];
  completions: number[][];
  advantages: Float64Array;
  /** Flat over the rows' completions, padding stripped; null where TRL stored none. */
  old: number[] | null;
  reference: number[];
  logprobs: number[];
  loss: number;
  log: { loss: number; grad_norm: number; learning_rate: number; kl: number; entropy: number };
}

/** Step k (1-based) of a recorded TRL run. */
export function trlStep(file: GoldenFile, k: number): TrlStep {
  const rows = file.tensors.get(`step${k}.prompt_ids`)!.shape[0]!;
  const kept = (ids: string, mask: string) => {
    const values = goldenData(file, `step${k}.${ids}`);
    const bits = goldenData(file, `step${k}.${mask}`);
    const width = values.length / rows;
    return Array.from({ length: rows }, (_, r) =>
      [...values.slice(r * width, (r + 1) * width)].filter((_, i) => bits[r * width + i] === 1),
    );
  };
  const prompts = kept('prompt_ids', 'prompt_mask');
  const completions = kept('completion_ids', 'completion_mask');
  const tokens = (name: string) => kept(name, 'completion_mask').flat();
  const logs = file.metadata['log'] as TrlStep['log'][];
  return {
    sequences: prompts.map((prompt, r) => [...prompt, ...completions[r]!]),
    promptLengths: prompts.map((prompt) => prompt.length),
    completions,
    advantages: goldenData(file, `step${k}.advantages`),
    old: file.tensors.has(`step${k}.old_per_token_logps`) ? tokens('old_per_token_logps') : null,
    reference: tokens('ref_per_token_logps'),
    logprobs: tokens('policy_logps'),
    loss: goldenData(file, `step${k}.loss`)[0]!,
    log: logs[k - 1]!,
  };
}
