// Inputs for qualification cases: deterministic values with outliers, in the layouts that kernels read.
// Not random in the statistical sense; hard on purpose (outliers x40, equal rows, zeros).
import { philox4x32 } from '../lib/rng.ts';

/** Unit roundoff of f32, 2^-24: the error of one rounding is at most |x| times this. */
export const unit = 2 ** -24;

/** `count` values, roughly uniform in [-1, 1], every 37th one forty times larger, already rounded to f32. */
export function testValues(count: number, seed: number, scale = 1): Float32Array<ArrayBuffer> {
  const out = new Float32Array(count);
  for (let i = 0; i < count; i += 4) {
    const words = philox4x32([i, 0, 0, 0], [seed, 0x7e57]);
    for (let j = 0; j < 4 && i + j < count; j++) {
      const value = (words[j]! / 2 ** 31 - 1) * scale;
      out[i + j] = (i + j) % 37 === 36 ? value * 40 : value;
    }
  }
  return out;
}

/** A row-major matrix [rows, columns] laid out with row stride `stride`; the padding is `fill`. */
export function withStride(
  values: Float32Array,
  rows: number,
  columns: number,
  stride: number,
  fill = 0,
): Float32Array<ArrayBuffer> {
  const out = new Float32Array(rows * stride).fill(fill);
  for (let r = 0; r < rows; r++) out.set(values.subarray(r * columns, (r + 1) * columns), r * stride);
  return out;
}

/** Rounds values to bf16 (nearest, ties to even) and returns them as f32. */
export function roundBf16(values: Float32Array): Float32Array<ArrayBuffer> {
  const words = new Uint32Array(Float32Array.from(values).buffer);
  for (let i = 0; i < words.length; i++)
    words[i] = ((words[i]! + 0x7fff + ((words[i]! >>> 16) & 1)) & 0xffff0000) >>> 0;
  return new Float32Array(words.buffer);
}

/** Packs values that are exact in bf16, two a word, the lower half first. */
export function packBf16(values: Float32Array): Uint32Array<ArrayBuffer> {
  const words = new Uint32Array(values.buffer, values.byteOffset, values.length);
  const out = new Uint32Array(Math.ceil(values.length / 2));
  for (let i = 0; i < values.length; i++) out[i >> 1]! |= i % 2 === 0 ? words[i]! >>> 16 : words[i]! & 0xffff0000;
  return out;
}
