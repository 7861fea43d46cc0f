// out[m, c] = s[m] * sum_n x[m, n] * w[n, c] + sum_r dz[m, r] * a[r, c]: the gradient of a linear layer with LoRA with
// respect to its input. The product is that of matrix-matmul-nn, bit for bit (modes 0 and 1); the LoRA term has its own
// f32 accumulator: delta = 0; r ascending over all targets: delta = fma(dz[m, r], a[r, c], delta); v = v + delta.
// The scale of LoRA is in dz already. Without LoRA the sum may be cut into slices of 32 * PANELS rows of w, one a
// workgroup in z, each with an output of its own: so a long sum with few outputs fills the device.
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Sum = subgroup_matrix_result<f32, 16, 16>;

struct Params {
  rows: u32,
  columns: u32,
  n: u32,
  c8: u32,
  xStride8: u32,
  xOffset8: u32,
  outStride4: u32,
  outOffset4: u32,
  mode: u32,
  weightScale: f32,
  zStride4: u32,
  aStride4: u32,
  sliceOut4: u32,
}

override PANELS: u32 = 1u;  // ceil(n / 32), or of a slice
override WIDTH4: u32 = 0u;  // quads of a row of dz: of all targets; 0: no LoRA

const STRIDE8 = 5u;  // of a staged row of x: 32 elements and 8 of padding
const W_STRIDE8 = 9u;  // of half a staged row of w: 64 elements and 8 of padding

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;  // [rows to a multiple of 128, xStride8] from xOffset8
@group(0) @binding(2) var<storage, read> scales: array<f32>;  // [rows]
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;  // [n, c8] x 8 bf16
@group(0) @binding(4) var<storage, read> dz: array<vec4<f32>>;  // [rows, zStride4]
@group(0) @binding(5) var<storage, read> a: array<vec4<f32>>;  // [WIDTH4 * 4, aStride4]
@group(0) @binding(6) var<storage, read_write> out: array<vec4<f32>>;  // a slice: [rows, outStride4] from outOffset4

// Two halves of the rows of x, two halves of the columns of w; before and after, a subgroup's sums each.
var<workgroup> tile: array<array<vec4<u32>, 320>, 4>;

// 1 / x of a power of two, exactly.
fn inverse(power: f32) -> f32 {
  return bitcast<f32>(0x7f000000u - bitcast<u32>(power));
}

fn half2(word: u32) -> u32 {
  let low = bitcast<f32>(word << 16u) * p.weightScale;
  let high = bitcast<f32>(word & 0xffff0000u) * p.weightScale;
  return pack2x16float(vec2<f32>(low, high));
}

fn halves(v: vec4<u32>) -> vec4<u32> {
  return vec4<u32>(half2(v.x), half2(v.y), half2(v.z), half2(v.w));
}

// Mode 1: four outputs as they stand, in the accumulator's units; zero outside.
fn start(m: u32, n: u32) -> vec4<u32> {
  if (m >= p.rows || n >= p.columns) {
    return vec4<u32>(0u);
  }
  let found = out[p.outOffset4 + m * p.outStride4 + n / 4u] * p.weightScale;
  return bitcast<vec4<u32>>(found * inverse(scales[m]));
}

// What a sum comes to.
fn result(sum: vec4<u32>, scale: f32, delta: vec4<f32>) -> vec4<f32> {
  let value = (bitcast<vec4<f32>>(sum) * scale) * inverse(p.weightScale);
  if (WIDTH4 > 0u) {
    return value + delta;
  }
  return value;
}

// Four sums to out. Columns past the last stay as they are.
fn put(m: u32, n: u32, slice: u32, sum: vec4<u32>, delta: vec4<f32>) {
  if (m >= p.rows || n >= p.columns) {
    return;
  }
  let at = slice * p.sliceOut4 + p.outOffset4 + m * p.outStride4 + n / 4u;
  var value = result(sum, scales[m], delta);
  if (n + 4u > p.columns) {
    value = select(out[at], value, vec4<u32>(n) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(p.columns));
  }
  out[at] = value;
}

