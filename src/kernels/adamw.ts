// The AdamW update in place on flat buffers; the clip coefficient is read from what norm-finish wrote.
// Not the schedule: scalars and the f64 reference are in adamw-reference.ts. Invariant: an element depends on itself.
import { ceilDiv, foldedGrid, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import { type AdamwOptions, adamwReference, adamwScalars } from './adamw-reference.ts';
import { testValues, unit } from './case-data.ts';

/** Grid of `adamw`: one thread an element. */
export function adamwGrid(count: number): [number, number, number] {
  return foldedGrid(ceilDiv(count, 64));
}

function makeCase(count: number, step: number, options: AdamwOptions, scale: number, clip: number): KernelCase {
  const scalars = adamwScalars(step, 5e-3, options);
  const gradient = testValues(count, 71, scale);
  const weights = testValues(count, 72);
  const m = testValues(count, 73, scale / 2);
  const v = testValues(count, 74, scale * scale).map(Math.abs);
  const coefficient = Math.fround(clip);
  const after = { weights: Float64Array.from(weights), m: Float64Array.from(m), v: Float64Array.from(v) };
  adamwReference(after.weights, after.m, after.v, gradient, coefficient, scalars);
  const bounds = {
    weights: new Float64Array(count),
    m: new Float64Array(count),
    v: new Float64Array(count),
  };
  for (let i = 0; i < count; i++) {
    // Roundings: of g, of each product (fma may be unfused) and of each sum.
    const g = Math.abs(coefficient * gradient[i]!);
    const first = scalars.oneMinusBeta1 * g + scalars.beta1 * Math.abs(m[i]!);
    bounds.m[i] = 3 * unit * first + 1e-38;
    bounds.v[i] = 5 * unit * after.v[i]! + 1e-38;
    // sqrt is 1 / inverseSqrt: 4.5 ULP, and half the error of v; then a product and a sum; then a division of 2.5 ULP.
    const denominator = Math.sqrt(after.v[i]!) * scalars.inverseSqrtBias2 + scalars.eps;
    const move = (Math.abs(after.m[i]!) * scalars.inverseBias1) / denominator;
    const moveError = (bounds.m[i]! * scalars.inverseBias1) / denominator + move * (1 + 2.5 + 9 + 2 + 5) * unit;
    bounds.weights[i] = 4 * unit * Math.abs(weights[i]!) + scalars.learningRate * (moveError + 2 * unit * move) + 1e-38;
  }
  return {
    name: `${count} elements, step ${step}, gradients of ${scale}, clip ${clip}, decay ${options.weightDecay}`,
    params: { count, offset: 0, ...scalars },
    grid: adamwGrid(count),
    inputs: { clip: Float32Array.of(123, coefficient), gradient, weights, m, v },
    expected: {
      weights: { values: after.weights, bounds: bounds.weights },
      m: { values: after.m, bounds: bounds.m },
      v: { values: after.v, bounds: bounds.v },
    },
  };
}

/** Scalars: `count`, `offset` (elements) and everything of `adamwScalars`. */
export const adamw: QualifiedKernel = {
  name: 'adamw',
  bindings: [
    { name: 'clip', access: 'read' },
    { name: 'gradient', access: 'read' },
    { name: 'weights', access: 'read_write' },
    { name: 'm', access: 'read_write' },
    { name: 'v', access: 'read_write' },
  ],
  params: [
    ['count', 'u32'],
    ['offset', 'u32'],
    ['learningRate', 'f32'],
    ['beta1', 'f32'],
    ['oneMinusBeta1', 'f32'],
    ['beta2', 'f32'],
    ['oneMinusBeta2', 'f32'],
    ['inverseBias1', 'f32'],
    ['inverseSqrtBias2', 'f32'],
    ['eps', 'f32'],
    ['weightDecay', 'f32'],
  ],
  cases: () => {
    const plain = { beta1: 0.9, beta2: 0.999, eps: 1e-8, weightDecay: 0 };
    const decay = { beta1: 0.8, beta2: 0.95, eps: 1e-6, weightDecay: 0.1 };
    return [
      makeCase(1, 1, plain, 1, 1),
      makeCase(63, 2, plain, 1e-6, 1),
      makeCase(64, 1000, decay, 1, 0.37),
      makeCase(65, 3, decay, 1e4, 1e-4),
      makeCase(5003, 17, plain, 0.01, 0.5),
    ];
  },
};
