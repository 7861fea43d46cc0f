// 16-bit floats, bfloat16 and IEEE binary16, to and from f32, one value or a whole array at a time.
// Not a storage format: safetensors.ts says which bytes hold which dtype.
// Invariant: widening is exact; narrowing rounds an f32 to nearest, ties to even, like PyTorch; bytes are
// little-endian.

const scratchF32 = new Float32Array(1);
const scratchU32 = new Uint32Array(scratchF32.buffer);

/** Float dtypes that `decodeToF32` takes, as safetensors spells them. */
export type FloatDtype = 'BF16' | 'F16' | 'F32' | 'F64';

/** The f32 value of a bfloat16 bit pattern (the low 16 bits of `bits`). Exact. */
export function bf16ToF32(bits: number): number {
  scratchU32[0] = bits << 16;
  return scratchF32[0]!;
}

/** Rounds the bits of an f32 to bfloat16, ties to even. Every NaN becomes 0x7fc0, as in PyTorch. */
function roundBitsToBf16(bits: number): number {
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0;
  // The lowest kept bit decides ties; a carry out of the mantissa correctly steps the exponent, up to infinity.
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

/** The bfloat16 bit pattern nearest to `x`, ties to even. A value that is no f32 is rounded to f32 first. */
export function f32ToBf16(x: number): number {
  scratchF32[0] = x;
  return roundBitsToBf16(scratchU32[0]!);
}

/** The f32 value of a binary16 bit pattern (the low 16 bits of `bits`). Exact, subnormals included. */
export function f16ToF32(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >>> 10) & 0x1f;
  const mantissa = bits & 0x3ff;
  if (exponent === 31) return mantissa === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  if (exponent === 0) return sign * mantissa * 2 ** -24;
  return sign * (1024 + mantissa) * 2 ** (exponent - 25);
}

/**
 * The binary16 bit pattern nearest to `x`, ties to even: subnormals are kept, 65520 and above become infinity, NaN
 * 0x7e00 with the sign kept. A value that is no f32 is rounded to f32 first.
 */
export function f32ToF16(x: number): number {
  scratchF32[0] = x;
  const bits = scratchU32[0]!;
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (magnitude >= 0x477ff000) return sign | 0x7c00;
  if (magnitude >= 0x38800000) {
    const rebased = magnitude - 0x38000000;
    return sign | ((rebased + 0xfff + ((rebased >>> 13) & 1)) >>> 13);
  }
  // At most half of the smallest subnormal, 2^-25: the tie goes to zero, which is even.
  if (magnitude <= 0x33000000) return sign;
  const shift = 126 - (magnitude >>> 23);
  const mantissa = (magnitude & 0x7fffff) | 0x800000;
  const kept = mantissa >>> shift;
  const rest = mantissa & ((1 << shift) - 1);
  const half = 1 << (shift - 1);
  return sign | (rest > half || (rest === half && (kept & 1) === 1) ? kept + 1 : kept);
}

const bytesPerElement: Record<FloatDtype, number> = { BF16: 2, F16: 2, F32: 4, F64: 8 };

/**
 * Little-endian bytes of one dtype as a new f32 array. Exact for BF16, F16 and F32; F64 is rounded to nearest.
 * Throws RangeError if the length is no multiple of the element size.
 */
export function decodeToF32(bytes: Uint8Array, dtype: FloatDtype): Float32Array<ArrayBuffer> {
  const width = bytesPerElement[dtype];
  if (bytes.length % width !== 0) {
    throw new RangeError(`decoding ${dtype}: ${bytes.length} bytes are no multiple of ${width}; pass whole elements.`);
  }
  const count = bytes.length / width;
  const buffer = alignedBuffer(bytes, width);
  const from = buffer === bytes.buffer ? bytes.byteOffset : 0;
  if (dtype === 'F32') return new Float32Array(buffer, from, count).slice();
  if (dtype === 'F64') return Float32Array.from(new Float64Array(buffer, from, count));
  const halves = new Uint16Array(buffer, from, count);
  const out = new Float32Array(count);
  if (dtype === 'BF16') {
    const outBits = new Uint32Array(out.buffer);
    for (let i = 0; i < count; i++) outBits[i] = halves[i]! << 16;
  } else {
    for (let i = 0; i < count; i++) out[i] = f16ToF32(halves[i]!);
  }
  return out;
}

/** Each f32 rounded to bfloat16, ties to even: bit patterns, same length. */
export function encodeBf16(values: Float32Array): Uint16Array<ArrayBuffer> {
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
  const out = new Uint16Array(values.length);
  for (let i = 0; i < bits.length; i++) out[i] = roundBitsToBf16(bits[i]!);
  return out;
}

/**
 * The buffer behind `bytes`, or a copy of just these bytes where typed arrays of `width` cannot start at their offset.
 */
function alignedBuffer(bytes: Uint8Array, width: number): ArrayBufferLike {
  return bytes.byteOffset % width === 0 ? bytes.buffer : bytes.slice().buffer;
}
