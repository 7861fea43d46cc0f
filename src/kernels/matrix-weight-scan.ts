// Looks a bf16 matrix over: its largest magnitude, and how many elements f16 cannot hold after a shift of the exponent.
// Not a conversion: the products convert while they stage. Invariant: integer maximum and count, in any order the same.
import type { KernelCase, QualifiedKernel } from '../gpu/kernel.ts';
import { f16ToF32, f32ToF16 } from '../lib/half.ts';
import { packBf16, roundBf16, testValues } from './case-data.ts';

/** `shift` is passed to the kernel plus this, so that it is never negative. */
export const shiftBias = 256;

function makeCase(name: string, w: Float32Array<ArrayBuffer>, shift: number | null): KernelCase {
  const top = w.reduce((most, v) => Math.max(most, Math.abs(v)), 0);
  const inexact = w.filter((v) => v !== 0 && f16ToF32(f32ToF16(v * 2 ** (shift ?? 0))) !== v * 2 ** (shift ?? 0));
  const bits = new Uint32Array(Float32Array.of(top).buffer)[0]! >>> 16;
  return {
    name: `${w.length} ${name}, ${shift === null ? 'largest' : `shift ${shift}`}`,
    constants: { COUNT: shift === null ? 0 : 1 },
    params: { words: w.length / 2, shift: (shift ?? 0) + shiftBias },
    grid: [3, 1, 1],
    inputs: { w: packBf16(w), tally: new Uint32Array(2) },
    expected: { tally: shift === null ? Uint32Array.of(bits, 0) : Uint32Array.of(0, inexact.length) },
  };
}

const spread = () => roundBf16(testValues(3000, 61).map((v, i) => v * 2 ** -(i % 60)));

export const matrixWeightScan: QualifiedKernel = {
  name: 'matrix-weight-scan',
  bindings: [
    { name: 'w', access: 'read' },
    { name: 'tally', access: 'read_write' },
  ],
  params: [
    ['words', 'u32'],
    ['shift', 'u32'],
  ],
  constants: { COUNT: 0 },
  cases: () => [
    makeCase('plain', roundBf16(testValues(2000, 60)), null),
    makeCase('plain', roundBf16(testValues(2000, 60)), 0),
    makeCase('over sixty octaves', spread(), null),
    makeCase('over sixty octaves', spread(), 8),
    makeCase('over sixty octaves', spread(), -4),
    makeCase('over sixty octaves', spread(), 14),
  ],
};
