// The f64 gradients of attention over a 16-bit cache, with what f32 sums in the family's order may be off by.
// Invariant: lse and delta are inputs, rounded to f32; the gradient takes k and v as they are cached.
import { attend, type CachedBatch, type CachedShape, cachedBatch, expError } from './cached-attention-cases.ts';
import { testValues, unit } from './case-data.ts';

/** Values in f64 and the largest error allowed for each. */
export interface Bounded {
  values: Float64Array;
  bounds: Float64Array;
}

export interface BackwardBatch extends CachedBatch {
  dOut: Float32Array<ArrayBuffer>;
  out: Float32Array<ArrayBuffer>;
  lse: Float32Array<ArrayBuffer>;
  /** [rows, heads, 2]: lse, delta. */
  stats: Float32Array<ArrayBuffer>;
  /** delta as attention-row-sums makes it. */
  delta: Bounded;
  dq: Bounded;
  dk: Bounded;
  dv: Bounded;
}

const bounded = (length: number): Bounded => ({ values: new Float64Array(length), bounds: new Float64Array(length) });

/** Adds a term and its error to one element. */
function add(into: Bounded, at: number, term: number, error: number): void {
  into.values[at]! += term;
  into.bounds[at]! += error;
}

/** The forward results of a batch in f32, an incoming gradient, and the gradients in f64. */
export function backwardBatch(shape: CachedShape): BackwardBatch {
  const batch = cachedBatch(shape);
  const { rows, heads, kvHeads, headDim, cacheLength, slots } = batch;
  const width = heads * headDim;
  const out = new Float32Array(rows * width);
  const lse = new Float32Array(rows * heads);
  const stats = new Float32Array(rows * heads * 2);
  const dOut = testValues(rows * width, 81);
  const delta = bounded(rows * heads);
  const dq = bounded(rows * width);
  const dk = bounded(slots * cacheLength * kvHeads * headDim);
  const dv = bounded(dk.values.length);
  const terms = (heads / kvHeads) * rows;
  for (let r = 0; r < rows; r++) {
    const [slot, position] = [batch.meta[r * 2]!, batch.meta[r * 2 + 1]!];
    for (let h = 0; h < heads; h++) {
      const at = r * heads + h;
      const whole = attend(batch, r, h, 0, position + 1);
      lse[at] = whole.m + Math.log(whole.l);
      for (let d = 0; d < headDim; d++) {
        const i = at * headDim + d;
        out[i] = whole.o[d]! / whole.l;
        add(delta, at, dOut[i]! * out[i]!, (headDim / 8 + 10) * unit * Math.abs(dOut[i]! * out[i]!) + 1e-38);
      }
      stats[at * 2] = lse[at]!;
      stats[at * 2 + 1] = delta.values[at]!;
      const kv = Math.floor(h / (heads / kvHeads));
      for (let j = 0; j <= position; j++) {
        const key = ((slot * kvHeads + kv) * cacheLength + j) * headDim;
        const to = ((slot * cacheLength + j) * kvHeads + kv) * headDim;
        const e = whole.scores[j]! - lse[at]!;
        const probability = Math.exp(e);
        const relative = Math.expm1(whole.off[j]! + unit * Math.abs(e)) + expError(e);
        let dp = 0;
        let size = Math.abs(stats[at * 2 + 1]!);
        for (let d = 0; d < headDim; d++) {
          const term = dOut[at * headDim + d]! * batch.values[key + d]!;
          dp += term;
          size += Math.abs(term);
        }
        const difference = dp - stats[at * 2 + 1]!;
        const ds = batch.scale * probability * difference;
        const error =
          batch.scale * probability * (relative * Math.abs(difference) + (headDim + 4) * unit * size) + 1e-37;
        const queryError = error + (position + 6) * unit * Math.abs(ds);
        const keyError = error + (terms + 6) * unit * Math.abs(ds);
        const valueError = probability * (relative + (terms + 4) * unit);
        for (let d = 0; d < headDim; d++) {
          const [k, q, g] = [batch.keys[key + d]!, batch.q[at * headDim + d]!, dOut[at * headDim + d]!];
          add(dq, at * headDim + d, ds * k, Math.abs(k) * queryError + 1e-36);
          add(dk, to + d, ds * q, Math.abs(q) * keyError + 1e-36);
          add(dv, to + d, probability * g, Math.abs(g) * valueError + 1e-36);
        }
      }
    }
  }
  return { ...batch, dOut, out, lse, stats, delta, dq, dk, dv };
}
