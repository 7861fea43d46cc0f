// A minimal safetensors reader and closeness measures for tests of the golden vectors in test/golden.
// Not the product's reader: it shares no code with src/model, so that one can be checked against the other.
// Invariant: numbers are returned exactly (BF16, F32 and I64 are widened to f64; an I64 past 2^53 throws).
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

export interface GoldenTensor {
  dtype: string;
  shape: number[];
  /** Row-major values, widened exactly. */
  data: Float64Array;
}

export interface GoldenFile {
  /** The `__metadata__` strings, each parsed as JSON where it is JSON. */
  metadata: Record<string, unknown>;
  tensors: Map<string, GoldenTensor>;
}

/** The path of a file in test/golden. */
export function goldenPath(name: string): string {
  return fileURLToPath(new URL(`../golden/${name}`, import.meta.url));
}

function parseOrKeep(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const readers: Record<string, { bytes: number; read: (view: DataView, at: number) => number }> = {
  F64: { bytes: 8, read: (view, at) => view.getFloat64(at, true) },
  F32: { bytes: 4, read: (view, at) => view.getFloat32(at, true) },
  BF16: {
    bytes: 2,
    read: (view, at) => {
      const word = new DataView(new ArrayBuffer(4));
      word.setUint32(0, view.getUint16(at, true) * 65_536);
      return word.getFloat32(0);
    },
  },
  I64: {
    bytes: 8,
    read: (view, at) => {
      const value = Number(view.getBigInt64(at, true));
      if (!Number.isSafeInteger(value)) throw new Error(`an I64 value of a golden is past 2^53: ${value}`);
      return value;
    },
  },
};

/** Reads a whole safetensors file of test/golden. */
export function readGolden(name: string): GoldenFile {
  const bytes = readFileSync(goldenPath(name));
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const headerBytes = Number(view.getBigUint64(0, true));
  const header = JSON.parse(bytes.toString('utf8', 8, 8 + headerBytes)) as Record<string, unknown>;
  const metadata: Record<string, unknown> = {};
  const tensors = new Map<string, GoldenTensor>();
  for (const [key, value] of Object.entries(header)) {
    if (key === '__metadata__') {
      for (const [name_, text] of Object.entries(value as Record<string, string>)) metadata[name_] = parseOrKeep(text);
      continue;
    }
    const { dtype, shape, data_offsets } = value as { dtype: string; shape: number[]; data_offsets: [number, number] };
    const reader = readers[dtype];
    if (!reader) throw new Error(`test/golden/${name}: ${key} has dtype ${dtype}, which the golden reader lacks`);
    const count = shape.reduce((product, extent) => product * extent, 1);
    if (data_offsets[1] - data_offsets[0] !== count * reader.bytes)
      throw new Error(`test/golden/${name}: ${key} has ${data_offsets[1] - data_offsets[0]} bytes for shape ${shape}`);
    const start = 8 + headerBytes + data_offsets[0];
    const data = new Float64Array(count);
    for (let i = 0; i < count; i++) data[i] = reader.read(view, start + i * reader.bytes);
    tensors.set(key, { dtype, shape, data });
  }
  return { metadata, tensors };
}

/** A tensor's values; throws where the file has no such tensor. */
export function goldenData(file: GoldenFile, name: string): Float64Array {
  const tensor = file.tensors.get(name);
  if (!tensor) throw new Error(`the golden has no tensor ${name}`);
  return tensor.data;
}

/** A JSON file of test/golden. */
export function readGoldenJson<T>(name: string): T {
  return JSON.parse(readFileSync(goldenPath(name), 'utf8')) as T;
}

/** ||actual - expected|| / ||expected|| (L2). NaN where any value is NaN; Infinity where the lengths differ. */
export function relativeL2(actual: ArrayLike<number>, expected: ArrayLike<number>): number {
  if (actual.length !== expected.length) return Number.POSITIVE_INFINITY;
  let difference = 0;
  let norm = 0;
  for (let i = 0; i < expected.length; i++) {
    difference += (actual[i]! - expected[i]!) ** 2;
    norm += expected[i]! ** 2;
  }
  return norm === 0 ? Math.sqrt(difference) : Math.sqrt(difference / norm);
}

/** max |actual - expected|. NaN where any value is NaN; Infinity where the lengths differ. */
export function maxDifference(actual: ArrayLike<number>, expected: ArrayLike<number>): number {
  if (actual.length !== expected.length) return Number.POSITIVE_INFINITY;
  let worst = 0;
  for (let i = 0; i < expected.length; i++) {
    const difference = Math.abs(actual[i]! - expected[i]!);
    if (Number.isNaN(difference)) return Number.NaN;
    if (difference > worst) worst = difference;
  }
  return worst;
}
