// The policy losses of a batch of ragged rows in f64: value, dLoss/dlogprob and tallies; the GPU loss is held to them.
// Not a trainer: it sees log-probs, not models. Normalisers follow TRL 1.13.0 over the whole accumulation window.
// Invariant: one effective mask (sampled, not truncated where those are excluded) feeds numerator, normaliser, KL and
// metrics; what a masked token holds is never read.

import { type LossKind, type LossScalars, type TokenTerm, tokenTerm } from '../kernels/loss-terms.ts';
import { AuditError } from '../lib/errors.ts';
import { emptyTallies, type LossTallies, mergeTallies, rowTallies } from './loss-tallies.ts';

export interface LossOptions extends LossScalars {
  /** Exclude rows whose completion was cut off. */
  maskTruncated: boolean;
  /** dr_grpo divides by rows * this many tokens. */
  maxCompletionLength: number;
}

/** Rows of one group or micro-batch. Token arrays are flat: row r owns [rowStarts[r], rowStarts[r + 1]). */
export interface LossBatch {
  /** [rows + 1] */
  rowStarts: ArrayLike<number>;
  /** 1 on sampled tokens, 0 on tool, template and padding tokens. */
  mask: ArrayLike<number>;
  /** [rows]: the last id is no stop id. Needed where truncated rows are excluded. */
  truncated: readonly boolean[] | null;
  /** Current log-probs at the sampling temperature, nats. */
  logprobs: ArrayLike<number>;
  /** Log-probs under the old policy; null = the current ones, detached (the first use of a batch). */
  old: ArrayLike<number> | null;
  /** Recorded by the sampler: the anchor of dppo, not read otherwise. */
  sampled: ArrayLike<number> | null;
  /** Under the reference policy; needed where beta != 0. */
  reference: ArrayLike<number> | null;
  /** [rows] */
  advantages: ArrayLike<number>;
  /** Entropy per token for the metrics, or null. */
  entropy: ArrayLike<number> | null;
}

/** Totals of an accumulation window (one optimizer step), which the normalisers need. */
export interface LossWindow {
  /** All rows, fully masked ones included. */
  rows: number;
  /** Tokens of the effective mask. */
  tokens: number;
  microBatches: number;
  /** bnpo: tokens of the micro-batch that this batch is part of; its own tokens where it is a whole one. */
  microBatchTokens?: number;
}

export interface LossResult {
  /** This batch's share of the step's loss: the shares of a window add up to it. */
  loss: number;
  /** dLoss/dlogprob, one per token of the batch, 0 where masked. */
  gradient: Float64Array;
  tallies: LossTallies;
}

type MaskedRows = Pick<LossBatch, 'rowStarts' | 'mask' | 'truncated'>;

/** The one mask: 1 on sampled tokens of rows that are not excluded. Throws AuditError where the arrays disagree. */
export function effectiveMask(batch: MaskedRows, options: Pick<LossOptions, 'maskTruncated'>): Uint8Array {
  const rows = batch.rowStarts.length - 1;
  const tokens = batch.rowStarts[rows] ?? -1;
  if (batch.mask.length !== tokens)
    refuse('loss-length', `${batch.mask.length} mask entries for ${tokens} tokens`, 'they must be equal in number');
  if (options.maskTruncated && batch.truncated?.length !== rows)
    refuse(
      'loss-truncated',
      `${batch.truncated?.length ?? 'no'} truncation flags for ${rows} rows`,
      'wanted one a row',
    );
  const effective = new Uint8Array(tokens);
  for (let r = 0; r < rows; r++) {
    if (options.maskTruncated && batch.truncated![r]) continue;
    for (let i = batch.rowStarts[r]!; i < batch.rowStarts[r + 1]!; i++) {
      if (batch.mask[i] !== 0 && batch.mask[i] !== 1)
        refuse('loss-mask', `mask entry ${batch.mask[i]} at token ${i}`, 'a mask holds 0 and 1');
      effective[i] = batch.mask[i]!;
    }
  }
  return effective;
}

/** The totals of all micro-batches of an optimizer step. */
export function lossWindow(batches: readonly MaskedRows[], options: Pick<LossOptions, 'maskTruncated'>): LossWindow {
  const window: LossWindow = { rows: 0, tokens: 0, microBatches: batches.length };
  for (const batch of batches) {
    window.rows += batch.rowStarts.length - 1;
    for (const bit of effectiveMask(batch, options)) window.tokens += bit;
  }
  return window;
}

/**
 * What each unmasked token of row r is multiplied by, [rows]; n_r: the row's effective tokens.
 * grpo, gspo: 1 / (n_r * window rows); bnpo: 1 / (micro-batch tokens * micro-batches); dr_grpo:
 * 1 / (window rows * maxCompletionLength); dapo, cispo, dppo: 1 / window tokens. Counts are clamped to at least 1.
 * With micro-batches of equal row count these are TRL's means over micro-batches.
 */
