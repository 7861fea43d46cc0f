// One optimizer step of GRPO on the GPU: log-probs, loss gradient, backward, the gradient tree, clip, AdamW.
// Not the loop and not the rollouts. Departs from TRL: gradients of micro-batches are summed by a fixed binary tree, and
// the sampler's log-probs are the old ones, because they equal the recomputed ones bit for bit.
// Invariant: the result depends on the plan, the weights and the groups' order alone; nothing is updated before
// `beforeUpdate` has seen every recomputed log-prob.
import { allocate, readF32, release, type View } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import { createRecorder, type Recorder } from '../gpu/recorder.ts';
import { type AdamwOptions, adamwScalars } from '../kernels/adamw-reference.ts';
import { AuditError } from '../lib/errors.ts';
import {
  type AdapterLayout,
  type AdapterViews,
  allocateAdapter,
  downloadTensors,
  type GpuAdapter,
  releaseAdapter,
  uploadTensors,
} from '../model/adapter-gpu.ts';
import { recordBackward } from '../model/backward.ts';
import { type Batch, recordForward, sequencesBatch } from '../model/forward.ts';
import { chooseRows, createHead, type Head, headChunks, recordLogits } from '../model/head.ts';
import { recordLogprobs } from '../model/head-draw.ts';
import { recordHeadBackward } from '../model/head-gradient.ts';
import type { Adapter } from '../model/lora.ts';
import { runsFused } from '../model/matrix-weights.ts';
import type { GpuModel } from '../model/weights.ts';
import { createWorkspace } from '../model/workspace.ts';
import { type MicroBatch, packGroup, type TrainSequence } from '../rollout/pack.ts';
import { createLossGradientBuffers, type LossGradientBuffers, recordLossGradient } from './loss-gradient-gpu.ts';
import { emptyTallies, type LossTallies, lossMetrics, mergeTallies } from './loss-tallies.ts';
import { type LossBatch, type LossOptions, type LossWindow, lossWindow, policyLoss, rowScales } from './losses.ts';
import { createOptimizer, type OptimizerState } from './optimizer.ts';
import { treeAccumulator } from './tree.ts';

export interface TrainerShape {
  /** Most input rows of a micro-batch, and most sequences. */
  rows: number;
  sequences: number;
  /** Longest sequence. */
  length: number;
  /** Run each layer forward again in the backward pass instead of keeping its activations: same bits, less memory. */
  recompute?: boolean;
}

export interface TrainerOptions {
  loss: LossOptions;
  temperature: number;
  adamw: AdamwOptions;
  maxGradNorm: number;
  vocabulary: number;
}

/** The log-probs of one group's trained tokens, recomputed before the update. */
export interface Recomputed {
  group: number;
  batches: readonly MicroBatch[];
  /** [micro-batch][trained tokens]. */
  logprobs: readonly Float32Array[];
}

export interface StepResult {
  loss: number;
  /** Global L2 norm before clipping. */
  gradNorm: number;
  metrics: Record<string, number>;
}

export interface Trainer {
  readonly adapter: GpuAdapter;
  /**
   * One optimizer step on the groups (in index order) at a learning rate (f64). `update` counts from 1 over the run.
   * `useStored` false: the old log-probs are the current ones, detached (the first use of a batch).
   */
  step(input: StepInput): Promise<StepResult>;
  /** Log-probs and entropies of the masked tokens of sequences under the current adapter, at the temperature. */
  score(
    sequences: readonly TrainSequence[],
    withAdapter?: boolean,
  ): Promise<{ logprobs: Float32Array; entropies: Float32Array }[]>;
  state(): Promise<OptimizerState & { adapter: Map<string, Float32Array> }>;
  restore(state: OptimizerState & { adapter: ReadonlyMap<string, Float32Array> }): void;
  /** Gradients of the last step, before clipping; for tests and inspection. */
  gradients(): Promise<Map<string, Float32Array>>;
  destroy(): void;
}

export interface StepInput {
  groups: readonly (readonly TrainSequence[])[];
  update: number;
  learningRate: number;
  /** `sampled`: the ratio is against the sampler's log-probs; `current`: against the recomputed ones. */
  old: 'sampled' | 'current';
  /** Micro-batches that the step's groups count as, in equal runs (TRL's accumulation); one a group by default. */
  accumulation?: number;
  /** Reference log-probs by group and micro-batch, if they are known already (later iterations on one batch). */
  reference?: Float32Array[][];
  /** Sees all recomputed log-probs before anything is updated; throws to refuse the batch. */
  beforeUpdate?: (recomputed: readonly Recomputed[]) => void;
}