// Four rows of a for four columns, ascending.
fn add4(left: vec4<f32>, a0: vec4<f32>, a1: vec4<f32>, a2: vec4<f32>, a3: vec4<f32>, sum: vec4<f32>) -> vec4<f32> {
  var delta = fma(vec4<f32>(left.x), a0, sum);
  delta = fma(vec4<f32>(left.y), a1, delta);
  delta = fma(vec4<f32>(left.z), a2, delta);
  return fma(vec4<f32>(left.w), a3, delta);
}

// Sixteen rows by 64 columns of a subgroup, from its part of the workgroup memory: eight rows' quads a thread. `whole`:
// all of the tile is outputs, and no condition stands between the loads of the rows' scales.
fn finish(firstM: u32, n: u32, slice: u32, own: u32, lane: u32, whole: bool) {
  let m = firstM + lane / 16u;
  var delta0 = vec4<f32>(0.0);
  var delta1 = vec4<f32>(0.0);
  var delta2 = vec4<f32>(0.0);
  var delta3 = vec4<f32>(0.0);
  var delta4 = vec4<f32>(0.0);
  var delta5 = vec4<f32>(0.0);
  var delta6 = vec4<f32>(0.0);
  var delta7 = vec4<f32>(0.0);
  let last = p.rows - 1u;
  let column = min(n, p.columns - 1u) / 4u;
  for (var quad = 0u; quad < WIDTH4; quad++) {
    let a0 = a[quad * 4u * p.aStride4 + column];
    let a1 = a[(quad * 4u + 1u) * p.aStride4 + column];
    let a2 = a[(quad * 4u + 2u) * p.aStride4 + column];
    let a3 = a[(quad * 4u + 3u) * p.aStride4 + column];
    delta0 = add4(dz[min(m, last) * p.zStride4 + quad], a0, a1, a2, a3, delta0);
    delta1 = add4(dz[min(m + 2u, last) * p.zStride4 + quad], a0, a1, a2, a3, delta1);
    delta2 = add4(dz[min(m + 4u, last) * p.zStride4 + quad], a0, a1, a2, a3, delta2);
    delta3 = add4(dz[min(m + 6u, last) * p.zStride4 + quad], a0, a1, a2, a3, delta3);
    delta4 = add4(dz[min(m + 8u, last) * p.zStride4 + quad], a0, a1, a2, a3, delta4);
    delta5 = add4(dz[min(m + 10u, last) * p.zStride4 + quad], a0, a1, a2, a3, delta5);
    delta6 = add4(dz[min(m + 12u, last) * p.zStride4 + quad], a0, a1, a2, a3, delta6);
    delta7 = add4(dz[min(m + 14u, last) * p.zStride4 + quad], a0, a1, a2, a3, delta7);
  }
  if (!whole) {
    put(m, n, slice, tile[own][lane], delta0);
    put(m + 2u, n, slice, tile[own][lane + 32u], delta1);
    put(m + 4u, n, slice, tile[own][lane + 64u], delta2);
    put(m + 6u, n, slice, tile[own][lane + 96u], delta3);
    put(m + 8u, n, slice, tile[own][lane + 128u], delta4);
    put(m + 10u, n, slice, tile[own][lane + 160u], delta5);
    put(m + 12u, n, slice, tile[own][lane + 192u], delta6);
    put(m + 14u, n, slice, tile[own][lane + 224u], delta7);
    return;
  }
  let s0 = scales[m];
  let s1 = scales[m + 2u];
  let s2 = scales[m + 4u];
  let s3 = scales[m + 6u];
  let s4 = scales[m + 8u];
  let s5 = scales[m + 10u];
  let s6 = scales[m + 12u];
  let s7 = scales[m + 14u];
  let at = slice * p.sliceOut4 + p.outOffset4 + m * p.outStride4 + n / 4u;
  out[at] = result(tile[own][lane], s0, delta0);
  out[at + 2u * p.outStride4] = result(tile[own][lane + 32u], s1, delta1);
  out[at + 4u * p.outStride4] = result(tile[own][lane + 64u], s2, delta2);
  out[at + 6u * p.outStride4] = result(tile[own][lane + 96u], s3, delta3);
  out[at + 8u * p.outStride4] = result(tile[own][lane + 128u], s4, delta4);
  out[at + 10u * p.outStride4] = result(tile[own][lane + 160u], s5, delta5);
  out[at + 12u * p.outStride4] = result(tile[own][lane + 192u], s6, delta6);
  out[at + 14u * p.outStride4] = result(tile[own][lane + 224u], s7, delta7);
}