export function rowScales(
  batch: MaskedRows,
  options: Pick<LossOptions, 'kind' | 'maskTruncated' | 'maxCompletionLength'>,
  window: LossWindow,
): Float64Array {
  const mask = effectiveMask(batch, options);
  const rows = batch.rowStarts.length - 1;
  const counts = new Float64Array(rows);
  for (let r = 0; r < rows; r++)
    for (let i = batch.rowStarts[r]!; i < batch.rowStarts[r + 1]!; i++) counts[r]! += mask[i]!;
  const batchTokens = counts.reduce((sum, count) => sum + count, 0);
  if (!(window.rows >= rows && window.tokens >= batchTokens && window.microBatches >= 1))
    refuse(
      'loss-window',
      `a window of ${window.rows} rows, ${window.tokens} tokens, ${window.microBatches} micro-batches for a batch of ` +
        `${rows} rows and ${batchTokens} tokens`,
      'the window holds its batches',
    );
  if (options.kind === 'grpo' || options.kind === 'gspo')
    return counts.map((count) => 1 / (Math.max(count, 1) * window.rows));
  let divisor = window.tokens; // dapo, cispo, dppo
  if (options.kind === 'bnpo') divisor = Math.max(window.microBatchTokens ?? batchTokens, 1) * window.microBatches;
  if (options.kind === 'dr_grpo') divisor = window.rows * options.maxCompletionLength;
  return counts.fill(1 / Math.max(divisor, 1));
}

/** The log-probs that the ratio is taken against. Throws AuditError where dppo has no sampler log-probs. */
export function anchorLogprobs(batch: LossBatch, kind: LossKind): ArrayLike<number> {
  if (kind !== 'dppo_tv' && kind !== 'dppo_kl') return batch.old ?? batch.logprobs;
  return batch.sampled ?? refuse('loss-anchor', `no sampler log-probs for ${kind}`, 'dppo is anchored on them');
}

/**
 * Loss, gradient and tallies of a batch within its window. Throws AuditError where arrays disagree in length or an
 * unmasked token has a log-prob, advantage or reference that is not finite.
 */
export function policyLoss(batch: LossBatch, options: LossOptions, window: LossWindow): LossResult {
  const mask = effectiveMask(batch, options);
  const scales = rowScales(batch, options, window);
  const anchor = anchorLogprobs(batch, options.kind);
  checkBatch(batch, anchor, options, mask);
  const gradient = new Float64Array(mask.length);
  let loss = 0;
  let tallies = emptyTallies();
  for (let r = 0; r < scales.length; r++) {
    const tokens: number[] = [];
    for (let i = batch.rowStarts[r]!; i < batch.rowStarts[r + 1]!; i++) if (mask[i]) tokens.push(i);
    const logRatio = (i: number) => batch.logprobs[i]! - anchor[i]!;
    const rowMean = tokens.reduce((sum, i) => sum + logRatio(i), 0) / Math.max(tokens.length, 1);
    const terms: TokenTerm[] = tokens.map((i) =>
      tokenTerm(options, {
        logprob: batch.logprobs[i]!,
        anchor: anchor[i]!,
        reference: batch.reference?.[i] ?? 0,
        advantage: batch.advantages[r]!,
        logWeight: options.kind === 'gspo' ? rowMean : logRatio(i),
      }),
    );
    const scale = scales[r]!;
    // The row's log-ratio of gspo is a mean, so each of its tokens gets 1/n of what all of them send through it.
    const shared = terms.reduce((sum, term) => sum + term.dLogWeight, 0) / Math.max(terms.length, 1);
    terms.forEach((term, j) => {
      loss += scale * term.loss;
      gradient[tokens[j]!] = scale * (term.dLogprob + (options.kind === 'gspo' ? shared : term.dLogWeight));
    });
    const entropies = batch.entropy ? tokens.map((i) => batch.entropy![i]!) : null;
    tallies = mergeTallies(tallies, rowTallies(options.kind, terms, entropies));
  }
  return { loss, gradient, tallies };
}

function refuse(code: string, found: string, wanted: string): never {
  throw new AuditError(
    code,
    `computing the loss: ${found}; ${wanted}. Nothing was trained on; re-make the batch from its episodes.`,
  );
}

function checkBatch(batch: LossBatch, anchor: ArrayLike<number>, options: LossOptions, mask: Uint8Array): void {
  const rows = batch.rowStarts.length - 1;
  if (options.beta !== 0 && !batch.reference)
    refuse('loss-reference', `beta ${options.beta} without reference log-probs`, 'a KL needs them');
  if (batch.advantages.length !== rows)
    refuse('loss-length', `${batch.advantages.length} advantages for ${rows} rows`, 'wanted one a row');
  const arrays = { logprobs: batch.logprobs, anchor, reference: batch.reference, entropy: batch.entropy };
  for (const [name, values] of Object.entries(arrays))
    if (values && values.length !== mask.length)
      refuse(
        'loss-length',
        `${values.length} values of ${name} for ${mask.length} tokens`,
        'they must be equal in number',
      );
  for (let r = 0; r < rows; r++) {
    for (let i = batch.rowStarts[r]!; i < batch.rowStarts[r + 1]!; i++) {
      if (!mask[i]) continue;
      const values = [batch.logprobs[i], anchor[i], batch.advantages[r], options.beta === 0 ? 0 : batch.reference![i]];
      if (!values.every(Number.isFinite))
        refuse(
          'loss-value',
          `log-prob ${values[0]}, anchor ${values[1]}, advantage ${values[2]}, reference ${values[3]} at token ${i} ` +
            `of row ${r}`,
          'an unmasked token has finite ones',
        );
    }
  }
}
