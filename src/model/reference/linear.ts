// f64 reference of a linear layer with optional LoRA, y = W x + scale * B (A x), and its backward pass.
// Not fast: plain loops, sums in ascending index order. The definition that the matmul kernels are held to.
// Invariant: W gets no gradient; A and B accumulate theirs, the input's gradient is returned new or added.

/** y[t, o] = sum_i x[t, i] w[o, i]. x: [rows, in], w: [out, in] -> [rows, out]. */
export function matmulTransposed(x: Float64Array, w: Float64Array, rows: number, inn: number, out: number) {
  const y = new Float64Array(rows * out);
  for (let t = 0; t < rows; t++) {
    for (let o = 0; o < out; o++) {
      let sum = 0;
      const xAt = t * inn;
      const wAt = o * inn;
      for (let i = 0; i < inn; i++) sum += x[xAt + i]! * w[wAt + i]!;
      y[t * out + o] = sum;
    }
  }
  return y;
}

/** dx[t, i] += scale * sum_o dy[t, o] w[o, i]: the input gradient of `matmulTransposed`. */
export function addInputGradient(
  dx: Float64Array,
  dy: Float64Array,
  w: Float64Array,
  rows: number,
  inn: number,
  out: number,
  scale = 1,
) {
  for (let t = 0; t < rows; t++) {
    for (let o = 0; o < out; o++) {
      const g = scale * dy[t * out + o]!;
      if (g === 0) continue;
      const dxAt = t * inn;
      const wAt = o * inn;
      for (let i = 0; i < inn; i++) dx[dxAt + i]! += g * w[wAt + i]!;
    }
  }
}

/** dw[o, i] += scale * sum_t dy[t, o] x[t, i]: the weight gradient of `matmulTransposed`. */
export function addWeightGradient(
  dw: Float64Array,
  dy: Float64Array,
  x: Float64Array,
  rows: number,
  inn: number,
  out: number,
  scale = 1,
) {
  for (let t = 0; t < rows; t++) {
    for (let o = 0; o < out; o++) {
      const g = scale * dy[t * out + o]!;
      if (g === 0) continue;
      for (let i = 0; i < inn; i++) dw[o * inn + i]! += g * x[t * inn + i]!;
    }
  }
}

/** The LoRA pair of one linear layer. a: [rank, in], b: [out, rank]. */
export interface LoraPair {
  a: Float64Array;
  b: Float64Array;
  rank: number;
  scale: number;
}

export interface LinearOutput {
  /** [rows, out] */
  y: Float64Array;
  /** A x, [rows, rank]; null without LoRA. */
  down: Float64Array | null;
}

/** y = W x + scale * B (A x). x: [rows, in] -> [rows, out]. */
export function linearForward(
  x: Float64Array,
  w: Float64Array,
  lora: LoraPair | null,
  rows: number,
  inn: number,
  out: number,
): LinearOutput {
  const y = matmulTransposed(x, w, rows, inn, out);
  if (!lora) return { y, down: null };
  const down = matmulTransposed(x, lora.a, rows, inn, lora.rank);
  const up = matmulTransposed(down, lora.b, rows, lora.rank, out);
  for (let i = 0; i < y.length; i++) y[i]! += lora.scale * up[i]!;
  return { y, down };
}

/**
 * Backward of `linearForward`: adds the input gradient to dx and, where there is LoRA, the parameter gradients to
 * `gradient.a` and `gradient.b`. dy: [rows, out]; `down` as returned by the forward pass.
 */
export function linearBackward(
  dx: Float64Array,
  dy: Float64Array,
  forward: { x: Float64Array; down: Float64Array | null },
  w: Float64Array,
  lora: LoraPair | null,
  gradient: { a: Float64Array; b: Float64Array } | null,
  rows: number,
  inn: number,
  out: number,
): void {
  addInputGradient(dx, dy, w, rows, inn, out);
  if (!lora || !gradient || !forward.down) return;
  const { a, b, rank, scale } = lora;
  addWeightGradient(gradient.b, dy, forward.down, rows, rank, out, scale);
  const dDown = new Float64Array(rows * rank);
  addInputGradient(dDown, dy, b, rows, rank, out, scale);
  addWeightGradient(gradient.a, dDown, forward.x, rows, inn, rank);
  addInputGradient(dx, dDown, a, rows, inn, rank);
}
