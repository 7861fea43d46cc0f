// The backward pass of the matrix family's fused forward pass, layer by layer from the last; the base model is frozen.
// Not the loss: the gradient of the residual stream after the last layer comes in through `backward.dx`. Rounding of
// activations and of the cache counts as the identity. Invariant: no atomics; sums in an order that widths and rows'
// indices alone decide.
import { upload } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import { padded } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { flashRows, flashTiles } from '../kernels/attention-flash.ts';
import { flashRuns, recordAttentionFlashBackward } from '../kernels/attention-flash-backward.ts';
import { recordCacheRowsBackward } from '../kernels/cache-rows-backward.ts';
import { swigluGrid } from '../kernels/swiglu.ts';
import { swigluBackward } from '../kernels/swiglu-backward.ts';
import type { AdapterViews } from './adapter-gpu.ts';
import { recordNormBackward } from './backward.ts';
import { type Batch, headParams, longestRow, recordNorm, recordSwiglu } from './forward.ts';
import { type FusedAdapter, fusedAdapter } from './fused-adapter.ts';
import { recordFusedLayer } from './fused-forward.ts';
import { recordInputGradient } from './input-gradient.ts';
import type { ActiveAdapter, Rows } from './linear.ts';
import { loraPartialElements, loraPlace, recordLoraBackward } from './lora-backward.ts';
import { packRows } from './matrix-linear.ts';
import { matrixOperand } from './matrix-weights.ts';
import type { GpuModel, GroupName } from './weights.ts';
import type { BackwardBuffers, LayerState, Workspace } from './workspace.ts';

interface BackwardPass {
  r: Recorder;
  model: GpuModel;
  workspace: Workspace;
  back: BackwardBuffers;
  adapter: ActiveAdapter;
  fused: FusedAdapter;
  gradients: AdapterViews;
  rows: number;
  attention: { tiles: number; runs: number; keys: number; tileRows: 32 | 16 };
}

/** Gradients of a fused layer's LoRA and, unless `dx` is null, of its input. */
function linear(pass: BackwardPass, layer: number, name: GroupName, x: Rows, dOut: Rows, dx: Rows | null): void {
  const { r, model, workspace, back, adapter, fused, gradients, rows } = pass;
  const group = model.layers[layer]!.groups[name];
  const lora = adapter.layout.layers[layer]?.[name];
  const b = fused.groups[layer]?.[name];
  const z = workspace.layers[layer]!.z[name];
  const dz = { view: back.dz.view, stride: z.stride };
  if (lora && b) {
    const place = loraPlace(group, lora);
    const partial = workspace.fused!.scratch(loraPartialElements(place, adapter.layout.rank, rows, z.stride));
    const views = { stride4: b.bStride4, offset4: b.bOffset4, view: fused.copy };
    recordLoraBackward(r, partial, adapter.layout, {
      rows,
      place,
      dOut,
      x,
      z,
      dz,
      b: views,
      gradient: gradients.flat,
    });
  }
  if (!dx) return;
  const operand = matrixOperand(group.weight)!;
  const packed = packRows(r, operand, dOut, rows, group.weight.rows);
  const a = lora && b ? { dz, a: adapter.views.layers[layer]![name]!.a, width: b.width } : null;
  recordInputGradient(r, operand, group.weight, packed, rows, dx, a);
}

function attend(pass: BackwardPass, state: LayerState): void {
  const { r, model, workspace, back, rows, attention } = pass;
  const { heads, kvHeads, headDim } = model.architecture;
  const { tiles, runs, stats } = workspace.fused!;
  recordAttentionFlashBackward(
    r,
    {
      tiles,
      runs,
      q: state.q.view,
      k: state.k,
      v: state.v,
      scales: state.cacheScales!,
      out: state.attention.view,
      lse: state.lse!,
      dOut: back.dAttention.view,
      stats,
      dq: back.dq.view,
      dk: back.dk,
      dv: back.dv,
    },
    {
      rows,
      heads,
      kvHeads,
      headDim,
      qStride: state.q.stride,
      outStride: state.attention.stride,
      cacheLength: workspace.shape.cacheLength,
      kvStride: workspace.kvWidth,
    },
    attention,
    attention.tileRows,
  );
}

function layerBackward(pass: BackwardPass, layer: number): void {
  const { r, model, workspace, back, rows } = pass;
  const arch = model.architecture;
  const { inputNorm, postNorm, qkGain } = model.layers[layer]!;
  const state = workspace.layers[layer]!;
  const c4 = padded(arch.intermediateSize) / 4;
  const dGateUp: Rows = { view: back.dWide.view, stride: 2 * padded(arch.intermediateSize) };
  const dQkv: Rows = { view: back.dWide.view, stride: (arch.heads + 2 * arch.kvHeads) * arch.headDim };
  recordSwiglu(r, arch, workspace, state, rows);
  linear(pass, layer, 'down', workspace.activation, back.dx, back.dActivation);
  r.dispatch(
    swigluBackward,
    [state.gateUp.view, back.dActivation.view, dGateUp.view],
    { rows, c4, inStride4: dGateUp.stride / 4, upOffset4: c4 },
    swigluGrid(rows, c4),
  );
  recordNorm(r, arch, state.middle, postNorm, workspace.normed, rows);
  linear(pass, layer, 'gateUp', workspace.normed, dGateUp, back.dNormed);
  recordNormBackward(r, arch, state.middle, postNorm, back.dNormed, back.dx, rows, true);
  linear(pass, layer, 'o', state.attention, back.dx, back.dAttention);
  attend(pass, state);
  recordCacheRowsBackward(
    r,
    [state.qkv.view, qkGain, model.rope, workspace.meta, back.dq.view, back.dk, back.dv, dQkv.view],
    headParams(arch, workspace, rows),
    arch.qkNorm,
  );
  recordNorm(r, arch, state.input, inputNorm, workspace.normed, rows);
  // The first layer's input is the frozen embedding.
  linear(pass, layer, 'qkv', workspace.normed, dQkv, layer > 0 ? back.dNormed : null);
  if (layer > 0) recordNormBackward(r, arch, state.input, inputNorm, back.dNormed, back.dx, rows, true);
}

/**
 * Records the backward pass of the batch that the fused forward pass ran last in a training workspace: see
 * `recordBackward`, which calls it. @throws what the kernels' launches throw.
 */
export function recordFusedBackward(
  gpu: Gpu,
  r: Recorder,
  model: GpuModel,
  workspace: Workspace,
  back: BackwardBuffers,
  adapter: ActiveAdapter,
  batch: Batch,
  gradients: AdapterViews,
): void {
  const fusedBuffers = workspace.fused!;
  const meta = Uint32Array.from(Array.from(batch.slots, (slot, i) => [slot, batch.positions[i]!]).flat());
  const tileRows = flashRows(model.architecture.headDim, r.workgroupBytes);
  const tiles = flashTiles(meta, tileRows);
  const runs = flashRuns(meta);
  r.submit();
  upload(gpu, fusedBuffers.tiles, tiles);
  upload(gpu, fusedBuffers.runs, runs);
  const attention = { tiles: tiles.length / 4, runs: runs.length / 4, keys: longestRow(batch), tileRows };
  const fused = fusedAdapter(gpu, model, adapter);
  const rows = batch.tokens.length;
  const pass: BackwardPass = { r, model, workspace, back, adapter, fused, gradients, rows, attention };
  const again = { r, gpu, model, workspace, adapter, rows, attention };
  for (let layer = model.layers.length - 1; layer >= 0; layer--) {
    if (workspace.shape.recompute) recordFusedLayer(again, layer);
    layerBackward(pass, layer);
  }
}
