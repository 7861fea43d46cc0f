// The forward pass of the matrix family: a layer in ten dispatches, nine where rows attend one by one; the same for
// decoding, prefill, reference and training. Not the portable pass (forward.ts) and not its bits. Invariant: a row's
// bits depend on its token, its position and its slot's cache alone; keys and values are rounded to 16 bit when they are
// cached, for every reader.
import { upload, type View } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import { padded } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { flashRows, flashTiles, recordAttentionFlash } from '../kernels/attention-flash.ts';
import { recordAttentionPartial } from '../kernels/attention-partial.ts';
import { recordCacheRows } from '../kernels/cache-rows.ts';
import { chunkKeys } from '../kernels/cached-attention-cases.ts';
import { embed, embedGrid } from '../kernels/embed.ts';
import { matmulMode } from '../kernels/matmul.ts';
import { type RowsShape, recordRows } from '../kernels/matrix-rows.ts';
import type { Batch } from './forward.ts';
import { fusedAdapter, recordTranspose } from './fused-adapter.ts';
import type { ActiveAdapter, Rows } from './linear.ts';
import { type ProductLora, recordProduct } from './matrix-product.ts';
import { matrixOperand } from './matrix-weights.ts';
import type { GpuModel, GroupName } from './weights.ts';
import type { FusedBuffers, LayerState, Workspace } from './workspace.ts';

/** How a pass attends: chunks of keys a row for few rows, or tiles of rows. */
export type AttentionPlan = { chunks: number } | { tiles: number; tileRows: 32 | 16 };

/** What all layers of a pass share. */
export interface FusedPass {
  r: Recorder;
  gpu: Gpu;
  model: GpuModel;
  workspace: Workspace;
  adapter: ActiveAdapter | null;
  rows: number;
  attention: AttentionPlan;
}

function buffersOf(workspace: Workspace): FusedBuffers {
  return workspace.fused!;
}

/** The LoRA of a group: A and z for the packing, B for the product. */
function loraOf(pass: FusedPass, layer: number, name: GroupName, z: Rows) {
  const { adapter, gpu, model } = pass;
  if (!adapter) return null;
  const fused = fusedAdapter(gpu, model, adapter);
  const group = fused.groups[layer]?.[name];
  if (!group) return null;
  const { rank, scale } = adapter.layout;
  const product: ProductLora = { z, b: fused.copy, group, rank, scale };
  const a = adapter.views.layers[layer]![name]!.a;
  return { product, rows: { a, width: group.width, z: z.view, zStride: z.stride } };
}

/** Where a product's rows come from. */
interface RowsFrom {
  kind: 'plain' | 'norm' | 'swiglu' | 'joined';
  x: Rows;
  gain?: View;
  upOffset?: number;
  join?: RowsShape['join'];
}

/** Packs rows of `source` and multiplies them by a group's matrix. */
function linear(
  pass: FusedPass,
  layer: number,
  name: GroupName,
  source: RowsFrom,
  z: Rows,
  out: Rows,
  mode: number,
): void {
  const { r, model, workspace, rows } = pass;
  const { packed, scales, spare } = buffersOf(workspace);
  const { weight, inWidth } = model.layers[layer]!.groups[name];
  const lora = loraOf(pass, layer, name, z);
  const shape = {
    rows,
    columns: inWidth,
    xStride: source.x.stride,
    upOffset: source.upOffset ?? 0,
    eps: model.architecture.rmsNormEps,
    lora: lora?.rows,
    join: source.join,
  };
  recordRows(r, source.kind, source.x.view, source.gain ?? source.x.view, packed, scales, shape, spare);
  recordProduct(r, matrixOperand(weight)!, weight, { packed, scales }, rows, out, mode, lora?.product ?? null);
}