/** The normalisers' totals for each group: of the whole step, and of the micro-batch that the group belongs to. */
function lossWindows(
  packed: readonly (readonly MicroBatch[])[],
  loss: LossOptions,
  accumulation: number,
): LossWindow[] {
  const masked = (batches: readonly MicroBatch[]) =>
    batches.map(({ starts, rows, truncated }) => ({
      rowStarts: starts,
      mask: new Uint8Array(rows.length).fill(1),
      truncated,
    }));
  const whole = lossWindow(masked(packed.flat()), loss);
  const size = packed.length / accumulation;
  return packed.map((_, group) => {
    const first = Math.floor(group / size) * size;
    const { tokens } = lossWindow(masked(packed.slice(first, first + size).flat()), loss);
    return { ...whole, microBatches: accumulation, microBatchTokens: tokens };
  });
}

interface Pass {
  micro: MicroBatch;
  batch: Batch;
  loss: LossBatch;
}

/**
 * Makes a trainer from an adapter. The reference policy is the base model, or `reference` (a frozen adapter) where
 * training starts from one.
 */
export function createTrainer(
  gpu: Gpu,
  model: GpuModel,
  layout: AdapterLayout,
  initial: Adapter,
  shape: TrainerShape,
  options: TrainerOptions,
  reference: GpuAdapter | null = null,
): Trainer {
  const r: Recorder = createRecorder(gpu);
  const arch = model.architecture;
  const workspace = createWorkspace(gpu, arch, layout, {
    rows: shape.rows,
    slots: shape.sequences,
    cacheLength: shape.length,
    training: true,
    recompute: shape.recompute ?? false,
    fused: runsFused(gpu, model),
  });
  const head: Head = createHead(gpu, arch, shape.rows, options.vocabulary);
  const adapter: GpuAdapter = { layout, views: allocateAdapter(gpu, layout, 'adapter') };
  uploadTensors(gpu, layout, adapter.views, initial.tensors);
  const optimizer = createOptimizer(gpu, layout, adapter.views, options.maxGradNorm);
  const stats: View = allocate(gpu, 'trainer.stats', shape.rows * 16);
  const targets: View = allocate(gpu, 'trainer.targets', shape.rows * 4);
  const lossBuffers: LossGradientBuffers = createLossGradientBuffers(gpu, shape.rows, shape.sequences);
  const spare: AdapterViews[] = [];
  let lastGradient: AdapterViews | null = null;

  /** Forward pass and log-probs of a micro-batch's trained tokens; leaves the activations for a backward pass. */
  async function logprobsOf(micro: MicroBatch, batch: Batch, active: GpuAdapter | null) {
    const count = micro.rows.length;
    recordForward(gpu, r, model, workspace, active, batch);
    chooseRows(gpu, r, head, micro.rows);
    gpu.device.queue.writeBuffer(targets.buffer, 0, micro.targets);
    for (const chunk of headChunks(head, count)) {
      recordLogits(r, model, workspace, head, chunk);
      recordLogprobs(r, head, chunk, targets, stats, 1 / options.temperature);
    }
    r.submit();
    const values = await readF32(gpu, stats, count * 4);
    const logprobs = new Float32Array(count);
    const entropies = new Float32Array(count);
    for (let i = 0; i < count; i++) {
      logprobs[i] = values[i * 4 + 2]!;
      entropies[i] = values[i * 4 + 3]!;
    }
    return { logprobs, entropies };
  }

  function lossBatch(
    micro: MicroBatch,
    own: { logprobs: Float32Array; entropies: Float32Array },
    old: StepInput['old'],
    ref: Float32Array | null,
  ): LossBatch {
    return {
      rowStarts: micro.starts,
      mask: new Uint8Array(micro.rows.length).fill(1),
      truncated: micro.truncated,
      logprobs: own.logprobs,
      old: old === 'sampled' ? micro.sampled : null,
      sampled: micro.sampled,
      reference: ref,
      advantages: micro.advantages,
      entropy: own.entropies,
    };
  }

  function gradientOf(pass: Pass, window: LossWindow): AdapterViews {
    const gradient = spare.pop() ?? allocateAdapter(gpu, layout, 'gradient');
    const scales = rowScales(pass.loss, options.loss, window);
    recordLossGradient(gpu, r, lossBuffers, pass.loss, options.loss, scales);
    recordHeadBackward(
      r,
      model,
      workspace,
      head,
      pass.micro.rows.length,
      targets,
      stats,
      lossBuffers.gradient,
      1 / options.temperature,
      options.vocabulary,
    );
    recordBackward(gpu, r, model, workspace, adapter, pass.batch, gradient);
    return gradient;
  }

  async function step(input: StepInput): Promise<StepResult> {
    const packed = input.groups.map((group) => packGroup(group, shape.rows, shape.sequences));
    const all = packed.flat();
    if (all.every((micro) => micro.rows.length === 0)) {
      throw new AuditError(
        'nothing-to-train',
        `training on update ${input.update}: no sampled token in any group; nothing was changed.`,
      );
    }
    const needsReference = options.loss.beta !== 0;
    const windows = lossWindows(packed, options.loss, input.accumulation ?? packed.length);
    const recomputed: Recomputed[] = [];
    let loss = 0;
    let tallies: LossTallies = emptyTallies();
    const tree = treeAccumulator<AdapterViews>(
      (into, from) => optimizer.recordAdd(r, into, from),
      (spent) => spare.push(spent),
    );
    for (const [group, batches] of packed.entries()) {
      const logprobs: Float32Array[] = [];
      for (const [m, micro] of batches.entries()) {
        const batch = sequencesBatch(micro.inputs);
        const known = input.reference?.[group]?.[m];
        const ref = needsReference ? (known ?? (await logprobsOf(micro, batch, reference)).logprobs) : null;
        const current = await logprobsOf(micro, batch, adapter);
        const pass: Pass = { micro, batch, loss: lossBatch(micro, current, input.old, ref) };
        const window = windows[group]!;
        const share = policyLoss(pass.loss, options.loss, window);
        loss += share.loss;
        tallies = mergeTallies(tallies, share.tallies);
        tree.add(gradientOf(pass, window));
        logprobs.push(current.logprobs);
      }
      recomputed.push({ group, batches, logprobs });
    }
    input.beforeUpdate?.(recomputed);
    const gradient = tree.finish();
    if (lastGradient) spare.push(lastGradient);
    lastGradient = gradient;
    optimizer.recordUpdate(r, gradient, adamwScalars(input.update, input.learningRate, options.adamw));
    r.submit();
    const gradNorm = await optimizer.readNorm();
    if (!Number.isFinite(gradNorm)) {
      throw new AuditError(
        'bad-gradient',
        `training on update ${input.update}: the gradient norm is ${gradNorm}; resume from the last checkpoint.`,
      );
    }
    const metrics = {
      ...lossMetrics(tallies, options.loss.kind, options.loss.beta),
      loss,
      grad_norm: gradNorm,
      learning_rate: input.learningRate,
    };
    return { loss, gradNorm, metrics };
  }

  return {
    adapter,
    step,
    async score(sequences, withAdapter = true) {
      const out: { logprobs: Float32Array; entropies: Float32Array }[] = [];
      for (const micro of packGroup(sequences, shape.rows, shape.sequences)) {
        const values = await logprobsOf(micro, sequencesBatch(micro.inputs), withAdapter ? adapter : reference);
        for (let s = 0; s < micro.inputs.length; s++) {
          const [from, to] = [micro.starts[s]!, micro.starts[s + 1]!];
          out.push({ logprobs: values.logprobs.slice(from, to), entropies: values.entropies.slice(from, to) });
        }
      }
      return out;
    },
    async state() {
      // All copies are in the queue before anything is waited for: what is recorded afterwards changes nothing of it.
      const [weights, moments] = await Promise.all([downloadTensors(gpu, layout, adapter.views), optimizer.state()]);
      return { adapter: weights, ...moments };
    },
    restore(state) {
      uploadTensors(gpu, layout, adapter.views, state.adapter);
      optimizer.restore(state);
    },
    gradients: async () => (lastGradient ? downloadTensors(gpu, layout, lastGradient) : new Map()),
    destroy() {
      workspace.destroy();
      head.destroy();
      optimizer.destroy();
      releaseAdapter(gpu, adapter.views);
      for (const view of [stats, targets, ...lossBuffers.views]) release(gpu, view);
      for (const views of [...spare, ...(lastGradient ? [lastGradient] : [])]) release(gpu, views.flat);
    },
  };
}
