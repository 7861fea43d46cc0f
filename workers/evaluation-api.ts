// What an evaluator is asked and what it answers: plain data that crosses a worker's boundary.

import type { EnvironmentChoice } from '../src/environments/service/choice.ts';
import type { MathItem } from '../src/evaluate.ts';
import type { EvaluationFile } from '../src/evaluation/results.ts';
import type { KernelFamily } from '../src/gpu/device.ts';
import type { Episode } from '../src/rollout/episode.ts';

/** The weights that are evaluated; a checkpoint is opened by its seal, so these bytes and no others are. */
export type EvaluatedPolicy =
  | { kind: 'base' }
  | { kind: 'adapter'; folder: string }
  | { kind: 'checkpoint'; root: string; folder: string; sealSha256: string };

export interface EvaluatedSampling {
  temperature: number;
  topP: number;
  topK: number;
  minP: number;
  /** Tokens of the retained stream after the prompt. */
  maxTokens: number;
  maxToolRounds: number;
  thinking: boolean;
}

export type EvaluationSuite =
  | { kind: 'agent'; split: 'dev' | 'final'; seed: number; episodes: number }
  | { kind: 'math'; items: MathItem[]; dataSha256: string };

export interface EvaluateRequest {
  model: string;
  family: KernelFamily;
  policy: EvaluatedPolicy;
  suite: EvaluationSuite;
  seeds: number[];
  sampling: EvaluatedSampling;
  /** Sequences that are generated side by side; no result depends on it. */
  slots: number;
  /** Where agent episodes are served; in process by default. */
  environment?: EnvironmentChoice;
}

export interface EvaluateAnswer {
  evaluation: EvaluationFile;
  episodes: Episode[];
  /** What the adapter's canary showed after it was loaded, as a sentence; null for the base model. */
  canary: string | null;
}

export interface Evaluator {
  evaluate(request: EvaluateRequest): Promise<EvaluateAnswer>;
  /** Samples finished and wanted of the evaluation under way. */
  progress(): Promise<{ finished: number; total: number }>;
}
