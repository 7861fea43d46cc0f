// What an evaluator is asked and what it answers: plain data that crosses a worker's boundary.

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
}

export interface EvaluateAnswer {
  evaluation: EvaluationFile;
  episodes: Episode[];
}

export interface Evaluator {
  evaluate(request: EvaluateRequest): Promise<EvaluateAnswer>;
  /** Samples finished and wanted of the evaluation under way. */
  progress(): Promise<{ finished: number; total: number }>;
}
