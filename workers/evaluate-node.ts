// Starts the evaluator in its worker, and evaluates to a file.
// Not the evaluation (src/evaluate.ts). Invariant: the loss of the worker raises EvaluationError at once.
import { readFileSync } from 'node:fs';
import { mathProblems } from '../src/environments/german-math.ts';
import type { MathItem } from '../src/evaluate.ts';
import { readMgsm, writeEvaluation } from '../src/evaluation/files-node.ts';
import type { EvaluationFile } from '../src/evaluation/results.ts';
import type { KernelFamily } from '../src/gpu/device.ts';
import { canonicalBytes } from '../src/lib/canonical-json.ts';
import { EvaluationError } from '../src/lib/errors.ts';
import { sha256Hex } from '../src/lib/sha256-node.ts';
import type {
  EvaluateAnswer,
  EvaluatedSampling,
  EvaluateRequest,
  EvaluationSuite,
  Evaluator,
} from './evaluation-api.ts';
import { spawnWorker } from './spawn.ts';

export interface SpawnedEvaluator {
  evaluate(request: EvaluateRequest, onProgress?: (finished: number, total: number) => void): Promise<EvaluateAnswer>;
  stop(): Promise<void>;
}

const progressEveryMs = 1000;

/** The evaluator behind comlink, with its own device. The caller must `stop()` it. */
export async function spawnEvaluator(): Promise<SpawnedEvaluator> {
  const { service, stop } = await spawnWorker<Evaluator>({
    name: 'evaluator',
    module: new URL('./evaluator.worker.ts', import.meta.url),
    methods: ['evaluate', 'progress'],
    errorClass: EvaluationError,
    readyDeadlineMs: 120_000,
  });
  return {
    stop,
    async evaluate(request, onProgress) {
      const timer = setInterval(() => {
        service.progress().then(
          ({ finished, total }) => total > 0 && onProgress?.(finished, total),
          () => {},
        );
      }, progressEveryMs);
      try {
        return await service.evaluate(request);
      } finally {
        clearInterval(timer);
      }
    },
  };
}

/** A math suite: MGSM by path, or generated German word problems (`dev:<seed>:<count>`). */
export function mathSuite(data: string): EvaluationSuite {
  const generated = /^dev:(\d+):(\d+)$/.exec(data);
  const items: MathItem[] = generated
    ? mathProblems(Number(generated[1]), Number(generated[2])).map(({ id, question, answer }) => ({
        id,
        question,
        gold: String(answer),
      }))
    : readMgsm(data).map(({ id, question, gold }) => ({ id, question, gold }));
  return {
    kind: 'math',
    items,
    dataSha256: generated ? sha256Hex(canonicalBytes(items)) : sha256Hex(readFileSync(data)),
  };
}

export interface EvaluateOptions {
  model: string;
  adapter: string | null;
  suite: EvaluationSuite;
  seeds: number[];
  sampling: EvaluatedSampling;
  slots?: number;
  /** Kernel family; portable by default. */
  family?: KernelFamily;
  output: string;
  onProgress?: (finished: number, total: number) => void;
  /** Gets what is worth knowing, such as what the adapter's canary showed. */
  onNote?: (text: string) => void;
}

/** Evaluates a base model or an adapter folder and writes the evaluation file. */
export async function evaluateToFile(options: EvaluateOptions): Promise<EvaluationFile> {
  const { model, adapter, suite, seeds, sampling, output } = options;
  const evaluator = await spawnEvaluator();
  try {
    const policy = adapter === null ? ({ kind: 'base' } as const) : ({ kind: 'adapter', folder: adapter } as const);
    const slots = options.slots ?? 32;
    const { evaluation, canary } = await evaluator.evaluate(
      { model, family: options.family ?? 'portable', policy, suite, seeds, sampling, slots },
      options.onProgress,
    );
    if (canary !== null) options.onNote?.(canary);
    writeEvaluation(output, evaluation);
    return evaluation;
  } finally {
    await evaluator.stop();
  }
}
