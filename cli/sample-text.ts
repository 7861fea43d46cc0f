// One conversation turn from a policy: prefill, then token by token until a stop token or the limit.
// Not a rollout: no tool is ever called. Invariant: the token stream is the record; text is derived from it, to show.
import type { Gpu, KernelFamily } from '../src/gpu/device.ts';
import { PlanError } from '../src/lib/errors.ts';
import { type AdapterLayout, type GpuAdapter, loadGpuAdapter } from '../src/model/adapter-gpu.ts';
import { canaryPositions } from '../src/model/canary.ts';
import { canarySettingOf, checkLoadedAdapter } from '../src/model/canary-measure.ts';
import type { SamplingSettings } from '../src/model/head-draw.ts';
import { type Policy, requireText, vocabularyOf } from '../src/model/open-node.ts';
import { createStreamDecoder } from '../src/model/stream-decoder.ts';
import { loadForWork } from '../src/model/warm-up.ts';
import type { GpuModel, LoadOptions } from '../src/model/weights.ts';
import type { TokenSource, TurnRecord } from '../src/rollout/episode.ts';
import { createSampler, type Sampler } from '../src/rollout/sampler.ts';
import { appendSampled, createStream } from '../src/rollout/stream.ts';
import { shadersSha256 } from '../workers/run-identity.ts';

export interface SampleRequest {
  promptIds: readonly number[];
  maxTokens: number;
  settings: SamplingSettings;
  seed: number;
}

/** Per-token lists have one length: the prompt's tokens, then the sampled ones. */
export interface SampleResult {
  ids: number[];
  /** Natural log at the sampling temperature over the whole vocabulary; null on tokens that were not sampled. */
  logprobs: (number | null)[];
  sources: TokenSource[];
  /** What was sampled, without the tokens that end a turn. */
  text: string;
  /** `stop`: the end of the turn; `end`: of the text; `length`: the limit. */
  stop: TurnRecord['stop'];
}

// Rows of a prefill pass: long prompts go in pieces, which changes no bit.
const PREFILL_ROWS = 256;

/** Refuses a sequence that the model has no positions for. */
export function requirePositions(policy: Policy, tokens: number, what: string): void {
  const { maxPositions } = policy.files.architecture;
  if (tokens <= maxPositions) return;
  throw new PlanError(
    'too-long',
    `placing ${what}: found ${tokens} tokens; wanted at most ${maxPositions}, the positions of ` +
      `${policy.files.source.label}. Make it shorter.`,
  );
}

/**
 * Puts the policy's adapter on the device and checks it there against its canary; null for the base model.
 * @throws ModelFileError where the logits are not those that the adapter was sealed with.
 */
export async function loadCheckedAdapter(
  gpu: Gpu,
  policy: Policy,
  family: KernelFamily,
  model: GpuModel,
  onNote: (text: string) => void,
): Promise<GpuAdapter | null> {
  if (!policy.adapter) return null;
  const adapter = loadGpuAdapter(gpu, model.architecture, policy.adapter);
  const setting = canarySettingOf(gpu, family, shadersSha256());
  onNote(await checkLoadedAdapter(gpu, model, policy.adapter, adapter, vocabularyOf(policy), setting));
  return adapter;
}

/** Samples one turn; `onText` gets text as it becomes complete. The same seed gives the same tokens on one device. */
export async function sampleText(
  gpu: Gpu,
  policy: Policy,
  family: KernelFamily,
  request: SampleRequest,
  onText: (text: string) => void,
  onProgress: NonNullable<LoadOptions['onProgress']>,
  onNote: (text: string) => void,
): Promise<SampleResult> {
  const text = requireText(policy);
  const { promptIds, maxTokens, settings } = request;
  const length = promptIds.length + maxTokens;
  requirePositions(policy, length, `a prompt of ${promptIds.length} tokens and ${maxTokens} new ones`);
  const shape = { slots: 1, cacheLength: length, rows: Math.min(promptIds.length, PREFILL_ROWS) };
  const samplerOf = (on: Gpu, of: GpuModel, layout: AdapterLayout | null) =>
    createSampler(on, of, shape, settings, vocabularyOf(policy), layout);
  const options = { positions: Math.max(length, canaryPositions), onProgress };
  const { model } = await loadForWork(gpu, policy.files, family, options, async (stage, empty) => {
    await advance(samplerOf(stage, empty, null), 0, promptIds, request.seed);
  });
  const adapter = await loadCheckedAdapter(gpu, policy, family, model, onNote);
  const sampler = samplerOf(gpu, model, adapter?.layout ?? null);
  sampler.use(adapter);
  const stream = createStream(promptIds);
  const decoder = createStreamDecoder(text, { hiddenIds: [...text.stopIds, ...text.endIds] });
  let shown = '';
  const show = (piece: string) => {
    shown += piece;
    if (piece !== '') onText(piece);
  };
  let stop: SampleResult['stop'] = 'length';
  let fresh: readonly number[] = promptIds;
  for (let count = 0; count < maxTokens; count++) {
    const drawn = await advance(sampler, stream.ids.length - fresh.length, fresh, request.seed);
    appendSampled(stream, drawn.id, drawn.logprob, drawn.truncatedLogprob);
    show(decoder.push(drawn.id));
    if (text.stopIds.includes(drawn.id)) stop = 'stop';
    else if (text.endIds.includes(drawn.id)) stop = 'end';
    if (stop !== 'length') break;
    fresh = [drawn.id];
  }
  show(decoder.end());
  const { ids, logprobs, sources } = stream;
  return { ids, logprobs, sources, text: shown, stop };
}

/** Feeds new tokens from position `start` on and draws the next one. */
async function advance(sampler: Sampler, start: number, tokens: readonly number[], seed: number) {
  const { rows } = sampler.shape;
  let at = 0;
  for (; tokens.length - at > rows; at += rows) {
    await sampler.step([{ slot: 0, start: start + at, tokens: tokens.slice(at, at + rows), key: null }]);
  }
  // A token's key names its own index in the stream.
  const key = { seed, step: 0, group: 0, member: 0, position: start + tokens.length };
  const [drawn] = await sampler.step([{ slot: 0, start: start + at, tokens: tokens.slice(at), key }]);
  return drawn!;
}
