// out[m, n] = scale * s[m] * sum_k x[m, k] * w[n, k]      (mode 0), with modes 1 and 2 as in matmul: up to 64 rows and
// few columns. Operands, order and bits as in matrix-matmul. A small matrix has too few rows for wide tiles: here a
// workgroup owns 16 x 16 outputs, its four subgroups stage 256 of k at a time and one of them multiplies. Offsets into
// workgroup memory are literals, so that their bounds cost nothing.
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
  xStride8: u32,
  xOffset8: u32,
  outStride4: u32,
  outOffset4: u32,
  mode: u32,
  weightScale: f32,
  scale: f32,
}

override PANELS: u32 = 1u;  // k / 256

const STRIDE8 = 33u;  // of a staged row: 256 elements and 8 of padding
const W_BASE = 528u;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;  // [rows, xStride8] from xOffset8
@group(0) @binding(2) var<storage, read> scales: array<f32>;  // [rows]
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;  // [columns, PANELS * 32] x 8 bf16
@group(0) @binding(4) var<storage, read_write> out: array<vec4<f32>>;  // [rows, outStride4] from outOffset4

var<workgroup> tile: array<vec4<u32>, 1056>;

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

// Mode 1: 16 rows of out, in the accumulator's units, to this subgroup's part of the workgroup memory.
fn stageStart(own: u32, lane: u32, firstM: u32, firstN: u32) {
  for (var e = 0u; e < 2u; e++) {
    let at = e * 32u + lane;
    let m = firstM + at / 4u;
    let n = firstN + (at % 4u) * 4u;
    var start = vec4<f32>(0.0);
    if (m < p.rows && n < p.columns) {
      start = (out[p.outOffset4 + m * p.outStride4 + n / 4u] * p.weightScale) * inverse(scales[m]);
    }
    tile[own + at] = bitcast<vec4<u32>>(start);
  }
}

// Writes 16 rows of sums from this subgroup's part of the workgroup memory to out. Columns past the last stay.
fn finish(own: u32, lane: u32, firstM: u32, firstN: u32) {
  for (var e = 0u; e < 2u; e++) {
    let at = e * 32u + lane;
    let m = firstM + at / 4u;
    let n = firstN + (at % 4u) * 4u;
    if (m >= p.rows || n >= p.columns) {
      continue;
    }
    let to = p.outOffset4 + m * p.outStride4 + n / 4u;
    var value = (bitcast<vec4<f32>>(tile[own + at]) * scales[m]) * inverse(p.weightScale);
    if (p.mode == 0u) {
      value = p.scale * value;
    } else if (p.mode == 2u) {
      value = fma(vec4<f32>(p.scale), value, out[to]);
    }
    if (n + 4u > p.columns) {
      value = select(out[to], value, vec4<u32>(n) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(p.columns));
    }
    out[to] = value;
  }
}

// Eight elements of a row of x; rows past the last are zero and cost no load.
fn activations(m: u32, at: u32) -> vec4<u32> {
  if (m >= p.rows) {
    return vec4<u32>(0u);
  }
  return x[p.xOffset8 + m * p.xStride8 + at];
}

