// The buffers of a forward (and backward) pass over a batch of rows, and the KV cache of its slots.
// Not the pass. Invariant: shapes are fixed at creation; padding columns stay zero, because kernels write true widths.
// The fused pass of the matrix family keeps its cache in 16 bit and needs no scores.
import { allocate, release, type View } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import { ceilDiv, padded } from '../gpu/kernel.ts';
import { partialWidth } from '../kernels/attention-partial.ts';
import { chunkKeys } from '../kernels/cached-attention-cases.ts';
import { packedWidth, tallTile } from '../kernels/matrix-tiles.ts';
import type { AdapterLayout } from './adapter-gpu.ts';
import type { Architecture } from './config.ts';
import type { Rows } from './linear.ts';
import { type GroupName, groupNames, groupTargets } from './weights.ts';

export interface WorkspaceShape {
  /** Most rows (tokens) of one pass. */
  rows: number;
  /** Sequences with a KV cache of their own. */
  slots: number;
  /** Positions of each slot; rounded up to a multiple of four, or of a chunk of keys for the fused pass. */
  cacheLength: number;
  /** For a backward pass. */
  training: boolean;
  /**
   * Keep each layer's input alone; the backward pass runs the layer forward again. Same bits, less memory, one more
   * forward pass.
   */
  recompute?: boolean;
  /** Bytes for attention scores; rows are taken in chunks that fit. */
  scoreBytes?: number;
  /** For the matrix family's fused pass: what `runsFused` says of the model. */
  fused?: boolean;
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
  /** [slots, cacheLength, kvWidth] f32; or, fused, [slots, kvHeads, cacheLength, headDim] f16 with `cacheScales`. */
  k: View;
  v: View;
  /** Fused: [slots, kvHeads, cacheLength, 2] f32, of k and of v. */
  cacheScales: View | null;
  /** Fused and training: [rows, heads] f32, the log of the sum of exponentials of a row's scores. */
  lse: View | null;
}

/** What the fused pass needs besides. */
export interface FusedBuffers {
  /** f16 rows as products take them, and their scales. */
  packed: View;
  scales: View;
  /** Attention of few rows, a chunk of keys at a time; room for `partialRows` rows of `chunks` chunks. */
  partials: View;
  partialRows: number;
  chunks: number;
  /** Tiles of rows for attention over many. */
  tiles: View;
  lse: View;
  /** For the backward pass: runs of rows by slot, sums of a row's gradient. */
  runs: View;
  stats: View;
  /** A buffer of at least so many elements for partial sums; layers share it. */
  scratch(elements: number): View;
  /** For bindings that are not used. */
  spare: View;
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
  fused: FusedBuffers | null;
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

/** Rows of attention that go chunk by chunk: a decoding batch of any size that the products take. */
const mostPartialRows = 64;

function fusedBuffers(
  { hiddenSize, intermediateSize, heads, headDim }: Architecture,
  take: (label: string, elements: number) => View,
  { rows, slots, training }: WorkspaceShape,
  cacheLength: number,
): FusedBuffers {
  const tall = ceilDiv(rows, tallTile) * tallTile;
  const widest = Math.max(hiddenSize, heads * headDim, intermediateSize);
  const partialRows = Math.min(rows, mostPartialRows);
  const chunks = cacheLength / chunkKeys;
  let scratch: View | null = null;
  return {
    packed: take('fused.packed', (tall * packedWidth(widest)) / 2),
    scales: take('fused.scales', tall),
    partials: take('fused.partials', partialRows * partialWidth(heads, headDim, chunks)),
    partialRows,
    chunks,
    tiles: take('fused.tiles', rows * 4),
    lse: take('fused.lse', rows * heads),
    runs: take('fused.runs', slots * 4),
    stats: take('fused.stats', training ? rows * heads * 2 : 4),
    scratch(elements) {
      // Commands recorded before still write the smaller one, so it lives as long as the workspace.
      if (!scratch || scratch.size < elements * 4) scratch = take('fused.scratch', elements);
      return scratch;
    },
    spare: take('fused.spare', 4),
  };
}

/** Allocates a workspace. @throws DeviceError `limit-too-small` naming the buffer that does not fit. */
export function createWorkspace(
  gpu: Gpu,
  arch: Architecture,
  layout: AdapterLayout | null,
  wanted: WorkspaceShape,
): Workspace {
  const fused = wanted.fused ?? false;
  const cacheLength = fused ? ceilDiv(wanted.cacheLength, chunkKeys) * chunkKeys : padded(wanted.cacheLength);
  const recompute = (wanted.recompute ?? false) && wanted.training;
  const shape = { scoreBytes: defaultScoreBytes, ...wanted, fused, recompute, cacheLength };
  const { rows, slots } = shape;
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

  function layerState(label: string, input: Rows, middle: Rows): Omit<LayerState, 'k' | 'v' | 'cacheScales'> {
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
      lse: fused && shape.training ? take(`${label}.lse`, rows * heads) : null,
    };
  }

  const output = matrix('output', hiddenSize);
  function layerCache(label: string): Pick<LayerState, 'k' | 'v' | 'cacheScales'> {
    const cache = (slots * cacheLength * kvWidth) / (fused ? 2 : 1);
    return {
      k: take(`${label}.k`, cache),
      v: take(`${label}.v`, cache),
      cacheScales: fused ? take(`${label}.cacheScales`, slots * kvHeads * cacheLength * 2) : null,
    };
  }

  function layersOf(): LayerState[] {
    const each = Array.from({ length: arch.layers }, (_, i) => `layers.${i}`);
    const input = (label: string) => matrix(`${label}.input`, hiddenSize);
    if (!shape.training) {
      const shared = layerState('layer', output, output);
      return each.map((label) => ({ ...shared, ...layerCache(label) }));
    }
    if (shape.recompute) {
      // Whole sequences: a layer's cache is not needed once the layer has run.
      const shared = { ...layerState('layer', output, matrix('layer.middle', hiddenSize)), ...layerCache('layer') };
      return each.map((label) => ({ ...shared, input: input(label) }));
    }
    return each.map((label) => ({
      ...layerState(label, input(label), matrix(`${label}.middle`, hiddenSize)),
      ...layerCache(label),
    }));
  }
  const layers = layersOf();
  const scoreElements = fused
    ? 4
    : heads *
      padded(cacheLength) *
      Math.max(1, Math.min(rows, Math.floor(shape.scoreBytes / (heads * cacheLength * 4))));
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
    fused: fused ? fusedBuffers(arch, take, shape, cacheLength) : null,
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
