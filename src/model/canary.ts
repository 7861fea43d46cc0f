// The logit canary of a checkpoint: what a few fixed token sequences give under the base model and under the adapter, as
// measured when it was sealed, compared with what they give after the adapter was loaded.
// Not an evaluation. Invariant: an adapter that was not applied, applied twice, or applied to another base is an error
// that names the file and both values; where the device, family or shaders differ, within `canaryBound` instead of bits.
import { z } from 'zod';
import { canonicalBytes } from '../lib/canonical-json.ts';
import { streamWords } from '../lib/rng.ts';
import { issuesText } from '../lib/zod-issues.ts';
import { fileFault, showValue } from './file-fault.ts';

export const CANARY_FILE = 'canary.json';

const hash = z.string().regex(/^[0-9a-f]{64}$/, 'must be a SHA-256 in lower-case hex');

/** Logits of one sequence under one policy. */
const measured = z.strictObject({
  /** SHA-256 of the f32 logits [positions, vocabulary], little-endian. */
  sha256: hash,
  /** At each position the largest logit, then the logit of the id that follows (of the first id after the last). */
  logits: z.array(z.number()),
});
export type CanaryValues = z.infer<typeof measured>;

const sequence = z
  .strictObject({ ids: z.array(z.int().min(0)).min(1), base: measured, adapter: measured })
  .refine(
    ({ ids, base, adapter }) => [base, adapter].every(({ logits }) => logits.length === 2 * ids.length),
    'must have two logits an id, under base and adapter',
  );

/** What the values were measured with: the same again gives the same bits. */
export const canarySetting = z.strictObject({
  kernelFamily: z.enum(['portable', 'matrix']),
  device: z.record(z.string(), z.string()),
  /** SHA-256 of the canonical JSON of the digests of all shaders. */
  shadersSha256: hash,
});
export type CanarySetting = z.infer<typeof canarySetting>;

const canarySchema = canarySetting.extend({
  schema: z.literal('shaderl.canary/1'),
  /** Of adapter_model.safetensors. */
  adapterSha256: hash,
  vocabulary: z.int().min(1),
  sequences: z.array(sequence).min(1),
});
export type Canary = z.infer<typeof canarySchema>;

/** An adapter as it was read, as far as the canary is concerned. */
export interface CanarySubject {
  /** The folder, for messages. */
  label: string;
  canary: Canary | null;
  /** Whether the folder is a sealed checkpoint, which may be older than canaries are. */
  sealed: boolean;
  /** Whether every lora_B is zero. */
  zero: boolean;
}

const sequenceCount = 3;
const sequenceLength = 8;
/** Positions that a model must be loaded with, at least, to measure the canary. */
export const canaryPositions = sequenceLength;
/** Stream of the canary's ids; any fixed number that no other generator uses. */
const canaryStream = 0x43616e61;

/** The fixed sequences of a vocabulary: seeded ids, the same in every run. */
export function canarySequences(vocabulary: number): number[][] {
  return Array.from({ length: sequenceCount }, (_, s) =>
    Array.from(
      { length: sequenceLength },
      (_, i) => streamWords(0, canaryStream, s * sequenceLength + i)[0] % vocabulary,
    ),
  );
}

/** Canonical JSON, as it is sealed. */
export const encodeCanary = (canary: Canary): Uint8Array => canonicalBytes(canary);

/** Parses canary.json. @throws ModelFileError `bad-canary` naming what does not fit. */
export function parseCanary(bytes: Uint8Array, path: string): Canary {
  let value: unknown = null;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    // Reported below: null is no canary.
  }
  const parsed = canarySchema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw fileFault('bad-canary', {
    doing: `reading ${path}`,
    found: issuesText(parsed.error, value),
    wanted: 'the canary that was written with the checkpoint',
    remedy: 'Restore the file from the sealed checkpoint.',
  });
}

/** Largest difference of a logit between two devices, as a share of the largest recorded one (at least 1). */
export const canaryBound = { portable: 1e-3, matrix: 3e-2 } as const;

/** Whether equal bits are promised between the setting that a canary was measured with and this one. */
export function sameSetting(a: CanarySetting, b: CanarySetting): boolean {
  const text = ({ kernelFamily, device, shadersSha256 }: CanarySetting) =>
    new TextDecoder().decode(canonicalBytes({ kernelFamily, device, shadersSha256 }));
  return text(a) === text(b);
}

const flat = (values: readonly CanaryValues[]) => values.flatMap(({ logits }) => logits);
const distance = (a: readonly number[], b: readonly number[]) =>
  a.reduce((most, value, i) => Math.max(most, Math.abs(value - b[i]!)), 0);
const equal = (a: readonly CanaryValues[], b: readonly CanaryValues[]) =>
  a.every(({ sha256 }, i) => sha256 === b[i]!.sha256);

/** The first place where two measurements differ by more than `bound`, or only in their digest. */
function firstDifference(canary: Canary, found: readonly CanaryValues[], which: 'base' | 'adapter', bound: number) {
  for (const [s, own] of canary.sequences.entries()) {
    const wanted = own[which];
    const at = wanted.logits.findIndex((value, i) => !(Math.abs(value - found[s]!.logits[i]!) <= bound));
    if (at >= 0) {
      const what = at % 2 === 0 ? 'largest logit' : 'logit of the next id';
      const place = `${what} at position ${Math.floor(at / 2)} of sequence ${s}`;
      return { place, found: `${found[s]!.logits[at]}`, wanted: `${wanted.logits[at]}` };
    }
    if (bound === 0 && wanted.sha256 !== found[s]!.sha256) {
      const place = `logits of sequence ${s}`;
      return { place, found: `SHA-256 ${found[s]!.sha256}`, wanted: wanted.sha256 };
    }
  }
  return null;
}

