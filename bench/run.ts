// The bench: limits of the device, kernels on the shape, decoding, prefill, training, a whole step, and where GPU time
// goes. Invariant: what cannot be measured here is named with its reason, never left out in silence.
import { freemem } from 'node:os';
import { defaultLora } from '../src/doctor.ts';
import type { Gpu } from '../src/gpu/device.ts';
import { createRecorder } from '../src/gpu/recorder.ts';
import { type Span, startTiming, summarise } from '../src/gpu/timing.ts';
import type { KernelVariant } from '../src/gpu/variant.ts';
import type { Architecture } from '../src/model/config.ts';
import type { FileSource } from '../src/model/file-source.ts';
import { openModelFiles } from '../src/model/model-files.ts';
import { expectedTensors } from '../src/model/tensor-names.ts';
import { type GpuModel, groupNames, loadWeights } from '../src/model/weights.ts';
import { createSampler } from '../src/rollout/sampler.ts';
import { type Limits, matmulMs, measureLimits } from './measure.ts';
import { doctorNeed } from './memory.ts';
import { type BenchSettings, settingsFor } from './settings.ts';
import {
  type DecodeFigure,
  decodeOnce,
  deviceBytes,
  groupIds,
  makeTrainer,
  measureDecode,
  measurePrefill,
  measureStep,
  measureTrain,
  type StepFigure,
  trainOnce,
} from './steps.ts';

export interface MatmulFigure {
  /** The fused layer, or `head`. */
  layer: string;
  /** rows x columns x k. */
  shape: string;
  ms: number;
  gflops: number;
  ofLimit: number;
  /** Bytes of weights a second, and as a share of the copy bandwidth. */
  weightGBs: number;
  ofCopy: number;
}

export interface TraceFigure {
  phase: string;
  kernel: string;
  dispatches: number;
  ms: number;
}

export interface BenchResult {
  schema: 'shaderl.bench/1';
  device: { name: string; description: string; software: boolean; dawn: string; toggles: string[] };
  family: 'portable';
  variant: KernelVariant;
  model: { label: string; parameters: number; weightBytes: number; loadSeconds: number };
  settings: BenchSettings;
  limits: Limits;
  kernels: { matmul: MatmulFigure[]; trace: TraceFigure[] };
  decode: DecodeFigure[];
  prefill: { sequences: number; tokens: number; ms: number; tokensPerSecond: number } | null;
  train: { sequences: number; tokens: number; seconds: number; tokensPerSecond: number } | null;
  step: StepFigure | null;
  /** Bytes on the device while training, as allocated. */
  memoryBytes: number;
  skipped: { what: string; reason: string }[];
}

export interface BenchOptions {
  batches?: readonly number[];
  contexts?: readonly number[];
  /** Other sizes than those for the device and model. */
  settings?: Partial<BenchSettings>;
  onProgress?: (text: string) => void;
  /** Gets the spans of the traced phases. */
  onSpans?: (spans: readonly Span[]) => void;
}

function parametersOf(architecture: Architecture): number {
  const shapes = [...expectedTensors(architecture).values()];
  return shapes.reduce((sum, shape) => sum + shape.reduce((product, extent) => product * extent, 1), 0);
}

/** The products of a forward pass: each fused layer at the batch sizes and at many rows, and the head. */
async function matmulFigures(
  gpu: Gpu,
  model: GpuModel,
  settings: BenchSettings,
  limits: Limits,
): Promise<MatmulFigure[]> {
  const r = createRecorder(gpu);
  const { hiddenSize, vocabSize } = model.architecture;
  const layers = groupNames.map((name) => {
    const { weight } = model.layers[0]!.groups[name];
    return { layer: name as string, columns: weight.rows, k: weight.columns };
  });
  const figures: MatmulFigure[] = [];
  const decodeRows = settings.batches.filter((batch) => batch <= 16).at(-1) ?? 1;
  for (const rows of [decodeRows, settings.kernelRows]) {
    for (const { layer, columns, k } of [...layers, { layer: 'head', columns: vocabSize, k: hiddenSize }]) {
      // The head of a large vocabulary in many rows is done in chunks, which the training step measures.
      const bytes = columns * k * 2;
      if (k % 4 !== 0 || columns * rows * 4 > 2 ** 30 || bytes > gpu.identity.limits.maxStorageBufferBindingSize)
        continue;
      const inner = gpu.identity.software ? 1 : 20;
      const ms = await matmulMs(gpu, r, rows, columns, k, inner, settings.budgetMs / 4);
      const gflops = (2 * rows * columns * k) / ms / 1e6;
      const weightGBs = bytes / ms / 1e6;
      figures.push({
        layer,
        shape: `${rows}x${columns}x${k}`,
        ms,
        gflops,
        ofLimit: gflops / limits.matmulGflops,
        weightGBs,
        ofCopy: weightGBs / limits.copyGBs,
      });
    }
  }
  return figures;
}

