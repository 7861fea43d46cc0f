// The bench: limits of the device, kernels on the shape, decoding, prefill, training, a whole step, and where GPU time
// goes. Invariant: what cannot be measured here is named with its reason, never left out in silence.
import { freemem } from 'node:os';
import { performance } from 'node:perf_hooks';
import { defaultLora } from '../src/doctor.ts';
import type { Gpu, KernelFamily } from '../src/gpu/device.ts';
import { createRecorder } from '../src/gpu/recorder.ts';
import type { Span } from '../src/gpu/timing.ts';
import type { KernelVariant } from '../src/gpu/variant.ts';
import type { Architecture } from '../src/model/config.ts';
import type { FileSource } from '../src/model/file-source.ts';
import type { MatrixReport } from '../src/model/matrix-weights.ts';
import { openModelFiles } from '../src/model/model-files.ts';
import { expectedTensors } from '../src/model/tensor-names.ts';
import { loadWarm } from '../src/model/warm-up.ts';
import { cacheBytes, type GrowthFigure, growthOf } from './cost.ts';
import { doctorNeed } from './memory.ts';
import { measureParts, type PartsFigure } from './parts.ts';
import { type Limits, type MatmulFigure, matmulFigures, measureLimits } from './products.ts';
import { rehearsalOf } from './rehearsal.ts';
import { type BenchSettings, settingsFor } from './settings.ts';
import type { StartFigure } from './start.ts';
import {
  type Bench,
  type DecodeFigure,
  makeTrainer,
  measureDecode,
  measurePrefill,
  measureStep,
  measureTrain,
  type StepFigure,
} from './steps.ts';
import { type TraceFigure, traced, traceFigures } from './trace.ts';

export interface BenchResult {
  schema: 'shaderl.bench/2';
  device: { name: string; description: string; software: boolean; dawn: string; toggles: string[] };
  family: KernelFamily;
  /** Why this family. */
  familyReason: string;
  variant: KernelVariant;
  robustness: boolean;
  model: { label: string; parameters: number; weightBytes: number; loadSeconds: number; matrices: MatrixReport | null };
  settings: BenchSettings;
  limits: Limits;
  /** `parts`: a decode step's kernels where they stand; null where steps are not sent as one. */
  kernels: { matmul: MatmulFigure[]; trace: TraceFigure[]; parts: PartsFigure | null };
  decode: DecodeFigure[];
  /** How decoding grows with the context, where several were measured. */
  growth: GrowthFigure[];
  prefill: { sequences: number; tokens: number; ms: number; tokensPerSecond: number } | null;
  train: { sequences: number; tokens: number; seconds: number; tokensPerSecond: number } | null;
  step: StepFigure | null;
  start: StartFigure | null;
  /** Bytes allocated on the device in the whole step: weights, sampler, trainer, optimizer. */
  memory: { peakBytes: number } | null;
  skipped: { what: string; reason: string }[];
}

export interface BenchOptions {
  family: KernelFamily;
  familyReason: string;
  robustness: boolean;
  batches?: readonly number[];
  contexts?: readonly number[];
  /** Other sizes than those for the device and model. */
  settings?: Partial<BenchSettings>;
  onProgress?: (text: string) => void;
  /** Hears of each group of figures when it is there, for a bench that may be cut short. */
  onFigures?: (text: string) => void;
  /** Gets the spans of the traced phases. */
  onSpans?: (spans: readonly Span[]) => void;
}

/** Parameters of an architecture, tied ones once. */
export function parametersOf(architecture: Architecture): number {
  const shapes = [...expectedTensors(architecture).values()];
  return shapes.reduce((sum, shape) => sum + shape.reduce((product, extent) => product * extent, 1), 0);
}

/** The training step within a whole one, where it is not measured apart. */
function trainOfStep({ group, promptTokens, newTokens, trainSeconds: seconds }: StepFigure) {
  const tokens = group * (promptTokens + newTokens);
  return { sequences: group, tokens, seconds, tokensPerSecond: tokens / seconds };
}

