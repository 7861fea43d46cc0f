// The data of a report: what goes into `buildReport` and what report.json holds.
// Not the rendering. Invariant: `release_eligible` is the literal false; no input can change it.
import type { Comparison } from '../evaluation/compare.ts';
import type { EvaluationFile, EvaluationTotals, SamplingSettings } from '../evaluation/results.ts';
import type { TokenSource } from '../rollout/episode.ts';

/** Where a figure is recorded: entry of the run's journal. */
export interface JournalReference {
  index: number;
  hash: string;
}

/** One optimizer step; metric names are TRL's (`reward`, `kl`, `completions/mean_length`, ...), times in seconds. */
export interface StepRecord {
  step: number;
  metrics: Record<string, number>;
  journal?: JournalReference;
}

export interface DeviceInfo {
  /** Adapter as the device names itself. */
  name: string;
  /** A software rasteriser: times say nothing about GPUs. */
  software: boolean;
  family: 'portable' | 'matrix';
  /** Further facts in reading order: driver, Dawn version, limits. */
  facts: [string, string][];
}

export interface AuditTotals {
  rollouts: number;
  sampledTokens: number;
  findings: number;
  /** The points that were checked, with the number of findings of each. */
  points: { name: string; findings: number }[];
}

export interface CheckpointRecord {
  step: number;
  path: string;
  adapterSha256: string;
  journal?: JournalReference;
}

export interface SampleRollout {
  phase: 'before' | 'after';
  taskId: string;
  seed: number;
  strict: boolean;
  /** Null when the environment failed. */
  reward: number | null;
  /** The stream in order; `text` is the token decoded for display. */
  tokens: { text: string; source: TokenSource }[];
}

export interface ReportInput {
  title: string;
  /** What the policy was trained to do, in one or two sentences, and facts on the task that limit the result. */
  task: { description: string; facts: string[] };
  /** Run configuration as it was resolved; nested values are allowed. */
  config: Record<string, unknown>;
  device: DeviceInfo;
  trainingSeed: number;
  steps: StepRecord[];
  /** Evaluations of the same samples before and after training, or null where none was made. */
  before: EvaluationFile | null;
  after: EvaluationFile | null;
  /** Seed of the bootstrap. */
  bootstrapSeed: number;
  audit: AuditTotals;
  checkpoints: CheckpointRecord[];
  rollouts: SampleRollout[];
  /** Wall-clock seconds of the whole run. */
  seconds: number;
}

/** What a report keeps of an evaluation: everything but the single samples. */
export interface EvaluationSummary {
  suite: 'agent' | 'math';
  modelTreeSha256: string;
  adapterSha256: string | null;
  device: string;
  family: 'portable' | 'matrix';
  sampling: SamplingSettings;
  seeds: number[];
  wallSeconds: number;
  totals: EvaluationTotals;
}

export interface ReportJson {
  schema: 'shaderl.report/1';
  release_eligible: false;
  title: string;
  task: ReportInput['task'];
  /** The result in one sentence. */
  headline: string;
  canShow: string[];
  cannotShow: string[];
  config: Record<string, unknown>;
  device: DeviceInfo;
  trainingSeed: number;
  seconds: number;
  steps: StepRecord[];
  before: EvaluationSummary | null;
  after: EvaluationSummary | null;
  comparison: Comparison | null;
  audit: AuditTotals;
  checkpoints: CheckpointRecord[];
  rollouts: SampleRollout[];
}