/** What the found effect looks like, in words: a multiple of the recorded one, by least squares, or something else. */
function likeness(base: readonly number[], recorded: readonly number[], found: readonly number[]): string {
  let [own, other, product] = [0, 0, 0];
  for (const [i, value] of base.entries()) {
    const [wanted, got] = [recorded[i]! - value, found[i]! - value];
    own += wanted * wanted;
    other += got * got;
    product += wanted * got;
  }
  // The cosine of the two effects: an effect is not linear in the adapter, so a multiple is never exact.
  const factor = product / own;
  if (product / Math.sqrt(own * other) > 0.8 && factor > 0) {
    const times = factor.toPrecision(2);
    return `the adapter's effect is about ${times} times the recorded one: applied twice, or with another scale`;
  }
  return 'this is the effect of another adapter';
}

/**
 * Compares the logits measured after loading with the recorded ones; both by sequence, in order. `path` names
 * canary.json. Returns a sentence on what was shown. @throws ModelFileError `other-base`, `adapter-not-applied`,
 * `adapter-mismatch`.
 */
export function compareCanary(
  canary: Canary,
  path: string,
  setting: CanarySetting,
  found: { base: readonly CanaryValues[]; adapter: readonly CanaryValues[] },
): string {
  const recorded = {
    base: canary.sequences.map(({ base }) => base),
    adapter: canary.sequences.map(({ adapter }) => adapter),
  };
  const same = sameSetting(canary, setting);
  const largest = Math.max(1, ...flat(recorded.base).map(Math.abs));
  const bound = same
    ? 0
    : canaryBound[canary.kernelFamily === setting.kernelFamily ? canary.kernelFamily : 'matrix'] * largest;
  const doing = `checking the loaded adapter against ${path}`;
  const within = bound === 0 ? ', bit for bit' : `, within ${bound.toPrecision(3)} on this other device`;
  const base = firstDifference(canary, found.base, 'base', bound);
  if (base) {
    throw fileFault('other-base', {
      doing,
      found: `${base.found} as the ${base.place} of the base model without the adapter`,
      wanted: `${base.wanted}${within}`,
      remedy: 'The adapter was trained on another base model or another state of it; give --model that one.',
    });
  }
  const hasEffect = !equal(recorded.base, recorded.adapter);
  const [before, after] = [flat(recorded.base), flat(recorded.adapter)];
  if (hasEffect && equal(found.base, found.adapter)) {
    throw fileFault('adapter-not-applied', {
      doing,
      found: 'the same logits with the adapter as without it',
      wanted: `logits that differ by up to ${distance(before, after).toPrecision(3)}, as recorded`,
      remedy: 'The adapter has no effect as it was loaded: restore its files from the checkpoint, or report a fault.',
    });
  }
  const adapter = firstDifference(canary, found.adapter, 'adapter', bound);
  if (adapter) {
    throw fileFault('adapter-mismatch', {
      doing,
      found: `${adapter.found} as the ${adapter.place} (${likeness(before, after, flat(found.adapter))})`,
      wanted: `${adapter.wanted}${within}`,
      remedy: 'Load the adapter once, with its own adapter_config.json, on the base model that it was trained on.',
    });
  }
  const effect = `adapter and base differ by up to ${distance(before, after).toPrecision(3)} in a logit`;
  if (same) return `canary: logits of base and adapter equal ${path} bit for bit; ${effect}`;
  const weak = hasEffect && distance(before, after) <= 2 * bound;
  const limit = weak ? '; that is too little to tell another scale on this device' : '';
  return `canary: logits of base and adapter within ${bound.toPrecision(3)} of ${path}, made elsewhere; ${effect}${limit}`;
}

/** For an adapter without a canary: it must change some logit, unless its B is all zero. Returns a sentence. */
export function compareWithoutCanary(
  label: string,
  sealed: boolean,
  zero: boolean,
  found: { base: readonly CanaryValues[]; adapter: readonly CanaryValues[] },
): string {
  const why = sealed ? `${label} was sealed before canaries were` : `${label} is no sealed checkpoint`;
  const [base, adapter] = [flat(found.base), flat(found.adapter)];
  const effect = distance(base, adapter).toPrecision(3);
  if (!equal(found.base, found.adapter)) return `canary: none (${why}); the adapter changes a logit by up to ${effect}`;
  if (zero) return `canary: none (${why}); the adapter changes nothing, as every lora_B is zero`;
  throw fileFault('adapter-not-applied', {
    doing: `checking the loaded adapter ${label} on ${found.base.length} fixed token sequences`,
    found: `the same logits with the adapter as without it, to the bit (${showValue(base[0])} first)`,
    wanted: 'a difference, as its lora_B is not zero',
    remedy: 'The adapter has no effect as it was loaded; check its scale (lora_alpha, r) and its base model.',
  });
}
