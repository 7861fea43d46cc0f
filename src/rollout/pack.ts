// Episodes to micro-batches: ragged sequences side by side, and which row predicts which trained token.
// Not padding: rows are real tokens only. Invariant: a micro-batch holds members of one group, in order; where a group
// is cut depends on token counts and the row limit alone, so on nothing that varies between reruns.
import { AuditError } from '../lib/errors.ts';

/** One rollout as the trainer needs it. Arrays have one length; the mask is 1 exactly on sampled tokens. */
export interface TrainSequence {
  ids: readonly number[];
  mask: readonly (0 | 1)[];
  /** Sampler's log-probs at the sampling temperature, f32 values; read where the mask is 1. */
  sampled: readonly (number | null)[];
  advantage: number;
  /** The last id is no stop id. */
  truncated: boolean;
}

export interface MicroBatch {
  /** Input ids of each sequence: all but the last, which predicts nothing. */
  inputs: number[][];
  /** [trained tokens]: the row of the pass whose logits predict the token. */
  rows: Uint32Array<ArrayBuffer>;
  /** [trained tokens]: the token's id. */
  targets: Uint32Array<ArrayBuffer>;
  /** [sequences + 1]: sequence s owns trained tokens [starts[s], starts[s + 1]). */
  starts: Uint32Array<ArrayBuffer>;
  /** [trained tokens]. */
  sampled: Float32Array<ArrayBuffer>;
  /** [sequences]. */
  advantages: Float32Array<ArrayBuffer>;
  truncated: boolean[];
}

/** Input rows that a sequence takes. */
const rowsOf = (sequence: TrainSequence) => sequence.ids.length - 1;

function packOne(sequences: readonly TrainSequence[]): MicroBatch {
  const rows: number[] = [];
  const targets: number[] = [];
  const sampled: number[] = [];
  const starts = [0];
  let first = 0;
  for (const { ids, mask, sampled: logprobs } of sequences) {
    for (let t = 1; t < ids.length; t++) {
      if (mask[t] !== 1) continue;
      rows.push(first + t - 1);
      targets.push(ids[t]!);
      sampled.push(logprobs[t] ?? Number.NaN);
    }
    starts.push(rows.length);
    first += ids.length - 1;
  }
  return {
    inputs: sequences.map(({ ids }) => ids.slice(0, -1)),
    rows: Uint32Array.from(rows),
    targets: Uint32Array.from(targets),
    starts: Uint32Array.from(starts),
    sampled: Float32Array.from(sampled),
    advantages: Float32Array.from(sequences, ({ advantage }) => advantage),
    truncated: sequences.map(({ truncated }) => truncated),
  };
}

/**
 * Packs a group's sequences, in order, into micro-batches of at most `maxRows` input rows and `maxSequences` sequences.
 * @throws AuditError `sequence-too-long` for a sequence that fits no micro-batch, `mask-length` for arrays that disagree.
 */
export function packGroup(group: readonly TrainSequence[], maxRows: number, maxSequences: number): MicroBatch[] {
  const batches: TrainSequence[][] = [];
  let open: TrainSequence[] = [];
  let rows = 0;
  for (const [member, sequence] of group.entries()) {
    const { ids, mask, sampled } = sequence;
    if (ids.length !== mask.length || ids.length !== sampled.length) {
      const found = `${ids.length} token ids, ${mask.length} mask entries, ${sampled.length} log-probs`;
      throw new AuditError(
        'mask-length',
        `packing member ${member}: ${found}; they must be equal. Nothing was trained on.`,
      );
    }
    if (rowsOf(sequence) > maxRows) {
      const message = `packing member ${member}: ${rowsOf(sequence)} tokens, a micro-batch takes ${maxRows}; raise the row limit.`;
      throw new AuditError('sequence-too-long', message);
    }
    if (rows + rowsOf(sequence) > maxRows || open.length === maxSequences) {
      batches.push(open);
      open = [];
      rows = 0;
    }
    open.push(sequence);
    rows += rowsOf(sequence);
  }
  if (open.length > 0) batches.push(open);
  return batches.map(packOne);
}