// Eight weights of a row; zero past the last row. Columns past the last are read as their neighbours and never stored.
fn weights(row: u32, c: u32) -> vec4<u32> {
  let found = w[min(row, p.n - 1u) * p.c8 + min(c, p.c8 - 1u)];
  return select(vec4<u32>(0u), found, row < p.n);
}

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
  @builtin(subgroup_id) subgroup: u32,
  @builtin(subgroup_invocation_id) lane: u32,
) {
  let firstM = wg.y * 128u;
  let firstN = wg.x * 128u;
  let own = subgroup & 3u;
  let left = own / 2u;
  let right = 2u + own % 2u;
  let subM = left * 64u;
  let subN = (own % 2u) * 64u;
  let n = firstN + subN + (lane % 16u) * 4u;
  var acc0: Sum;
  var acc1: Sum;
  var acc2: Sum;
  var acc3: Sum;
  var acc4: Sum;
  var acc5: Sum;
  var acc6: Sum;
  var acc7: Sum;
  var acc8: Sum;
  var acc9: Sum;
  var acc10: Sum;
  var acc11: Sum;
  var acc12: Sum;
  var acc13: Sum;
  var acc14: Sum;
  var acc15: Sum;
  if (p.mode == 1u) {
    for (var e = 0u; e < 8u; e++) {
      let at = e * 32u + lane;
      tile[own][at] = start(firstM + subM + at / 16u, firstN + subN + (at % 16u) * 4u);
    }
    workgroupBarrier();
    acc0 = subgroupMatrixLoad<Sum, row_major>(&tile[own], 0u, 16u);
    acc1 = subgroupMatrixLoad<Sum, row_major>(&tile[own], 4u, 16u);
    acc2 = subgroupMatrixLoad<Sum, row_major>(&tile[own], 8u, 16u);
    acc3 = subgroupMatrixLoad<Sum, row_major>(&tile[own], 12u, 16u);
    workgroupBarrier();
    for (var e = 0u; e < 8u; e++) {
      let at = e * 32u + lane;
      tile[own][at] = start(firstM + subM + 16u + at / 16u, firstN + subN + (at % 16u) * 4u);
    }
    workgroupBarrier();
    acc4 = subgroupMatrixLoad<Sum, row_major>(&tile[own], 0u, 16u);
    acc5 = subgroupMatrixLoad<Sum, row_major>(&tile[own], 4u, 16u);
    acc6 = subgroupMatrixLoad<Sum, row_major>(&tile[own], 8u, 16u);
    acc7 = subgroupMatrixLoad<Sum, row_major>(&tile[own], 12u, 16u);
    workgroupBarrier();
    for (var e = 0u; e < 8u; e++) {
      let at = e * 32u + lane;
      tile[own][at] = start(firstM + subM + 32u + at / 16u, firstN + subN + (at % 16u) * 4u);
    }
    workgroupBarrier();
    acc8 = subgroupMatrixLoad<Sum, row_major>(&tile[own], 0u, 16u);
    acc9 = subgroupMatrixLoad<Sum, row_major>(&tile[own], 4u, 16u);
    acc10 = subgroupMatrixLoad<Sum, row_major>(&tile[own], 8u, 16u);
    acc11 = subgroupMatrixLoad<Sum, row_major>(&tile[own], 12u, 16u);
    workgroupBarrier();
    for (var e = 0u; e < 8u; e++) {
      let at = e * 32u + lane;
      tile[own][at] = start(firstM + subM + 48u + at / 16u, firstN + subN + (at % 16u) * 4u);
    }
    workgroupBarrier();
    acc12 = subgroupMatrixLoad<Sum, row_major>(&tile[own], 0u, 16u);
    acc13 = subgroupMatrixLoad<Sum, row_major>(&tile[own], 4u, 16u);
    acc14 = subgroupMatrixLoad<Sum, row_major>(&tile[own], 8u, 16u);
    acc15 = subgroupMatrixLoad<Sum, row_major>(&tile[own], 12u, 16u);
    workgroupBarrier();
  }
  // A store of eight lanes holds two rows: four apart, or they would meet in a bank.
  let quad = thread / 4u;
  let row = (quad & 24u) + (quad & 1u) * 4u + (quad >> 1u) % 4u;
  let column = wg.z * (PANELS * 4u) + thread % 4u;
  let wRow = thread / 16u;
  let sliceRow = wg.z * (PANELS * 32u) + wRow;
  let wColumn = firstN / 8u + thread % 16u;
  let wHalf = 2u + (thread % 16u) / 8u;
  var x0 = x[p.xOffset8 + (firstM + row) * p.xStride8 + column];
  var x1 = x[p.xOffset8 + (firstM + row + 32u) * p.xStride8 + column];
  var x2 = x[p.xOffset8 + (firstM + row + 64u) * p.xStride8 + column];
  var x3 = x[p.xOffset8 + (firstM + row + 96u) * p.xStride8 + column];
  var w0 = weights(sliceRow, wColumn);
  var w1 = weights(sliceRow + 8u, wColumn);
  var w2 = weights(sliceRow + 16u, wColumn);
  var w3 = weights(sliceRow + 24u, wColumn);
  for (var panel = 0u; panel < PANELS; panel++) {
    tile[0u][row * STRIDE8 + thread % 4u] = x0;
    tile[0u][(row + 32u) * STRIDE8 + thread % 4u] = x1;
    tile[1u][row * STRIDE8 + thread % 4u] = x2;
    tile[1u][(row + 32u) * STRIDE8 + thread % 4u] = x3;
    tile[wHalf][wRow * W_STRIDE8 + thread % 8u] = halves(w0);
    tile[wHalf][(wRow + 8u) * W_STRIDE8 + thread % 8u] = halves(w1);
    tile[wHalf][(wRow + 16u) * W_STRIDE8 + thread % 8u] = halves(w2);
    tile[wHalf][(wRow + 24u) * W_STRIDE8 + thread % 8u] = halves(w3);
    workgroupBarrier();
    let next = panel + 1u;
    if (next < PANELS) {
      let ahead = next * 4u + column;
      x0 = x[p.xOffset8 + (firstM + row) * p.xStride8 + ahead];
      x1 = x[p.xOffset8 + (firstM + row + 32u) * p.xStride8 + ahead];
      x2 = x[p.xOffset8 + (firstM + row + 64u) * p.xStride8 + ahead];
      x3 = x[p.xOffset8 + (firstM + row + 96u) * p.xStride8 + ahead];
      w0 = weights(next * 32u + sliceRow, wColumn);
      w1 = weights(next * 32u + sliceRow + 8u, wColumn);
      w2 = weights(next * 32u + sliceRow + 16u, wColumn);
      w3 = weights(next * 32u + sliceRow + 24u, wColumn);
    }
    {
      let a0 = subgroupMatrixLoad<Left, row_major>(&tile[left], 0u, STRIDE8);
      let a1 = subgroupMatrixLoad<Left, row_major>(&tile[left], 80u, STRIDE8);
      let a2 = subgroupMatrixLoad<Left, row_major>(&tile[left], 160u, STRIDE8);
      let a3 = subgroupMatrixLoad<Left, row_major>(&tile[left], 240u, STRIDE8);
      let b0 = subgroupMatrixLoad<Right, row_major>(&tile[right], 0u, W_STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(a0, b0, acc0);
      acc4 = subgroupMatrixMultiplyAccumulate(a1, b0, acc4);
      acc8 = subgroupMatrixMultiplyAccumulate(a2, b0, acc8);
      acc12 = subgroupMatrixMultiplyAccumulate(a3, b0, acc12);
      let b1 = subgroupMatrixLoad<Right, row_major>(&tile[right], 2u, W_STRIDE8);
      acc1 = subgroupMatrixMultiplyAccumulate(a0, b1, acc1);
      acc5 = subgroupMatrixMultiplyAccumulate(a1, b1, acc5);
      acc9 = subgroupMatrixMultiplyAccumulate(a2, b1, acc9);
      acc13 = subgroupMatrixMultiplyAccumulate(a3, b1, acc13);
      let b2 = subgroupMatrixLoad<Right, row_major>(&tile[right], 4u, W_STRIDE8);
      acc2 = subgroupMatrixMultiplyAccumulate(a0, b2, acc2);
      acc6 = subgroupMatrixMultiplyAccumulate(a1, b2, acc6);
      acc10 = subgroupMatrixMultiplyAccumulate(a2, b2, acc10);
      acc14 = subgroupMatrixMultiplyAccumulate(a3, b2, acc14);
      let b3 = subgroupMatrixLoad<Right, row_major>(&tile[right], 6u, W_STRIDE8);
      acc3 = subgroupMatrixMultiplyAccumulate(a0, b3, acc3);
      acc7 = subgroupMatrixMultiplyAccumulate(a1, b3, acc7);
      acc11 = subgroupMatrixMultiplyAccumulate(a2, b3, acc11);
      acc15 = subgroupMatrixMultiplyAccumulate(a3, b3, acc15);
    }
    {
      let a0 = subgroupMatrixLoad<Left, row_major>(&tile[left], 2u, STRIDE8);
      let a1 = subgroupMatrixLoad<Left, row_major>(&tile[left], 82u, STRIDE8);
      let a2 = subgroupMatrixLoad<Left, row_major>(&tile[left], 162u, STRIDE8);
      let a3 = subgroupMatrixLoad<Left, row_major>(&tile[left], 242u, STRIDE8);
      let b0 = subgroupMatrixLoad<Right, row_major>(&tile[right], 144u, W_STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(a0, b0, acc0);
      acc4 = subgroupMatrixMultiplyAccumulate(a1, b0, acc4);
      acc8 = subgroupMatrixMultiplyAccumulate(a2, b0, acc8);
      acc12 = subgroupMatrixMultiplyAccumulate(a3, b0, acc12);
      let b1 = subgroupMatrixLoad<Right, row_major>(&tile[right], 146u, W_STRIDE8);
      acc1 = subgroupMatrixMultiplyAccumulate(a0, b1, acc1);
      acc5 = subgroupMatrixMultiplyAccumulate(a1, b1, acc5);
      acc9 = subgroupMatrixMultiplyAccumulate(a2, b1, acc9);
      acc13 = subgroupMatrixMultiplyAccumulate(a3, b1, acc13);
      let b2 = subgroupMatrixLoad<Right, row_major>(&tile[right], 148u, W_STRIDE8);
      acc2 = subgroupMatrixMultiplyAccumulate(a0, b2, acc2);
      acc6 = subgroupMatrixMultiplyAccumulate(a1, b2, acc6);
      acc10 = subgroupMatrixMultiplyAccumulate(a2, b2, acc10);
      acc14 = subgroupMatrixMultiplyAccumulate(a3, b2, acc14);
      let b3 = subgroupMatrixLoad<Right, row_major>(&tile[right], 150u, W_STRIDE8);
      acc3 = subgroupMatrixMultiplyAccumulate(a0, b3, acc3);
      acc7 = subgroupMatrixMultiplyAccumulate(a1, b3, acc7);
      acc11 = subgroupMatrixMultiplyAccumulate(a2, b3, acc11);
      acc15 = subgroupMatrixMultiplyAccumulate(a3, b3, acc15);
    }
    workgroupBarrier();
  }
  let whole = firstM + 128u <= p.rows && firstN + 128u <= p.columns;
  subgroupMatrixStore<row_major>(&tile[own], 0u, acc0, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 4u, acc1, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 8u, acc2, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 12u, acc3, 16u);
  workgroupBarrier();
  finish(firstM + subM, n, wg.z, own, lane, whole);
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&tile[own], 0u, acc4, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 4u, acc5, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 8u, acc6, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 12u, acc7, 16u);
  workgroupBarrier();
  finish(firstM + subM + 16u, n, wg.z, own, lane, whole);
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&tile[own], 0u, acc8, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 4u, acc9, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 8u, acc10, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 12u, acc11, 16u);
  workgroupBarrier();
  finish(firstM + subM + 32u, n, wg.z, own, lane, whole);
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&tile[own], 0u, acc12, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 4u, acc13, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 8u, acc14, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 12u, acc15, 16u);
  workgroupBarrier();
  finish(firstM + subM + 48u, n, wg.z, own, lane, whole);
}
