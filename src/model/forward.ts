// The canonical forward pass over rows of tokens: prefill, decode, reference and training all run this and nothing else.
// Not a sampler and not a loss. Invariant: a row's bits depend on its token, its position and its slot's earlier rows,
// never on how many rows the pass has or where the row stands.
import { upload } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import { padded } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { recordAttentionScores } from '../kernels/attention-scores.ts';
import { recordAttentionSoftmax } from '../kernels/attention-softmax.ts';
import { recordAttentionValues } from '../kernels/attention-values.ts';
import { embed, embedGrid } from '../kernels/embed.ts';
import { matmulMode } from '../kernels/matmul.ts';
import { qkNormRope, qkNormRopeGrid } from '../kernels/qk-norm-rope.ts';
import { recordRmsnorm } from '../kernels/rmsnorm.ts';
import { swiglu, swigluGrid } from '../kernels/swiglu.ts';
import { KernelError } from '../lib/errors.ts';
import type { Architecture } from './config.ts';
import { recordFusedForward } from './fused-forward.ts';
import { type ActiveAdapter, linearForward, type Rows } from './linear.ts';
import type { GpuModel } from './weights.ts';
import { attentionChunks, type LayerState, type Workspace } from './workspace.ts';

/** Rows of one pass. Rows of a slot are adjacent and their positions ascend; earlier positions are already cached. */
export interface Batch {
  tokens: Uint32Array<ArrayBuffer>;
  slots: Uint32Array<ArrayBuffer>;
  positions: Uint32Array<ArrayBuffer>;
}

/** Concatenates sequences, one a slot from `firstSlot`, each from position 0. */
export function sequencesBatch(sequences: readonly (readonly number[])[], firstSlot = 0): Batch {
  return {
    tokens: Uint32Array.from(sequences.flat()),
    slots: Uint32Array.from(sequences.flatMap((ids, i) => ids.map(() => firstSlot + i))),
    positions: Uint32Array.from(sequences.flatMap((ids) => ids.map((_, t) => t))),
  };
}

/** Largest number of keys that any row of a batch sees. */
export function longestRow(batch: Batch): number {
  return batch.positions.reduce((most, position) => Math.max(most, position + 1), 0);
}

function checkBatch(batch: Batch, model: GpuModel, workspace: Workspace): void {
  const { rows, slots, cacheLength } = workspace.shape;
  const fail = (what: string) => {
    throw new KernelError(
      'bad-batch',
      `running a forward pass: ${what}; make the workspace larger or the batch smaller.`,
    );
  };
  if (batch.tokens.length > rows) fail(`${batch.tokens.length} rows, room for ${rows}`);
  for (let r = 0; r < batch.tokens.length; r++) {
    if (batch.slots[r]! >= slots) fail(`row ${r} names slot ${batch.slots[r]} of ${slots}`);
    if (batch.positions[r]! >= cacheLength) fail(`row ${r} is at position ${batch.positions[r]} of ${cacheLength}`);
    if (batch.positions[r]! >= model.positions)
      fail(`row ${r} is at position ${batch.positions[r]}, and the model was loaded for ${model.positions} positions`);
    if (batch.tokens[r]! >= model.architecture.vocabSize)
      fail(`row ${r} holds token ${batch.tokens[r]} of ${model.architecture.vocabSize}`);
  }
}

/** Records RMSNorm of `rows` rows. */
export function recordNorm(
  r: Recorder,
  arch: Architecture,
  x: Rows,
  gain: Workspace['tokens'],
  out: Rows,
  rows: number,
): void {
  const params = { rows, columns: arch.hiddenSize, k4: padded(arch.hiddenSize) / 4, eps: arch.rmsNormEps };
  recordRmsnorm(r, [x.view, gain, out.view], params);
}

/** The scalars that the head kernels share. */
export function headParams(arch: Architecture, workspace: Workspace, rows: number) {
  const { heads, kvHeads, headDim } = arch;
  return {
    rows,
    heads,
    kvHeads,
    headDim,
    rawStride: (heads + 2 * kvHeads) * headDim,
    qStride: heads * headDim,
    cacheLength: workspace.shape.cacheLength,
    kvStride: workspace.kvWidth,
    eps: arch.rmsNormEps,
  };
}

/** Records scores and probabilities of a chunk of rows into the workspace's score buffer. */
export function recordProbabilities(
  r: Recorder,
  arch: Architecture,
  workspace: Workspace,
  state: LayerState,
  chunk: { first: number; rows: number },
  keys: number,
): void {
  const { heads, kvHeads, headDim } = arch;
  recordAttentionScores(
    r,
    [workspace.meta, state.q.view, state.k, workspace.scores],
    {
      rows: chunk.rows,
      rowOffset: chunk.first,
      heads,
      kvHeads,
      d4: headDim / 4,
      aStride4: state.q.stride / 4,
      cacheLength: workspace.shape.cacheLength,
      bStride4: workspace.kvWidth / 4,
      sStride4: padded(keys) / 4,
      scale: 1 / Math.sqrt(headDim),
    },
    keys,
    workspace.rowsTogether,
  );
  recordAttentionSoftmax(r, [workspace.meta, workspace.scores], {
    rows: chunk.rows,
    rowOffset: chunk.first,
    heads,
    sStride: padded(keys),
  });
}

