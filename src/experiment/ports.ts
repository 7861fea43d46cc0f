// What the experiment's driver is handed: its folder and journal, a device, and the work that needs one.
// Not an implementation (workers/experiment-node.ts). Invariant: everything that takes a device, a process or a clock
// is in here, so that the driver's order, refusals and recovery can be tested without any.
import type { MathItem } from '../evaluate.ts';
import type { EvaluationFile } from '../evaluation/results.ts';
import type { WrittenMergeAudit } from '../export/merge-node.ts';
import type { Journal } from '../journal.ts';
import type { Stage } from '../journal-events.ts';
import type { Storage } from '../lib/storage.ts';
import type { Episode } from '../rollout/episode.ts';
import type { ResolvedRunConfig } from '../run-config.ts';
import type { ExperimentData } from './data.ts';
import type { PlanDifference } from './plan-changes.ts';
import type { Unit } from './units.ts';

/** What a qualification is bound to, by name: adapter, driver, Dawn, Node, kernel family, shaders. */
export type DeviceFacts = Record<string, string>;

export type UnitPolicy =
  | { kind: 'base' }
  | { kind: 'checkpoint'; folder: string; sealSha256: string }
  /** A merged model, whose audit was checked just before. */
  | { kind: 'merged'; folder: string };

export type UnitSuite =
  | { kind: 'agent'; split: 'dev' | 'final'; seed: number; episodes: number }
  | { kind: 'math'; items: MathItem[]; dataSha256: string };

export interface UnitAnswer {
  evaluation: EvaluationFile;
  episodes: Episode[];
}

export interface ExperimentProgressPorts {
  onStage?: (stage: Stage, state: 'begins' | 'passed' | 'kept') => void;
  onStep?: (step: number, steps: number, metrics: Record<string, number>) => void;
  onRollout?: (step: number, finished: number, total: number) => void;
  onEvaluation?: (unit: string, finished: number, total: number) => void;
  onNote?: (text: string) => void;
}

export interface ExperimentPorts {
  /** The plan's folder. */
  storage: Storage;
  /** A storage whose root is a folder below it. */
  storageAt(folder: string): Storage;
  /** The first arm's folder, read only, where this one is the second. */
  firstArm: Storage | null;
  journal: Journal;
  /** Seconds since the driver began, from a clock that never goes back. */
  seconds(): number;
  host: string;
  pid: number;
  versions: Record<string, string>;
  /** Whether a person or the scheduler asked to stop. */
  stopRequested(): boolean;
  planDifferences(): Promise<PlanDifference[]>;
  /** The plan's data, made again from its inputs. */
  data(): Promise<ExperimentData>;
  /** Opens the device, qualifies its kernels unless that was done, and closes it. */
  device(): Promise<{ facts: DeviceFacts; qualification: string }>;
  /** Starts or reaches the service that the plan pins and refuses another one; nothing for arm `local`. */
  openService(attempt: number): Promise<void>;
  /** One process of the resume qualification: a training run in `folder`, stopped after `stopAfter` if not null. */
  branch(
    run: ResolvedRunConfig,
    folder: string,
    options: { resume: boolean; stopAfter: number | null; stop: () => boolean },
  ): Promise<void>;
  train(run: ResolvedRunConfig, options: { resume: boolean; stop: () => boolean }): Promise<'finished' | 'interrupted'>;
  /** Evaluates a policy. Rejects as soon as `stop` says so. */
  evaluate(unit: Unit, policy: UnitPolicy, suite: UnitSuite, stop: () => boolean): Promise<UnitAnswer>;
  /** Merges a sealed checkpoint's adapter into the base weights in a new folder. */
  merge(checkpoint: { folder: string; sealSha256: string }, output: string): Promise<WrittenMergeAudit>;
  /** Builds the report from the folder, writes it, and gives the hash of its content (what equal experiments share). */
  report(): Promise<string>;
  /** Tree hash of every file of a folder but its merge audit. */
  mergedTree(folder: string): Promise<string>;
  progress: ExperimentProgressPorts;
}
