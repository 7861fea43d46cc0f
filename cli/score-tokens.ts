// Teacher-forced log-probs and entropies of a sequence under a policy, by the forward pass and the kernel that
// sampling and training use. Not an evaluation. Invariant: [tokens, vocabulary] never exists; the length of a pass
// changes no bit.
import { allocate, readF32, upload } from '../src/gpu/buffers.ts';
import type { Gpu, KernelFamily } from '../src/gpu/device.ts';
import { createRecorder } from '../src/gpu/recorder.ts';
import { PlanError } from '../src/lib/errors.ts';
import { canaryPositions } from '../src/model/canary.ts';
import { recordForward } from '../src/model/forward.ts';
import { chooseRows, createHead, headChunks, recordLogits } from '../src/model/head.ts';
import { recordLogprobs } from '../src/model/head-draw.ts';
import { loadFamilyWeights } from '../src/model/matrix-load.ts';
import { runsFused } from '../src/model/matrix-weights.ts';
import { type Policy, vocabularyOf } from '../src/model/open-node.ts';
import type { LoadOptions } from '../src/model/weights.ts';
import { createWorkspace } from '../src/model/workspace.ts';
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
  const workspace = createWorkspace(gpu, model.architecture, adapter?.layout ?? null, {
    rows,
    slots: 1,
    cacheLength: inputs.length,
    training: false,
    fused: runsFused(gpu, model),
  });
  const head = createHead(gpu, model.architecture, rows, vocabulary);
  const targets = allocate(gpu, 'score.targets', rows * 4);
  const stats = allocate(gpu, 'score.stats', rows * 16);
  const recorder = createRecorder(gpu);
  const result: ScoreResult = { ids: ids.slice(1), logprobs: [], entropy: [] };
  for (let first = 0; first < inputs.length; first += rows) {
    const tokens = Uint32Array.from(inputs.slice(first, first + rows));
    const count = tokens.length;
    const index = Uint32Array.from({ length: count }, (_, i) => i);
    recordForward(gpu, recorder, model, workspace, adapter, {
      tokens,
      slots: new Uint32Array(count),
      positions: index.map((i) => first + i),
    });
    chooseRows(gpu, recorder, head, index);
    upload(gpu, targets, Uint32Array.from(ids.slice(first + 1, first + 1 + count)));
    for (const chunk of headChunks(head, count)) {
      recordLogits(recorder, model, workspace, head, chunk);
      recordLogprobs(recorder, head, chunk, targets, stats, 1 / temperature);
    }
    recorder.submit();
    // [rows, 4]: max, log-sum-exp, log-prob, entropy.
    const values = await readF32(gpu, stats, count * 4);
    for (let i = 0; i < count; i++) {
      result.logprobs.push(values[i * 4 + 2]!);
      result.entropy.push(values[i * 4 + 3]!);
    }
  }
  return result;
}
