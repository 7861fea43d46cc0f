// The buffers of a forward (and backward) pass over a batch of rows, and the KV cache of its slots.
// Not the pass. Invariant: shapes are fixed at creation; padding columns stay zero, because kernels write true widths.
import { allocate, release, type View } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import { ceilDiv, padded } from '../gpu/kernel.ts';
import type { AdapterLayout } from './adapter-gpu.ts';
import type { Architecture } from './config.ts';
import type { Rows } from './linear.ts';
import { type GroupName, groupNames, groupTargets } from './weights.ts';

export interface WorkspaceShape {
  /** Most rows (tokens) of one pass. */
  rows: number;
  /** Sequences with a KV cache of their own. */
  slots: number;
  /** Positions of each slot; rounded up to a multiple of four. */
  cacheLength: number;
  /** Keep every layer's activations for the backward pass. */
  training: boolean;
  /** Bytes for attention scores; rows are taken in chunks that fit. */
  scoreBytes?: number;
}

/** What a layer's backward pass needs of its forward pass. In inference all layers share one set. */
export interface LayerState {
  /** The residual stream before attention, and between attention and MLP. */
  input: Rows;
  middle: Rows;
  qkv: Rows;
  q: Rows;
  attention: Rows;
  gateUp: Rows;
  z: Record<GroupName, Rows>;
  k: View;
  v: View;
}

export interface Workspace {
  shape: Required<WorkspaceShape>;
  tokens: View;
  /** [rows, 2] u32: slot, position. */
  meta: View;
  /** [slots, 2] u32: first row, number of rows; for the backward pass. */
  ranges: View;
  layers: LayerState[];
  /** The residual stream after the last layer. */
  output: Rows;
  normed: Rows;
  activation: Rows;
  scores: View;
  kvWidth: number;
  /** Rows a slot of the batch that the last pass ran, on average: how kernels cut rows into tiles, never their bits. */
  rowsTogether: number;
  backward: BackwardBuffers | null;
  bytes: number;
  destroy(): void;
}

export interface BackwardBuffers {
  dx: Rows;
  dNormed: Rows;
  dWide: Rows;
  dActivation: Rows;
  dq: Rows;
  dAttention: Rows;
  dz: Rows;
  dk: View;
  dv: View;
  dScores: View;
}

const defaultScoreBytes = 64 * 2 ** 20;

/** Most adapted layers that one fused group can have, times the stored rank. */
function loraWidth(layout: AdapterLayout | null, name: GroupName): number {
  return layout ? groupTargets[name].length * layout.rank : 0;
}

/** Allocates a workspace. @throws DeviceError `limit-too-small` naming the buffer that does not fit. */
export function createWorkspace(
  gpu: Gpu,
  arch: Architecture,
  layout: AdapterLayout | null,
  wanted: WorkspaceShape,
): Workspace {
  const shape = { scoreBytes: defaultScoreBytes, ...wanted, cacheLength: padded(wanted.cacheLength) };
  const { rows, slots, cacheLength } = shape;
  const views: View[] = [];
  const take = (label: string, elements: number): View => {
    const view = allocate(gpu, label, elements * 4);
    views.push(view);
    return view;
  };
  const matrix = (label: string, width: number): Rows => ({
    view: take(label, rows * padded(width)),
    stride: padded(width),
  });
  const { hiddenSize, intermediateSize, heads, kvHeads, headDim } = arch;
  const qWidth = heads * headDim;
  const kvWidth = kvHeads * headDim;
  const gateUpWidth = 2 * padded(intermediateSize);

  function layerState(label: string, input: Rows, middle: Rows): Omit<LayerState, 'k' | 'v'> {
    return {
      input,
      middle,
      qkv: matrix(`${label}.qkv`, qWidth + 2 * kvWidth),
      q: matrix(`${label}.q`, qWidth),
      attention: matrix(`${label}.attention`, qWidth),
      gateUp: matrix(`${label}.gateUp`, gateUpWidth),
      z: Object.fromEntries(
        groupNames.map((name) => [name, matrix(`${label}.z.${name}`, Math.max(4, loraWidth(layout, name)))]),
      ) as Record<GroupName, Rows>,
    };
  }

  const output = matrix('output', hiddenSize);
  const shared = shape.training ? null : layerState('layer', output, output);
  const layers = Array.from({ length: arch.layers }, (_, i): LayerState => {
    const label = `layers.${i}`;
    const state =
      shared ?? layerState(label, matrix(`${label}.input`, hiddenSize), matrix(`${label}.middle`, hiddenSize));
    const cache = slots * cacheLength * kvWidth;
    return { ...state, k: take(`${label}.k`, cache), v: take(`${label}.v`, cache) };
  });
  const scoreElements =
    heads * padded(cacheLength) * Math.max(1, Math.min(rows, Math.floor(shape.scoreBytes / (heads * cacheLength * 4))));
  const backward: BackwardBuffers | null = shape.training
    ? {
        dx: matrix('dx', hiddenSize),
        dNormed: matrix('dNormed', hiddenSize),
        dWide: matrix('dWide', Math.max(gateUpWidth, qWidth + 2 * kvWidth)),
        dActivation: matrix('dActivation', intermediateSize),
        dq: matrix('dq', qWidth),
        dAttention: matrix('dAttention', qWidth),
        dz: matrix('dz', Math.max(4, ...groupNames.map((name) => loraWidth(layout, name)))),
        dk: take('dk', slots * cacheLength * kvWidth),
        dv: take('dv', slots * cacheLength * kvWidth),
        dScores: take('dScores', scoreElements),
      }
    : null;
  const workspace: Workspace = {
    shape,
    tokens: take('tokens', rows),
    meta: take('meta', rows * 2),
    ranges: take('ranges', slots * 2),
    layers,
    output,
    normed: matrix('normed', hiddenSize),
    activation: matrix('activation', intermediateSize),
    scores: take('scores', scoreElements),
    kvWidth,
    rowsTogether: 1,
    backward,
    bytes: 0,
    destroy: () => {
      for (const view of views) release(gpu, view);
    },
  };
  workspace.bytes = views.reduce((sum, view) => sum + view.size, 0);
  return workspace;
}

/** Consecutive row ranges whose attention scores fit the score buffer, for rows of at most `keys` keys. */
export function attentionChunks(
  workspace: Workspace,
  heads: number,
  rows: number,
  keys: number,
): { first: number; rows: number }[] {
  const perRow = heads * padded(keys) * 4;
  const most = Math.max(1, Math.min(Math.floor(workspace.scores.size / perRow), Math.floor((65_535 * 4) / heads)));
  return Array.from({ length: ceilDiv(rows, most) }, (_, i) => ({
    first: i * most,
    rows: Math.min(most, rows - i * most),
  }));
}
