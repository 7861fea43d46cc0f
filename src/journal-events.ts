// What a journal can say: one zod type per kind of event, and which parts of it are timings.
// Not the chain: journal.ts writes and verifies the lines.
// Invariant: every number is finite, every digest is 64 hex digits, and an unknown field is an error.
import { z } from 'zod';

export const sha256Text = z.string().regex(/^[0-9a-f]{64}$/, 'must be 64 lower-case hex digits (a SHA-256)');

/** A file relative to the run's folder, and the hash of its bytes. */
export const fileReference = z.strictObject({ file: z.string(), sha256: sha256Text });

const names = z.record(z.string(), z.string());
const seconds = z.record(z.string(), z.number().min(0));

const runStart = z.strictObject({
  runId: z.string(),
  planSha256: sha256Text,
  /** Adapter name, vendor, driver and the like, as the device reports them. */
  device: names,
  kernelFamily: z.enum(['portable', 'matrix']),
  /** Program or package -> version. */
  versions: names,
  /** Shader file -> SHA-256. */
  shaderDigests: z.record(z.string(), sha256Text),
});

const step = z.strictObject({
  /** 1-based, the optimizer step that was just completed. */
  step: z.int().min(1),
  /** TRL's names. */
  metrics: z.record(z.string(), z.number()),
  adapterSha256: sha256Text,
  optimizerSha256: sha256Text,
  /** `evidenceSha256`: of the canonical JSON of the episodes `withoutTimings`, equal between equal runs. */
  rollouts: fileReference.extend({ evidenceSha256: sha256Text }),
  seconds,
});

const checkpoint = z.strictObject({ step: z.int().min(0), folder: z.string(), sealSha256: sha256Text });

const evaluation = z.strictObject({
  /** Optimizer step of the policy; 0 is the start. */
  step: z.int().min(0),
  /** What the evaluation is for: `before`, `after`, `dev`, ... */
  name: z.string(),
  suite: z.string(),
  /** SHA-256 of the adapter that was evaluated, or `base`. */
  policy: z.union([sha256Text, z.literal('base')]),
  items: z.int().min(0),
  metrics: z.record(z.string(), z.number()),
  result: fileReference,
  /** The episodes behind it; `evidenceSha256` as in a step. */
  rollouts: fileReference.extend({ evidenceSha256: sha256Text }).optional(),
  seconds: z.number().min(0),
});

const audit = z.strictObject({ step: z.int().min(0), rollouts: z.int().min(0), findings: z.array(z.string()) });

const moved = z.strictObject({ from: z.string(), to: z.string(), reason: z.string() });
export type MovedAside = z.infer<typeof moved>;

const resume = z.strictObject({
  /** Last completed step of the checkpoint that the run goes on from; 0 is a start from nothing. */
  fromStep: z.int().min(0),
  folder: z.string().nullable(),
  sealSha256: sha256Text.nullable(),
  /** Folders that were passed over, and why. */
  skipped: z.array(z.strictObject({ folder: z.string(), reason: z.string() })),
  /** Differences of identity that the user accepted by name. */
  overrides: z.array(z.strictObject({ item: z.string(), sealed: z.string(), present: z.string() })),
  device: names,
  versions: names,
});

const runEnd = z.strictObject({
  status: z.enum(['finished', 'failed', 'interrupted']),
  step: z.int().min(0),
  adapterSha256: sha256Text.nullable(),
  /** Why it failed or was interrupted; empty when finished. */
  reason: z.string(),
  seconds: z.number().min(0),
});

/** The stages of a preregistered experiment, in order. */
export const STAGES = [
  'preflight',
  'qualification',
  'training',
  'dev',
  'selection',
  'final',
  'retention',
  'report',
] as const;
export type Stage = (typeof STAGES)[number];
const stage = z.enum(STAGES);
/** 1-based: one process at a time works on an experiment, and each is an attempt. */
const attempt = z.int().min(1);

const attemptStart = z.strictObject({
  attempt,
  host: z.string(),
  pid: z.int(),
  resume: z.boolean(),
  /** Of the budget, charged to the attempts before. */
  chargedSeconds: z.number().min(0),
  versions: names,
});

const attemptEnd = z.strictObject({
  attempt,
  /** `qualified`: asked to stop after the qualification. */
  status: z.enum(['finished', 'qualified', 'interrupted', 'failed', 'budget-spent']),
  /** Empty when finished. */
  reason: z.string(),
  seconds: z.number().min(0),
});

const stageEnd = z.strictObject({
  attempt,
  stage,
  /** What the stage leaves behind; verified by every later attempt. */
  files: z.array(fileReference),
  /** What it found, equal between equal experiments. */
  facts: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()])),
});

