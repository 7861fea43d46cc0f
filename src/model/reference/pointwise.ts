// f64 references of RMSNorm, RoPE and SwiGLU with their backward passes.
// Not kernels: the definitions, in the formulas of transformers' Qwen3 and Llama, without its casts to f32.
// Invariant: norm gains are frozen, so only input gradients are formed.

/** y[r, c] = gain[c] * x[r, c] / sqrt(mean_c x[r, c]^2 + eps). x: [rows, cols]. */
export function rmsNorm(x: Float64Array, gain: Float64Array, eps: number): { y: Float64Array; inverse: Float64Array } {
  const cols = gain.length;
  const rows = x.length / cols;
  const y = new Float64Array(x.length);
  const inverse = new Float64Array(rows);
  for (let r = 0; r < rows; r++) {
    let squares = 0;
    for (let c = 0; c < cols; c++) squares += x[r * cols + c]! ** 2;
    const inv = 1 / Math.sqrt(squares / cols + eps);
    inverse[r] = inv;
    for (let c = 0; c < cols; c++) y[r * cols + c] = gain[c]! * x[r * cols + c]! * inv;
  }
  return { y, inverse };
}

/**
 * Input gradient of `rmsNorm`, new array [rows, cols]:
 * dx = inv * (g dy) - x * inv^3 / cols * sum_c(g dy x), with inv as the forward pass returned it.
 */
export function rmsNormBackward(dy: Float64Array, x: Float64Array, gain: Float64Array, inverse: Float64Array) {
  const cols = gain.length;
  const dx = new Float64Array(x.length);
  for (let r = 0; r < inverse.length; r++) {
    const at = r * cols;
    const inv = inverse[r]!;
    let dot = 0;
    for (let c = 0; c < cols; c++) dot += gain[c]! * dy[at + c]! * x[at + c]!;
    const shared = (dot * inv ** 3) / cols;
    for (let c = 0; c < cols; c++) dx[at + c] = inv * gain[c]! * dy[at + c]! - x[at + c]! * shared;
  }
  return dx;
}

/**
 * Rotary embedding, half rotation: with half = headDim / 2 and angle = position * inverseFrequencies[i],
 * (x_i, x_{i+half}) -> (x_i cos - x_{i+half} sin, x_{i+half} cos + x_i sin). x: [tokens, heads, headDim], row t at
 * position t. `direction` -1 is the inverse rotation, which is the backward pass. Returns a new array.
 */
export function rotate(
  x: Float64Array,
  heads: number,
  headDim: number,
  inverseFrequencies: Float64Array,
  direction: 1 | -1,
): Float64Array {
  const half = headDim / 2;
  const tokens = x.length / (heads * headDim);
  const y = new Float64Array(x.length);
  for (let t = 0; t < tokens; t++) {
    for (let i = 0; i < half; i++) {
      const angle = t * inverseFrequencies[i]!;
      const cos = Math.cos(angle);
      const sin = direction * Math.sin(angle);
      for (let h = 0; h < heads; h++) {
        const at = (t * heads + h) * headDim + i;
        y[at] = x[at]! * cos - x[at + half]! * sin;
        y[at + half] = x[at + half]! * cos + x[at]! * sin;
      }
    }
  }
  return y;
}

/** silu(gate) * up, element by element; silu(g) = g / (1 + exp(-g)). */
export function swiglu(gate: Float64Array, up: Float64Array): Float64Array {
  return gate.map((g, i) => (g / (1 + Math.exp(-g))) * up[i]!);
}

/** Gradients of `swiglu`: dgate = dy * up * s (1 + g (1 - s)), dup = dy * g s, with s = sigmoid(g). */
export function swigluBackward(dy: Float64Array, gate: Float64Array, up: Float64Array) {
  const dGate = new Float64Array(gate.length);
  const dUp = new Float64Array(gate.length);
  for (let i = 0; i < gate.length; i++) {
    const g = gate[i]!;
    const s = 1 / (1 + Math.exp(-g));
    dGate[i] = dy[i]! * up[i]! * s * (1 + g * (1 - s));
    dUp[i] = dy[i]! * g * s;
  }
  return { dGate, dUp };
}
