// Teacher-forced log-probs and entropies of a sequence under a policy, by the forward pass and the kernel that
// sampling and training use (src/model/scorer.ts). Not an evaluation. Invariant: ids that the vocabulary lacks and
// sequences past the model's positions are refused.
import type { Gpu, KernelFamily } from '../src/gpu/device.ts';
import { PlanError } from '../src/lib/errors.ts';
import { canaryPositions } from '../src/model/canary.ts';
import { sequencesBatch } from '../src/model/forward.ts';
import { loadFamilyWeights } from '../src/model/matrix-load.ts';
import { type Policy, vocabularyOf } from '../src/model/open-node.ts';
import { createScorer } from '../src/model/scorer.ts';
import type { LoadOptions } from '../src/model/weights.ts';
import { loadCheckedAdapter, requirePositions } from './sample-text.ts';

/** One entry for each predicted token: all tokens of the sequence but the first. */
export interface ScoreResult {
  ids: number[];
  /** Natural log at the temperature, over the whole vocabulary. */
  logprobs: number[];
  /** Nats, of the distribution that the token was predicted with. */
  entropy: number[];
}

const PASS_ROWS = 256;

/** Refuses ids that the vocabulary does not have. */
function requireIds(policy: Policy, ids: readonly number[]): void {
  const vocabulary = vocabularyOf(policy);
  const at = ids.findIndex((id) => id >= vocabulary);
  if (at < 0) return;
  throw new PlanError(
    'no-such-token',
    `scoring with ${policy.files.source.label}: found token ${ids[at]} at index ${at}; ` +
      `wanted ids below ${vocabulary}. Check that the ids were made with the tokenizer of this model.`,
  );
}

/** Scores ids (two or more) at a temperature above 0. Throws PlanError for ids or a length that the model lacks. */
export async function scoreTokens(
  gpu: Gpu,
  policy: Policy,
  family: KernelFamily,
  ids: readonly number[],
  temperature: number,
  onProgress: NonNullable<LoadOptions['onProgress']>,
  onNote: (text: string) => void,
): Promise<ScoreResult> {
  const vocabulary = vocabularyOf(policy);
  requireIds(policy, ids);
  // The last token predicts nothing that is asked for.
  const inputs = ids.slice(0, -1);
  requirePositions(policy, inputs.length, 'the sequence to score');
  const { model } = await loadFamilyWeights(gpu, policy.files, family, {
    positions: Math.max(inputs.length, canaryPositions),
    onProgress,
  });
  const adapter = await loadCheckedAdapter(gpu, policy, family, model, onNote);
  const rows = Math.min(inputs.length, PASS_ROWS);
  const shape = { rows, slots: 1, cacheLength: inputs.length, vocabulary };
  const scorer = createScorer(gpu, model, adapter?.layout ?? null, shape, temperature);
  const all = Array.from(inputs, (_, i) => i);
  const targets = Uint32Array.from(ids.slice(1));
  const { logprobs, entropies } = await scorer.score(adapter, sequencesBatch([inputs]), all, targets);
  return { ids: ids.slice(1), logprobs: [...logprobs], entropy: [...entropies] };
}