/** Everything that a journal line can carry. */
export const journalEvent = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('run-start'), data: runStart }),
  z.strictObject({ kind: z.literal('step'), data: step }),
  z.strictObject({ kind: z.literal('checkpoint'), data: checkpoint }),
  z.strictObject({ kind: z.literal('evaluation'), data: evaluation }),
  z.strictObject({ kind: z.literal('audit'), data: audit }),
  z.strictObject({ kind: z.literal('resume'), data: resume }),
  z.strictObject({ kind: z.literal('recovery'), data: z.strictObject({ moved: z.array(moved) }) }),
  z.strictObject({ kind: z.literal('run-end'), data: runEnd }),
  z.strictObject({ kind: z.literal('experiment-start'), data: z.strictObject({ planSha256: sha256Text }) }),
  z.strictObject({ kind: z.literal('attempt-start'), data: attemptStart }),
  z.strictObject({
    kind: z.literal('heartbeat'),
    data: z.strictObject({ attempt, stage: stage.nullable(), seconds: z.number().min(0) }),
  }),
  z.strictObject({ kind: z.literal('stage-start'), data: z.strictObject({ attempt, stage }) }),
  z.strictObject({ kind: z.literal('stage-end'), data: stageEnd }),
  z.strictObject({ kind: z.literal('attempt-end'), data: attemptEnd }),
]);
export type JournalEvent = z.infer<typeof journalEvent>;

/** The envelope of a line; `sha256` covers the canonical JSON of all the other members, `prev` chains the lines. */
export const journalEnvelope = z.strictObject({
  index: z.int().min(0),
  prev: sha256Text,
  /** When it was written, as ISO 8601 in UTC. */
  time: z.iso.datetime(),
  kind: z.string(),
  data: z.unknown(),
  sha256: sha256Text,
});

/** A verified line of a journal. */
export type JournalEntry = JournalEvent & { index: number; prev: string; time: string; sha256: string };

/** Metric of a step: tokens that were drawn and are in no rollout (collect.ts has why). Absent in older journals. */
export const DROPPED_TOKENS = 'completions/dropped_tokens';

/**
 * Whether a metric measures time, or depends on it, and so differs between equal runs: `step_time`, `..._seconds`,
 * `..._per_second`, `completions/dropped_tokens`.
 */
export function isTimingMetric(name: string): boolean {
  return name === DROPPED_TOKENS || /(^|[_/])(time|seconds|per_second)$/.test(name);
}

/** A copy of plain data without any member called `seconds`, at any depth, for comparing two runs. */
export function withoutTimings(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutTimings);
  if (value === null || typeof value !== 'object') return value;
  const kept = Object.entries(value).filter(([key]) => key !== 'seconds');
  return Object.fromEntries(kept.map(([key, member]) => [key, withoutTimings(member)]));
}

/**
 * The part of an event that two equal runs must agree on, or null where there is none. Left out: timings, the run's own
 * name, digests of files that hold timings, and what tells of stops and of where they were sealed (the digests of
 * adapter and optimizer stand in every `step`).
 */
export function comparablePart(event: JournalEvent): unknown {
  switch (event.kind) {
    case 'checkpoint':
    case 'resume':
    case 'recovery':
    case 'attempt-start':
    case 'heartbeat':
    case 'stage-start':
    case 'attempt-end':
      return null;
    case 'run-start':
      return { kind: event.kind, data: { ...event.data, runId: '' } };
    case 'step': {
      const { metrics, rollouts, ...rest } = event.data;
      const untimed = Object.fromEntries(Object.entries(metrics).filter(([name]) => !isTimingMetric(name)));
      const evidence = { file: rollouts.file, evidenceSha256: rollouts.evidenceSha256 };
      return withoutTimings({ kind: event.kind, data: { ...rest, metrics: untimed, rollouts: evidence } });
    }
    case 'evaluation': {
      const { metrics, result, rollouts, ...rest } = event.data;
      const untimed = Object.fromEntries(Object.entries(metrics).filter(([name]) => !isTimingMetric(name)));
      const evidence = rollouts && { rollouts: { file: rollouts.file, evidenceSha256: rollouts.evidenceSha256 } };
      const data = { ...rest, ...evidence, metrics: untimed, result: result.file };
      return withoutTimings({ kind: event.kind, data });
    }
    case 'experiment-start':
      return { kind: event.kind, data: event.data };
    case 'stage-end': {
      const { stage: name, facts } = event.data;
      return { kind: event.kind, data: { stage: name, facts } };
    }
    case 'audit':
      return { kind: event.kind, data: event.data };
    case 'run-end':
      return withoutTimings({ kind: event.kind, data: event.data });
  }
}