fn weights(n: u32, at: u32) -> vec4<u32> {
  return w[min(n, p.columns - 1u) * (PANELS * 32u) + at];
}

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
  @builtin(subgroup_id) subgroup: u32,
  @builtin(subgroup_invocation_id) lane: u32,
) {
  // Who multiplies changes from workgroup to workgroup, so that neighbours use different parts of a processor.
  let turn = (subgroup + wg.x) & 3u;
  let multiplies = turn < 1u;
  let firstM = wg.y * 16u;
  let firstN = wg.x * 16u;
  let own = (subgroup & 3u) * 64u;
  let row = thread / 32u;
  let column = thread % 32u;
  var acc0: Sum;
  if (p.mode == 1u) {
    stageStart(own, lane, firstM, firstN);
    workgroupBarrier();
    acc0 = subgroupMatrixLoad<Sum, row_major>(&tile, own, 4u);
    workgroupBarrier();
  }
  var x0: vec4<u32>;
  var x1: vec4<u32>;
  var x2: vec4<u32>;
  var x3: vec4<u32>;
  var w0: vec4<u32>;
  var w1: vec4<u32>;
  var w2: vec4<u32>;
  var w3: vec4<u32>;
  let at = column;
  w0 = weights(firstN + row, at);
  w1 = weights(firstN + row + 4u, at);
  w2 = weights(firstN + row + 8u, at);
  w3 = weights(firstN + row + 12u, at);
  x0 = activations(firstM + row, at);
  x1 = activations(firstM + row + 4u, at);
  x2 = activations(firstM + row + 8u, at);
  x3 = activations(firstM + row + 12u, at);
  for (var panel = 0u; panel < PANELS; panel++) {
    tile[row * STRIDE8 + column] = x0;
    tile[(row + 4u) * STRIDE8 + column] = x1;
    tile[(row + 8u) * STRIDE8 + column] = x2;
    tile[(row + 12u) * STRIDE8 + column] = x3;
    tile[W_BASE + row * STRIDE8 + column] = halves(w0);
    tile[W_BASE + (row + 4u) * STRIDE8 + column] = halves(w1);
    tile[W_BASE + (row + 8u) * STRIDE8 + column] = halves(w2);
    tile[W_BASE + (row + 12u) * STRIDE8 + column] = halves(w3);
    workgroupBarrier();
    if (panel + 1u < PANELS) {
      let ahead = (panel + 1u) * 32u + column;
      w0 = weights(firstN + row, ahead);
      w1 = weights(firstN + row + 4u, ahead);
      w2 = weights(firstN + row + 8u, ahead);
      w3 = weights(firstN + row + 12u, ahead);
      x0 = activations(firstM + row, ahead);
      x1 = activations(firstM + row + 4u, ahead);
      x2 = activations(firstM + row + 8u, ahead);
      x3 = activations(firstM + row + 12u, ahead);
    }
    if (multiplies) {
      let b0 = subgroupMatrixLoad<Right, col_major>(&tile, W_BASE, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(
        subgroupMatrixLoad<Left, row_major>(&tile, 0u, STRIDE8), b0, acc0);
      let b1 = subgroupMatrixLoad<Right, col_major>(&tile, W_BASE + 2u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(
        subgroupMatrixLoad<Left, row_major>(&tile, 2u, STRIDE8), b1, acc0);
      let b2 = subgroupMatrixLoad<Right, col_major>(&tile, W_BASE + 4u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(
        subgroupMatrixLoad<Left, row_major>(&tile, 4u, STRIDE8), b2, acc0);
      let b3 = subgroupMatrixLoad<Right, col_major>(&tile, W_BASE + 6u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(
        subgroupMatrixLoad<Left, row_major>(&tile, 6u, STRIDE8), b3, acc0);
      let b4 = subgroupMatrixLoad<Right, col_major>(&tile, W_BASE + 8u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(
        subgroupMatrixLoad<Left, row_major>(&tile, 8u, STRIDE8), b4, acc0);
      let b5 = subgroupMatrixLoad<Right, col_major>(&tile, W_BASE + 10u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(
        subgroupMatrixLoad<Left, row_major>(&tile, 10u, STRIDE8), b5, acc0);
      let b6 = subgroupMatrixLoad<Right, col_major>(&tile, W_BASE + 12u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(
        subgroupMatrixLoad<Left, row_major>(&tile, 12u, STRIDE8), b6, acc0);
      let b7 = subgroupMatrixLoad<Right, col_major>(&tile, W_BASE + 14u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(
        subgroupMatrixLoad<Left, row_major>(&tile, 14u, STRIDE8), b7, acc0);
      let b8 = subgroupMatrixLoad<Right, col_major>(&tile, W_BASE + 16u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(
        subgroupMatrixLoad<Left, row_major>(&tile, 16u, STRIDE8), b8, acc0);
      let b9 = subgroupMatrixLoad<Right, col_major>(&tile, W_BASE + 18u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(
        subgroupMatrixLoad<Left, row_major>(&tile, 18u, STRIDE8), b9, acc0);
      let b10 = subgroupMatrixLoad<Right, col_major>(&tile, W_BASE + 20u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(
        subgroupMatrixLoad<Left, row_major>(&tile, 20u, STRIDE8), b10, acc0);
      let b11 = subgroupMatrixLoad<Right, col_major>(&tile, W_BASE + 22u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(
        subgroupMatrixLoad<Left, row_major>(&tile, 22u, STRIDE8), b11, acc0);
      let b12 = subgroupMatrixLoad<Right, col_major>(&tile, W_BASE + 24u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(
        subgroupMatrixLoad<Left, row_major>(&tile, 24u, STRIDE8), b12, acc0);
      let b13 = subgroupMatrixLoad<Right, col_major>(&tile, W_BASE + 26u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(
        subgroupMatrixLoad<Left, row_major>(&tile, 26u, STRIDE8), b13, acc0);
      let b14 = subgroupMatrixLoad<Right, col_major>(&tile, W_BASE + 28u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(
        subgroupMatrixLoad<Left, row_major>(&tile, 28u, STRIDE8), b14, acc0);
      let b15 = subgroupMatrixLoad<Right, col_major>(&tile, W_BASE + 30u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(
        subgroupMatrixLoad<Left, row_major>(&tile, 30u, STRIDE8), b15, acc0);
    }
    workgroupBarrier();
  }
  if (multiplies) {
    subgroupMatrixStore<row_major>(&tile, own, acc0, 4u);
  }
  workgroupBarrier();
  if (multiplies) {
    finish(own, lane, firstM, firstN);
  }
}
