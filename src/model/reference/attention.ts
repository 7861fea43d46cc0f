// f64 reference of causal grouped-query attention over one sequence, forward and backward.
// Not flash attention: the whole probability matrix is kept. Query head h reads key-value head h / (heads / kvHeads).
// Invariant: row t of the probabilities sums to 1 over keys 0..t and is zero beyond.

export interface AttentionShape {
  heads: number;
  kvHeads: number;
  headDim: number;
}

/**
 * probabilities[h, t, s] = softmax_{s <= t}(q_t . k_s / sqrt(headDim)); y[t, h] = sum_s probabilities v_s.
 * q: [tokens, heads, headDim]; k, v: [tokens, kvHeads, headDim] -> y: [tokens, heads, headDim].
 */
export function attention(q: Float64Array, k: Float64Array, v: Float64Array, shape: AttentionShape) {
  const { heads, kvHeads, headDim } = shape;
  const tokens = q.length / (heads * headDim);
  const scale = 1 / Math.sqrt(headDim);
  const y = new Float64Array(q.length);
  const probabilities = new Float64Array(heads * tokens * tokens);
  for (let h = 0; h < heads; h++) {
    const kv = Math.floor(h / (heads / kvHeads));
    for (let t = 0; t < tokens; t++) {
      const qAt = (t * heads + h) * headDim;
      const row = (h * tokens + t) * tokens;
      let max = Number.NEGATIVE_INFINITY;
      for (let s = 0; s <= t; s++) {
        const kAt = (s * kvHeads + kv) * headDim;
        let dot = 0;
        for (let d = 0; d < headDim; d++) dot += q[qAt + d]! * k[kAt + d]!;
        probabilities[row + s] = dot * scale;
        if (dot * scale > max) max = dot * scale;
      }
      let sum = 0;
      for (let s = 0; s <= t; s++) sum += probabilities[row + s] = Math.exp(probabilities[row + s]! - max);
      for (let s = 0; s <= t; s++) {
        const p = (probabilities[row + s]! /= sum);
        const vAt = (s * kvHeads + kv) * headDim;
        for (let d = 0; d < headDim; d++) y[qAt + d]! += p * v[vAt + d]!;
      }
    }
  }
  return { y, probabilities };
}

/**
 * Gradients of `attention`: dP = dy . v, dS = P (dP - sum_s P dP), dq = scale dS k, dk = scale dS q, dv = P dy; heads
 * that share a key-value head add into it.
 */
export function attentionBackward(
  dy: Float64Array,
  q: Float64Array,
  k: Float64Array,
  v: Float64Array,
  probabilities: Float64Array,
  shape: AttentionShape,
) {
  const { heads, kvHeads, headDim } = shape;
  const tokens = q.length / (heads * headDim);
  const scale = 1 / Math.sqrt(headDim);
  const dq = new Float64Array(q.length);
  const dk = new Float64Array(k.length);
  const dv = new Float64Array(v.length);
  const dP = new Float64Array(tokens);
  for (let h = 0; h < heads; h++) {
    const kv = Math.floor(h / (heads / kvHeads));
    for (let t = 0; t < tokens; t++) {
      const qAt = (t * heads + h) * headDim;
      const row = (h * tokens + t) * tokens;
      let mean = 0;
      for (let s = 0; s <= t; s++) {
        const at = (s * kvHeads + kv) * headDim;
        const p = probabilities[row + s]!;
        let dot = 0;
        for (let d = 0; d < headDim; d++) {
          dot += dy[qAt + d]! * v[at + d]!;
          dv[at + d]! += p * dy[qAt + d]!;
        }
        dP[s] = dot;
        mean += p * dot;
      }
      for (let s = 0; s <= t; s++) {
        const at = (s * kvHeads + kv) * headDim;
        const dScore = scale * probabilities[row + s]! * (dP[s]! - mean);
        for (let d = 0; d < headDim; d++) {
          dq[qAt + d]! += dScore * k[at + d]!;
          dk[at + d]! += dScore * q[qAt + d]!;
        }
      }
    }
  }
  return { dq, dk, dv };
}