/** Records silu(gate) * up of a layer into the workspace's activation buffer. */
export function recordSwiglu(
  r: Recorder,
  arch: Architecture,
  workspace: Workspace,
  state: LayerState,
  rows: number,
): void {
  const c4 = padded(arch.intermediateSize) / 4;
  const params = { rows, c4, inStride4: state.gateUp.stride / 4, upOffset4: c4 };
  r.dispatch(swiglu, [state.gateUp.view, workspace.activation.view], params, swigluGrid(rows, c4));
}

/** Records one layer: its input stands in the workspace, its output goes to the next layer's input. */
export function recordLayer(
  r: Recorder,
  model: GpuModel,
  workspace: Workspace,
  layer: number,
  adapter: ActiveAdapter | null,
  rows: number,
  keys: number,
): void {
  const arch = model.architecture;
  const weights = model.layers[layer]!;
  const state = workspace.layers[layer]!;
  const { heads, kvHeads, headDim } = arch;
  const residualBytes = rows * state.input.stride * 4;
  recordNorm(r, arch, state.input, weights.inputNorm, workspace.normed, rows);
  linearForward(
    r,
    weights.groups.qkv,
    layer,
    'qkv',
    adapter,
    workspace.normed,
    state.z.qkv,
    rows,
    state.qkv,
    matmulMode.overwrite,
  );
  r.dispatch(
    qkNormRope,
    [state.qkv.view, weights.qkGain, model.rope, workspace.meta, state.q.view, state.k, state.v],
    headParams(arch, workspace, rows),
    qkNormRopeGrid(rows, arch),
    { NORM: arch.qkNorm ? 1 : 0 },
  );
  for (const chunk of attentionChunks(workspace, heads, rows, keys)) {
    recordProbabilities(r, arch, workspace, state, chunk, keys);
    recordAttentionValues(
      r,
      [workspace.meta, workspace.scores, state.v, state.attention.view],
      {
        rows: chunk.rows,
        rowOffset: chunk.first,
        heads,
        kvHeads,
        d4: headDim / 4,
        outStride4: state.attention.stride / 4,
        cacheLength: workspace.shape.cacheLength,
        bStride4: workspace.kvWidth / 4,
        sStride4: padded(keys) / 4,
      },
      workspace.rowsTogether,
    );
  }
  if (state.middle !== state.input) r.copy(state.input.view, 0, state.middle.view, 0, residualBytes);
  linearForward(
    r,
    weights.groups.o,
    layer,
    'o',
    adapter,
    state.attention,
    state.z.o,
    rows,
    state.middle,
    matmulMode.add,
  );
  recordNorm(r, arch, state.middle, weights.postNorm, workspace.normed, rows);
  linearForward(
    r,
    weights.groups.gateUp,
    layer,
    'gateUp',
    adapter,
    workspace.normed,
    state.z.gateUp,
    rows,
    state.gateUp,
    matmulMode.overwrite,
  );
  recordSwiglu(r, arch, workspace, state, rows);
  const next = workspace.layers[layer + 1]?.input ?? workspace.output;
  if (next !== state.middle) r.copy(state.middle.view, 0, next.view, 0, residualBytes);
  linearForward(
    r,
    weights.groups.down,
    layer,
    'down',
    adapter,
    workspace.activation,
    state.z.down,
    rows,
    next,
    matmulMode.add,
  );
}

/**
 * Records one pass: rows' keys and values are cached, and the residual stream after the last layer (before the final
 * norm) stands in `workspace.output`. Submits what was recorded before, because the batch is uploaded at once.
 * @throws KernelError `bad-batch` if the batch does not fit.
 */
export function recordForward(
  gpu: Gpu,
  r: Recorder,
  model: GpuModel,
  workspace: Workspace,
  adapter: ActiveAdapter | null,
  batch: Batch,
): void {
  checkBatch(batch, model, workspace);
  r.submit();
  const rows = batch.tokens.length;
  const keys = longestRow(batch);
  const meta = new Uint32Array(rows * 2);
  for (let i = 0; i < rows; i++) meta.set([batch.slots[i]!, batch.positions[i]!], i * 2);
  workspace.rowsTogether = rows / new Set(batch.slots).size;
  upload(gpu, workspace.tokens, batch.tokens);
  upload(gpu, workspace.meta, meta);
  if (workspace.fused) {
    recordFusedForward(gpu, r, model, workspace, adapter, batch, meta);
    return;
  }
  const input = workspace.layers[0]!.input;
  const c4 = padded(model.architecture.hiddenSize) / 4;
  for (const part of model.embedding.parts) {
    r.dispatch(
      embed,
      [workspace.tokens, part.view, input.view],
      { rows, c4, outStride4: input.stride / 4, firstRow: part.firstRow, tableRows: part.rows },
      embedGrid(rows, c4),
      { BF16: model.embedding.bf16 ? 1 : 0 },
    );
  }
  for (let layer = 0; layer < model.layers.length; layer++)
    recordLayer(r, model, workspace, layer, adapter, rows, keys);
}