/** Runs the whole bench on a device. */
export async function runBench(gpu: Gpu, source: FileSource, options: BenchOptions): Promise<BenchResult> {
  const say = options.onProgress ?? (() => {});
  const tell = (what: string, figures: unknown) => options.onFigures?.(`${what}: ${JSON.stringify(figures)}`);
  const { family, familyReason, robustness } = options;
  const { identity } = gpu;
  const files = await openModelFiles(source);
  const { architecture } = files;
  const parameters = parametersOf(architecture);
  const settings: BenchSettings = {
    ...settingsFor(parameters, identity.software),
    ...options.settings,
    ...(options.batches ? { batches: options.batches } : {}),
    ...(options.contexts ? { contexts: options.contexts } : {}),
  };
  const r = createRecorder(gpu);
  say('measuring copy bandwidth and matmul rate');
  const limits = await measureLimits(gpu, r, family, settings);
  tell('limits', limits);
  const began = performance.now();
  const positions = Math.max(
    settings.promptTokens + settings.newTokens,
    Math.max(...settings.contexts) + Math.max(settings.decodeTokens, traced),
  );
  const onProgress = (done: number, total: number) => say(`loading weights: ${Math.floor((100 * done) / total)} %`);
  const lora = defaultLora(settings.rank);
  const rehearsal = rehearsalOf(family, lora, settings);
  const { model, report } = await loadWarm(gpu, files, family, { positions, onProgress }, rehearsal);
  const loadSeconds = (performance.now() - began) / 1000;
  say('kernels: products');
  const matmul = await matmulFigures(gpu, r, family, model, settings, limits);
  for (const { layer, shape, ms, gflops } of matmul) tell(layer, { shape, ms, gflops });
  const need = doctorNeed(identity, files, settings, lora);
  const free = identity.software ? freemem() : Number.POSITIVE_INFINITY;
  const skipped: BenchResult['skipped'] = [];
  const result: BenchResult = {
    schema: 'shaderl.bench/2',
    device: {
      name: identity.device,
      description: identity.description,
      software: identity.software,
      dawn: identity.dawn,
      toggles: identity.toggles,
    },
    family,
    familyReason,
    variant: r.variant,
    robustness,
    model: { label: source.label, parameters, weightBytes: model.bytes, loadSeconds, matrices: report },
    settings,
    limits,
    kernels: { matmul, trace: [], parts: null },
    decode: [],
    growth: [],
    prefill: null,
    train: null,
    step: null,
    start: null,
    memory: null,
    skipped,
  };
  if (need > free) {
    const reason = `it would take ${(need / 1e9).toFixed(1)} GB, ${(free / 1e9).toFixed(1)} GB are free`;
    for (const what of ['decode', 'prefill', 'train', 'step', 'trace']) skipped.push({ what, reason });
    model.destroy();
    return result;
  }
  const trainer = makeTrainer(gpu, model, lora, settings);
  const bench: Bench = { gpu, family, model, trainer, settings, limits };
  try {
    say('decoding');
    result.decode = await measureDecode(bench, skipped);
    for (const { batch, context, ms, ofCopy } of result.decode) tell('decode', { batch, context, ms, ofCopy });
    result.growth = growthOf(result.decode, cacheBytes(gpu, model), limits.copyGBs);
    say('prefill');
    result.prefill = await measurePrefill(bench);
    tell('prefill', result.prefill);
    say('training step');
    if (settings.repeats > 1) {
      result.train = await measureTrain(bench);
      tell('train', result.train);
    }
    say('whole step');
    const { figure, peakBytes } = await measureStep(bench);
    result.step = figure;
    result.memory = { peakBytes };
    tell('step', { ...figure, peakBytes });
    result.train ??= trainOfStep(figure);
    say('parts of a decode step');
    result.kernels.parts = await measureParts(bench);
    tell('parts', result.kernels.parts);
    if (gpu.device.features.has('timestamp-query')) {
      say('GPU time by kernel');
      const { figures, spans } = await traceFigures(bench);
      result.kernels.trace = figures;
      options.onSpans?.(spans);
    } else {
      skipped.push({ what: 'trace', reason: 'the adapter has no timestamp-query' });
    }
  } finally {
    trainer.destroy();
    model.destroy();
  }
  return result;
}
