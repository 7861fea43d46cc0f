// Rows for a product by subgroup matrices: as they are, normalised or gated, rounded to f16, with LoRA's A x on the way.
// Not the product. Invariant: a row's bits depend on that row and on A alone, whatever the number of rows or of
// workgroups that share a row.
import type { View } from '../gpu/buffers.ts';
import { ceilDiv, constantsOnce, type KernelCase, padded, type QualifiedKernel } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { KernelError } from '../lib/errors.ts';
import { joinedReference } from './attention-join.ts';
import { type CachedShape, decodeShapes } from './cached-attention-cases.ts';
import { testValues, unit, withStride } from './case-data.ts';
import { packedWidth } from './matrix-tiles.ts';
import { rmsnormReference } from './rmsnorm.ts';
import { gateUpValues, sigmoidError } from './swiglu.ts';

/** What a row is made from; the shader's SOURCE. */
export const rowSource = { plain: 0, norm: 1, swiglu: 2, joined: 3 } as const;

type Source = keyof typeof rowSource;

/** Outputs of z that one workgroup makes: few while there are few rows, so that they are made at the same time. */
function perGroup(rows: number, width: number): number {
  return rows > 64 ? Math.max(width, 1) : 4;
}

/** `headDim`: of the heads that a row is joined from; other sources keep no factors of chunks. */
function launch(source: Source, rows: number, k4: number, width: number, each: number, headDim: number | undefined) {
  const row4 = ceilDiv(k4, 256) * 256;
  return {
    grid: [rows, Math.max(1, ceilDiv(width, each)), 1] as const,
    constants: constantsOf(source, row4, headDim ? headDim / 4 : row4),
  };
}

const once = constantsOnce<string>();
const constantsOf = (source: Source, row4: number, d4: number) =>
  once(`${source} ${row4} ${d4}`, () => ({ SOURCE: rowSource[source], ROW4: row4, D4: d4 }));

/** Values and bounds of the rows before they are rounded, in f64. */
function rowsReference(
  source: Exclude<Source, 'joined'>,
  x: Float32Array,
  gain: Float32Array,
  rows: number,
  columns: number,
) {
  if (source === 'norm') return rmsnormReference(x, gain, rows, columns, 1e-6);
  const values = new Float64Array(rows * columns);
  const bounds = new Float64Array(rows * columns);
  const stride = x.length / rows;
  for (let m = 0; m < rows; m++) {
    for (let c = 0; c < columns; c++) {
      const g = x[m * stride + c]!;
      const at = m * columns + c;
      if (source === 'plain') values[at] = g;
      else {
        values[at] = (g / (1 + Math.exp(Math.min(-g, 80)))) * x[m * stride + stride / 2 + c]!;
        bounds[at] = (sigmoidError(g) + 6 * unit) * Math.abs(values[at]!) + 1e-37;
      }
    }
  }
  return { values, bounds };
}

/** A row's source in a case: what the kernel reads, and what it makes of it. */
interface CaseRows {
  source: Source;
  rows: number;
  columns: number;
  x: Float32Array<ArrayBuffer>;
  gain: Float32Array<ArrayBuffer>;
  meta: Uint32Array<ArrayBuffer>;
  chunks: number;
  headDim: number;
  values: Float64Array;
  bounds: Float64Array;
}

function caseRows(source: Exclude<Source, 'joined'>, rows: number, columns: number): CaseRows {
  const k4 = padded(columns) / 4;
  const x = source === 'swiglu' ? gateUpValues(rows, k4) : testValues(rows * columns, 171 + columns);
  const gain = testValues(columns, 172, 1.5);
  const found = rowsReference(source, x, gain, rows, columns);
  const stored = source === 'swiglu' ? x : withStride(x, rows, columns, k4 * 4);
  return { source, rows, columns, x: stored, gain, meta: new Uint32Array(2), chunks: 0, headDim: 128, ...found };
}