/** Records attention of a layer's projected rows, with what goes to the cache; returns the rows of o's product. */
function attend(pass: FusedPass, layer: number, state: LayerState): RowsFrom {
  const { r, model, workspace, rows, attention } = pass;
  const { heads, kvHeads, headDim, rmsNormEps, qkNorm } = model.architecture;
  const { partials, tiles, lse } = buffersOf(workspace);
  const { meta } = workspace;
  const raw = state.qkv;
  const cached = {
    rows,
    heads,
    kvHeads,
    headDim,
    rawStride: raw.stride,
    cacheLength: workspace.shape.cacheLength,
    eps: rmsNormEps,
    norm: qkNorm,
  };
  const cache = { k: state.k, v: state.v, scales: state.cacheScales! };
  const gain = model.layers[layer]!.qkGain;
  if ('chunks' in attention) {
    const { chunks } = attention;
    recordAttentionPartial(r, { meta, raw: raw.view, gain, rope: model.rope, ...cache, partials }, cached, chunks);
    return { kind: 'joined', x: { view: partials, stride: 0 }, join: { meta, chunks, headDim } };
  }
  const q = state.q.view;
  const views = [raw.view, gain, model.rope, meta, q, cache.k, cache.v, cache.scales];
  recordCacheRows(r, views, { ...cached, qStride: state.q.stride });
  const out = state.attention;
  const shape = { ...cached, qStride: state.q.stride, outStride: out.stride };
  const { tiles: count, tileRows } = attention;
  recordAttentionFlash(r, { q, ...cache, tiles, out: out.view, lse: state.lse ?? lse }, shape, count, tileRows);
  return { kind: 'plain', x: out };
}

/** Records one layer: its input stands in the workspace, its output goes to the next layer's input. */
export function recordFusedLayer(pass: FusedPass, layer: number): void {
  const { r, model, workspace, rows } = pass;
  const arch = model.architecture;
  const weights = model.layers[layer]!;
  const state = workspace.layers[layer]!;
  const bytes = rows * state.input.stride * 4;
  linear(pass, layer, 'qkv', { kind: 'norm', x: state.input, gain: weights.inputNorm }, state.z.qkv, state.qkv, 0);
  const attended = attend(pass, layer, state);
  if (state.middle !== state.input) r.copy(state.input.view, 0, state.middle.view, 0, bytes);
  linear(pass, layer, 'o', attended, state.z.o, state.middle, matmulMode.add);
  const norm = { kind: 'norm' as const, x: state.middle, gain: weights.postNorm };
  linear(pass, layer, 'gateUp', norm, state.z.gateUp, state.gateUp, matmulMode.overwrite);
  const next = workspace.layers[layer + 1]?.input ?? workspace.output;
  if (next !== state.middle) r.copy(state.middle.view, 0, next.view, 0, bytes);
  const gated = { kind: 'swiglu' as const, x: state.gateUp, upOffset: padded(arch.intermediateSize) };
  linear(pass, layer, 'down', gated, state.z.down, next, matmulMode.add);
}

/** Records embedding and layers over the tokens and places that stand in the workspace; the result in `output`. */
export function recordFusedPass(pass: FusedPass): void {
  const { r, model, workspace, rows } = pass;
  const input = workspace.layers[0]!.input;
  const c4 = padded(model.architecture.hiddenSize) / 4;
  for (const part of model.embedding.parts) {
    r.dispatch(
      embed,
      [workspace.tokens, part.view, input.view],
      { rows, c4, outStride4: input.stride / 4, firstRow: part.firstRow, tableRows: part.rows },
      embedGrid(rows, c4),
      embedConstants[model.embedding.bf16 ? 1 : 0],
    );
  }
  for (let layer = 0; layer < model.layers.length; layer++) recordFusedLayer(pass, layer);
}

/** One object each, so that pipelines are found by identity. */
const embedConstants = [{ BF16: 0 }, { BF16: 1 }] as const;

/** Chunks of keys that a row at `position` sees. */
export function chunksAt(position: number): number {
  return Math.floor(position / chunkKeys) + 1;
}

/** Records the pass over a checked batch that is uploaded already; `meta`: [rows, 2] slot, position. */
export function recordFusedForward(
  gpu: Gpu,
  r: Recorder,
  model: GpuModel,
  workspace: Workspace,
  adapter: ActiveAdapter | null,
  batch: Batch,
  meta: Uint32Array<ArrayBuffer>,
): void {
  const rows = batch.tokens.length;
  const fused = buffersOf(workspace);
  if (adapter) recordTranspose(r, adapter, fusedAdapter(gpu, model, adapter));
  const single = new Set(batch.slots).size === rows && rows <= fused.partialRows;
  let attention: AttentionPlan;
  if (single && !workspace.shape.training) {
    attention = { chunks: batch.positions.reduce((most, position) => Math.max(most, chunksAt(position)), 1) };
  } else {
    const tileRows = flashRows(model.architecture.headDim, r.workgroupBytes);
    const tiles = flashTiles(meta, tileRows);
    upload(gpu, fused.tiles, tiles);
    attention = { tiles: tiles.length / 4, tileRows };
  }
  recordFusedPass({ r, gpu, model, workspace, adapter, rows, attention });
}
