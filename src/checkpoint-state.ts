// What a checkpoint knows beside the tensors: where the run stands and what it stands on.
// Not the seal: checkpoint.ts writes and verifies the folder.
// Invariant: the state, the two tensor files and the plan are all that a resumed run reads; nothing is seeded after it.
import { z } from 'zod';
import { sha256Text } from './journal-events.ts';
import { CheckpointError } from './lib/errors.ts';
import { RNG_DEFINITION } from './lib/rng.ts';

const u32 = z.int().min(0).max(0xffffffff);

/** What the adapter belongs to. A change of any of these is another model, and is refused by name. */
export const checkpointIdentity = z.strictObject({
  /** Tree hash of the base checkpoint's files. */
  baseModel: sha256Text,
  tokenizer: sha256Text,
  chatTemplate: sha256Text,
  generationConfig: sha256Text,
  /** Name and version of the environment. */
  environment: z.string(),
  kernelFamily: z.enum(['portable', 'matrix']),
  /** Adapter name, vendor, driver and the like, as the device reports them. */
  device: z.record(z.string(), z.string()),
});
export type CheckpointIdentity = z.infer<typeof checkpointIdentity>;
export type IdentityItem = keyof CheckpointIdentity;

export const checkpointState = z.strictObject({
  schema: z.literal('shaderl.checkpoint/1'),
  runId: z.string().min(1),
  planSha256: sha256Text,
  /** Completed optimizer steps; also AdamW's t. */
  step: z.int().min(0),
  schedule: z.strictObject({ kind: z.enum(['linear', 'constant']), position: z.int().min(0), total: z.int().min(1) }),
  /** f32 bits, 8 hex digits, of the learning rate that the next step will use. */
  learningRateBits: z.string().regex(/^[0-9a-f]{8}$/, 'must be 8 lower-case hex digits (the bits of an f32)'),
  /** The generator has no hidden state: its definition, the seed and the counters of the next draw are all of it. */
  rng: z.strictObject({
    definition: z.literal(RNG_DEFINITION),
    seed: u32,
    counters: z.record(z.string(), z.int().min(0)),
  }),
  /** The next training prompt: item `index` of the order of `epoch`. */
  cursor: z.strictObject({ epoch: z.int().min(0), index: z.int().min(0) }),
  identity: checkpointIdentity,
  /** The journal up to, not including, the event that records this checkpoint. */
  journal: z.strictObject({ lines: z.int().min(0), sha256: sha256Text }),
});
export type CheckpointState = z.infer<typeof checkpointState>;

/** The bits of a number rounded to f32, as 8 hex digits. */
export function f32BitsHex(value: number): string {
  const view = new DataView(new ArrayBuffer(4));
  view.setFloat32(0, value);
  return view.getUint32(0).toString(16).padStart(8, '0');
}

/**
 * The state without what differs between equal runs: the run's name and the journal's hash (its lines carry times).
 * Two equal runs have the same canonical JSON of it at every step.
 */
export function comparableState(state: CheckpointState): Omit<CheckpointState, 'runId' | 'journal'> {
  const { runId: _runId, journal: _journal, ...rest } = state;
  return rest;
}

/** A difference of identity that the user accepted by name; it goes into the journal and the report. */
export interface IdentityOverride {
  item: IdentityItem;
  sealed: string;
  present: string;
}

function identityText(value: string | Record<string, string>): string {
  if (typeof value === 'string') return value;
  const pairs = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return pairs.map(([key, member]) => `${key}=${member}`).join(', ');
}

/**
 * Compares what a checkpoint was trained on with what is there now. Throws CheckpointError `identity-mismatch` naming
 * each item that differs and is not in `accepted`; returns the accepted differences, to be recorded.
 */
export function requireIdentity(
  label: string,
  sealed: CheckpointIdentity,
  present: CheckpointIdentity,
  accepted: readonly IdentityItem[] = [],
): IdentityOverride[] {
  const items = Object.keys(checkpointIdentity.shape) as IdentityItem[];
  const differences = items
    .map((item) => ({ item, sealed: identityText(sealed[item]), present: identityText(present[item]) }))
    .filter((difference) => difference.sealed !== difference.present);
  const refused = differences.filter(({ item }) => !accepted.includes(item));
  if (refused.length === 0) return differences;
  const found = refused.map(({ item, sealed: s, present: p }) => `${item} is ${p}, sealed with ${s}`).join('; ');
  throw new CheckpointError(
    'identity-mismatch',
    `opening ${label}: found that ${found}; wanted the same. Restore what it was trained on, or accept ` +
      `${refused.map(({ item }) => item).join(', ')} explicitly, which the report will show.`,
  );
}