function joinedRows(shape: CachedShape): CaseRows {
  const { heads, partials, ...rest } = joinedReference(shape);
  const columns = heads * rest.headDim;
  return { source: 'joined', columns, x: partials, gain: new Float32Array(columns), ...rest };
}

/**
 * A case. The bound of z: the sum has at most columns / 1024 * 4 + 28 roundings, and the values' own errors enter. A packed
 * value may be off by its own error and half a unit of f16: 2^-11 of it, or 2^-25 where it is subnormal.
 */
function makeCase(given: CaseRows, width: number, each: number): KernelCase {
  const { source, rows, columns, gain, x, meta, chunks, headDim } = given;
  const k4 = padded(columns) / 4;
  const a = testValues(width * columns, 173, 0.1);
  const packed = packedWidth(columns);
  const values = new Float64Array(rows * packed);
  const bounds = new Float64Array(rows * packed);
  const scales = new Float64Array(rows);
  const zStride = padded(Math.max(width, 4));
  const z = new Float64Array(rows * zStride).fill(Number.NaN);
  const zBounds = new Float64Array(rows * zStride);
  for (let m = 0; m < rows; m++) {
    const row = given.values.subarray(m * columns, (m + 1) * columns);
    const errors = given.bounds.subarray(m * columns, (m + 1) * columns);
    const top = row.reduce((most, v) => Math.max(most, Math.abs(v)), 0);
    const e = Math.min(126, 14 - Math.floor(Math.log2(top)));
    scales[m] = 2 ** -e;
    for (let c = 0; c < columns; c++) {
      const scaled = row[c]! * 2 ** e;
      values[m * packed + c] = scaled;
      bounds[m * packed + c] = errors[c]! * 2 ** e + Math.max(Math.abs(scaled) * 2 ** -11, 2 ** -25) * 1.001;
    }
    for (let j = 0; j < width; j++) {
      let sum = 0;
      let bound = 0;
      for (let c = 0; c < columns; c++) {
        const w = a[j * columns + c]!;
        sum += w * row[c]!;
        bound += Math.abs(w) * (errors[c]! + ((columns / 1024) * 4 + 28) * unit * Math.abs(row[c]!));
      }
      z[m * zStride + j] = sum;
      zBounds[m * zStride + j] = bound + 1e-37;
    }
  }
  const { grid, constants } = launch(source, rows, k4, width, each, source === 'joined' ? headDim : undefined);
  const swiglu = source === 'swiglu';
  return {
    name: `${source} ${rows}x${columns}, z ${width} by ${each}`,
    params: {
      rows,
      columns,
      k4,
      xStride4: swiglu ? 2 * k4 : k4,
      upOffset4: k4,
      packed2: packed / 4,
      width,
      zStride,
      perGroup: each,
      chunks,
      eps: 1e-6,
    },
    grid,
    constants,
    inputs: {
      x,
      gain: withStride(gain, 1, columns, k4 * 4),
      a: withStride(a.length > 0 ? a : new Float32Array(columns), Math.max(width, 1), columns, k4 * 4),
      meta,
    },
    expected: {
      packed: { values, bounds, halves: true },
      scales: { values: scales, bounds: new Float64Array(rows) },
      z: { values: z, bounds: zBounds },
    },
  };
}

/** The last has more chunks than are joined at a time. */
const joinedShapes: CachedShape[] = [
  ...decodeShapes,
  {
    heads: 3,
    kvHeads: 1,
    headDim: 16,
    places: [
      [0, 1100],
      [1, 1023],
      [2, 40],
    ],
  },
];