/** GPU time by kernel of one decoding step, one prefill and one training step. */
async function traceFigures(
  gpu: Gpu,
  model: GpuModel,
  trainer: ReturnType<typeof makeTrainer>,
  settings: BenchSettings,
): Promise<{ figures: TraceFigure[]; spans: Span[] }> {
  const { group, promptTokens, newTokens, batches, contexts } = settings;
  const { vocabSize } = model.architecture;
  const batch = batches.includes(group) ? group : batches.at(-1)!;
  const context = Math.max(contexts.at(-1)!, promptTokens);
  const shape = { slots: batch, cacheLength: context, rows: batch };
  const settingsOf = { temperature: 0.6, topK: 20, topP: 0.95, minP: 0 };
  const sampler = createSampler(gpu, model, shape, settingsOf, vocabSize, trainer.adapter.layout);
  sampler.use(trainer.adapter);
  const timing = startTiming(gpu);
  try {
    timing.phase(`decode, batch ${batch}, context ${context}`);
    await decodeOnce(sampler, batch, context, vocabSize);
    timing.phase(`training step, ${group} x ${promptTokens + newTokens} tokens`);
    await trainOnce(trainer, groupIds(settings, vocabSize), promptTokens, 1);
    const spans = await timing.take();
    const phases = [...new Set(spans.map(({ phase }) => phase))];
    const figures = phases.flatMap((phase) =>
      summarise(spans.filter((span) => span.phase === phase)).map((sum) => ({ phase, ...sum })),
    );
    return { figures, spans };
  } finally {
    timing.stop();
    sampler.destroy();
  }
}

/** The training step within a whole one, where it is not measured apart. */
function trainOfStep({ group, promptTokens, newTokens, trainSeconds: seconds }: StepFigure) {
  const tokens = group * (promptTokens + newTokens);
  return { sequences: group, tokens, seconds, tokensPerSecond: tokens / seconds };
}

/** Runs the whole bench on a device. */
export async function runBench(gpu: Gpu, source: FileSource, options: BenchOptions = {}): Promise<BenchResult> {
  const say = options.onProgress ?? (() => {});
  const { identity } = gpu;
  const files = await openModelFiles(source);
  const { architecture } = files;
  const parameters = parametersOf(architecture);
  const wanted = settingsFor(parameters, identity.software);
  const settings: BenchSettings = {
    ...wanted,
    ...options.settings,
    ...(options.batches ? { batches: options.batches } : {}),
    ...(options.contexts ? { contexts: options.contexts } : {}),
  };
  const r = createRecorder(gpu);
  say('measuring copy bandwidth and matmul rate');
  const limits = await measureLimits(gpu, r);
  say('loading weights');
  const began = performance.now();
  const positions = Math.max(settings.promptTokens + settings.newTokens, ...settings.contexts);
  const model = await loadWeights(gpu, files, { positions });
  const loadSeconds = (performance.now() - began) / 1000;
  const skipped: BenchResult['skipped'] = [];
  say('kernels: products');
  const matmul = await matmulFigures(gpu, model, settings, limits);
  const lora = defaultLora(settings.rank);
  const need = doctorNeed(identity, files, settings, lora);
  const free = identity.software ? freemem() : Number.POSITIVE_INFINITY;
  const result: BenchResult = {
    schema: 'shaderl.bench/1',
    device: {
      name: identity.device,
      description: identity.description,
      software: identity.software,
      dawn: identity.dawn,
      toggles: identity.toggles,
    },
    family: 'portable',
    variant: r.variant,
    model: { label: source.label, parameters, weightBytes: model.bytes, loadSeconds },
    settings,
    limits,
    kernels: { matmul, trace: [] },
    decode: [],
    prefill: null,
    train: null,
    step: null,
    memoryBytes: 0,
    skipped,
  };
  if (need > free) {
    const reason = `it would take ${(need / 1e9).toFixed(1)} GB, ${(free / 1e9).toFixed(1)} GB are free`;
    for (const what of ['decode', 'prefill', 'train', 'step', 'trace']) skipped.push({ what, reason });
    model.destroy();
    return result;
  }
  const trainer = makeTrainer(gpu, model, lora, settings);
  try {
    say('decoding');
    result.decode = await measureDecode(gpu, model, trainer, settings, limits);
    say('prefill');
    result.prefill = await measurePrefill(gpu, model, trainer, settings);
    say('training step');
    if (settings.repeats > 1) result.train = await measureTrain(gpu, model, trainer, settings);
    result.memoryBytes = deviceBytes(gpu);
    say('whole step');
    result.step = await measureStep(gpu, model, trainer, settings);
    result.train ??= trainOfStep(result.step);
    if (gpu.device.features.has('timestamp-query')) {
      say('GPU time by kernel');
      const { figures, spans } = await traceFigures(gpu, model, trainer, settings);
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
