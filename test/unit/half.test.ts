// bf16 and f16 conversion against @petamoriken/float16 and against exact arithmetic on neighbours.
import { f16round, getFloat16, setFloat16 } from '@petamoriken/float16';
import { describe, expect, it } from 'vitest';
import { bf16ToF32, decodeToF32, encodeBf16, f16ToF32, f32ToBf16, f32ToF16 } from '../../src/lib/half.ts';

const f32 = new Float32Array(1);
const u32 = new Uint32Array(f32.buffer);
const fromBits = (bits: number): number => {
  u32[0] = bits;
  return f32[0]!;
};
const toBits = (value: number): number => {
  f32[0] = value;
  return u32[0]!;
};
const view = new DataView(new ArrayBuffer(2));
const oracleWiden = (bits: number): number => {
  view.setUint16(0, bits);
  return getFloat16(view, 0);
};
const oracleNarrow = (value: number): number => {
  setFloat16(view, 0, value);
  return view.getUint16(0);
};
/** Every f32 within two units of each value, on both sides of each point where rounding could turn. */
function* around(value: number): Generator<number> {
  const bits = toBits(value);
  for (let step = -2; step <= 2; step++) yield fromBits(bits + step);
}

describe('f16', () => {
  it('widens all 65,536 patterns as the oracle does, signed zeros included', () => {
    for (let bits = 0; bits < 0x10000; bits++) {
      if (!Object.is(f16ToF32(bits), oracleWiden(bits))) expect.fail(`0x${bits.toString(16)}`);
    }
  });

  it('narrows every f16 value, every midpoint and their f32 neighbours as the oracle does', () => {
    for (let bits = 0; bits < 0x7c00; bits++) {
      const value = f16ToF32(bits);
      const next = bits === 0x7bff ? 65536 : f16ToF32(bits + 1);
      for (const at of [value, (value + next) / 2]) {
        for (const near of around(at)) {
          for (const x of [near, -near]) {
            if (Number.isNaN(x)) continue;
            if (f32ToF16(x) !== oracleNarrow(x)) expect.fail(`${x}: ${f32ToF16(x)} for ${oracleNarrow(x)}`);
          }
        }
      }
    }
  });

  it('narrows a sweep over all f32 exponents as the oracle does', () => {
    for (let bits = 0; bits <= 0x7f800000; bits += 7919) {
      const x = fromBits(bits);
      if (f32ToF16(x) !== oracleNarrow(x)) expect.fail(`${x}`);
    }
  });

  it('turns overflow into infinity, NaN into NaN and keeps infinities', () => {
    expect([65519, 65520, 1e38].map((x) => f16ToF32(f32ToF16(x)))).toEqual([65504, Infinity, Infinity]);
    expect(f16ToF32(f32ToF16(-Infinity))).toBe(-Infinity);
    expect(f16ToF32(f32ToF16(Number.NaN))).toBeNaN();
    expect(f16round(1e38)).toBe(Infinity);
  });
});

describe('bf16', () => {
  it('gives back all 65,536 patterns after widening, NaNs as 0x7fc0', () => {
    for (let bits = 0; bits < 0x10000; bits++) {
      const nan = (bits & 0x7fff) > 0x7f80;
      const back = f32ToBf16(bf16ToF32(bits));
      if (back !== (nan ? 0x7fc0 : bits)) expect.fail(`0x${bits.toString(16)} came back as 0x${back.toString(16)}`);
    }
  });

  it('picks the nearer neighbour, and the even one at a midpoint, around every finite pattern', () => {
    for (let bits = 0; bits < 0x7f80; bits++) {
      const low = bf16ToF32(bits);
      const high = bits === 0x7f7f ? 2 ** 128 : bf16ToF32(bits + 1);
      for (const x of [...around((low + high) / 2), ...around(low)]) {
        if (!(x >= low && x <= high)) continue;
        const [down, up] = [x - low, high - x];
        const expected = down < up || (down === up && bits % 2 === 0) ? bits : bits + 1;
        if (f32ToBf16(x) !== expected) expect.fail(`${x}`);
        if (f32ToBf16(-x) !== (expected | 0x8000)) expect.fail(`${-x}`);
      }
    }
  });

  it('encodes arrays as it encodes numbers, from any offset', () => {
    const values = new Float32Array([9, 1, -2.5, 1e-40, Infinity, Number.NaN, 3.4e38, 0.02]).subarray(1);
    expect([...encodeBf16(values)]).toEqual([...values].map(f32ToBf16));
  });
});

describe('decodeToF32', () => {
  it('reads each dtype from aligned and unaligned bytes alike', () => {
    const values = [0, -1.5, 0.333251953125, 2 ** -24];
    const cases = {
      F32: new Uint8Array(Float32Array.from(values).buffer),
      F64: new Uint8Array(Float64Array.from(values).buffer),
      F16: new Uint8Array(Uint16Array.from(values, f32ToF16).buffer),
      BF16: new Uint8Array(Uint16Array.from(values, f32ToBf16).buffer),
    };
    for (const [dtype, bytes] of Object.entries(cases)) {
      const shifted = new Uint8Array(bytes.length + 1);
      shifted.set(bytes, 1);
      const expected = dtype === 'BF16' ? values.map((x) => bf16ToF32(f32ToBf16(x))) : values;
      for (const input of [bytes, shifted.subarray(1)]) {
        expect([...decodeToF32(input, dtype as keyof typeof cases)]).toEqual(expected);
      }
    }
  });

  it('gives a copy, not a view, and refuses half an element', () => {
    const source = new Float32Array([1, 2]);
    const copy = decodeToF32(new Uint8Array(source.buffer), 'F32');
    source[0] = 7;
    expect([...copy]).toEqual([1, 2]);
    expect(() => decodeToF32(new Uint8Array(3), 'BF16')).toThrow(/3 bytes are no multiple of 2/);
  });
});