export const matrixRows: QualifiedKernel = {
  name: 'matrix-rows',
  bindings: [
    { name: 'x', access: 'read' },
    { name: 'gain', access: 'read' },
    { name: 'a', access: 'read' },
    { name: 'packed', access: 'read_write' },
    { name: 'scales', access: 'read_write' },
    { name: 'z', access: 'read_write' },
    { name: 'meta', access: 'read' },
  ],
  params: [
    ['rows', 'u32'],
    ['columns', 'u32'],
    ['k4', 'u32'],
    ['xStride4', 'u32'],
    ['upOffset4', 'u32'],
    ['packed2', 'u32'],
    ['width', 'u32'],
    ['zStride', 'u32'],
    ['perGroup', 'u32'],
    ['chunks', 'u32'],
    ['eps', 'f32'],
  ],
  constants: { SOURCE: 0, ROW4: 256, D4: 256 },
  cases: () => [
    makeCase(caseRows('plain', 3, 258), 0, 8),
    makeCase(caseRows('plain', 2, 1030), 5, 4),
    makeCase(caseRows('norm', 5, 64), 16, 8),
    makeCase(caseRows('norm', 2, 1028), 48, 8),
    makeCase(caseRows('norm', 3, 260), 48, 48),
    makeCase(caseRows('swiglu', 2, 96), 20, 8),
    makeCase(caseRows('swiglu', 3, 1280), 16, 16),
    ...joinedShapes.map((shape, i) => makeCase(joinedRows(shape), i === 0 ? 0 : 12 + i, 4)),
  ],
};

/** Chunks of attention that are joined at a time; the shader's WINDOW. */
const joinedAtOnce = 16;

/** Bytes of workgroup memory for rows of a width; `headDim`: of the heads that they are joined from. */
export function rowsStorage(columns: number, headDim?: number): number {
  const row4 = ceilDiv(columns, 1024) * 256;
  const heads = headDim ? Math.floor((row4 * 4) / headDim) : 1;
  return row4 * 16 + 5 * 1024 + 16 + heads * (joinedAtOnce * 8 + 4);
}

export interface RowsShape {
  rows: number;
  /** Width of a row, and of its storage in f32. */
  columns: number;
  xStride: number;
  /** Where the up half starts, for `swiglu`. */
  upOffset?: number;
  /** RMSNorm's epsilon, for `norm`. */
  eps?: number;
  /** LoRA's A, [width, padded(columns)] f32, and the row stride of z; absent without an adapter. */
  lora?: { a: View; width: number; z: View; zStride: number } | undefined;
  /** For `joined`: rows' places, the chunks that attention-partial laid out, the heads' size. */
  join?: { meta: View; chunks: number; headDim: number } | undefined;
}

/**
 * Records the packing of `shape.rows` rows of x (`joined`: of attention-partial's results) into `packed` and `scales` and,
 * with `lora`, z = x A^T.
 * `gain`: [padded(columns)] f32 for `norm`, any buffer otherwise.
 * @throws KernelError `row-too-wide` if a row does not fit the workgroup memory.
 */
export function recordRows(
  r: Recorder,
  source: Source,
  x: View,
  gain: View,
  packed: View,
  scales: View,
  shape: RowsShape,
  spare: View,
): void {
  const { rows, columns, lora, join } = shape;
  const k4 = padded(columns) / 4;
  const width = lora?.width ?? 0;
  const each = perGroup(rows, width);
  const { grid, constants } = launch(source, rows, k4, width, each, join?.headDim);
  const bytes = rowsStorage(columns, join?.headDim);
  const room = r.workgroupBytes;
  if (bytes > room) {
    const message = `packing rows of ${columns}: they need ${bytes} bytes of workgroup memory, the adapter has ${room}; use the family portable.`;
    throw new KernelError('row-too-wide', message);
  }
  const params = {
    rows,
    columns,
    k4,
    xStride4: shape.xStride / 4,
    upOffset4: (shape.upOffset ?? 0) / 4,
    packed2: packedWidth(columns) / 4,
    width,
    zStride: lora?.zStride ?? 0,
    perGroup: each,
    chunks: join?.chunks ?? 0,
    eps: shape.eps ?? 0,
  };
  const views = [x, gain, lora?.a ?? gain, packed, scales, lora?.z ?? spare, join?.meta ?? gain] as const;
  r.dispatch(matrixRows, views, params, grid, constants);
}
