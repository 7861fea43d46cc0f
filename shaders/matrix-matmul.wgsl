// Written by tools/matrix-many; change the template, not this file.
// out[m, n] = scale * s[m] * sum_k x[m, k] * w[n, k] (mode 0), with modes 1 and 2 as in matmul: many rows. x: f16 rows
// that matrix-pack made, s their scales; w: [columns, k] bf16, packed two a word, which becomes f16 while it is staged
// (times weightScale, a power of two that is undone at the end). Products of 16 x 16 x 16 by subgroup matrices: f16
// operands, one f32 accumulator an output, k ascending by 16. So the bits of an output depend on its rows of x and w
// alone, and matrix-matmul-low and -narrow give the same. A workgroup owns 128 x 128 outputs, each of its four
// subgroups a quarter; a processor has workgroup memory for two. The next 32 of k are on their way in registers while
// these are multiplied; rows are padded by 16 bytes in workgroup memory against bank conflicts. Everything is written
// out: the driver keeps arrays of matrices in memory. The branches around the products, always taken, keep it from
// mixing them with the loads. The last panel stands behind the loop: a load under a condition is waited for. Matrices
// are loaded at literal offsets of an array that is the subgroup's own: so their bounds are known when the shader is
// compiled, and need no check in the loop.
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

override SUBS: u32 = 4u;  // subgroups that multiply: all
override PANELS: u32 = 1u;  // k / 32

const STRIDE8 = 5u;  // of a staged row of x and w: 32 elements and 8 of padding

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;  // [rows to a multiple of 128, xStride8] from xOffset8
@group(0) @binding(2) var<storage, read> scales: array<f32>;  // [rows]
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;  // [columns, PANELS * 4] x 8 bf16
@group(0) @binding(4) var<storage, read_write> out: array<vec4<f32>>;  // [rows, outStride4] from outOffset4

// Two halves of the rows of x, two of the rows of w; before and after, a subgroup's sums each.
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

// What a sum comes to, by the mode.
fn result(at: u32, sum: vec4<u32>, scale: f32) -> vec4<f32> {
  let value = (bitcast<vec4<f32>>(sum) * scale) * inverse(p.weightScale);
  if (p.mode == 0u) {
    return p.scale * value;
  }
  if (p.mode == 2u) {
    return fma(vec4<f32>(p.scale), value, out[at]);
  }
  return value;
}

// Four sums to out. Columns past the last stay as they are.
fn put(m: u32, n: u32, sum: vec4<u32>) {
  if (m >= p.rows || n >= p.columns) {
    return;
  }
  let at = p.outOffset4 + m * p.outStride4 + n / 4u;
  var value = result(at, sum, scales[m]);
  if (n + 4u > p.columns) {
    value = select(out[at], value, vec4<u32>(n) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(p.columns));
  }
  out[at] = value;
}

// Sixteen rows by 64 columns of a subgroup, from its part of the workgroup memory. `whole`: all of the tile is outputs,
// and no condition stands between the loads of the rows' scales.
fn finish(firstM: u32, firstN: u32, own: u32, lane: u32, whole: bool) {
  let m = firstM + lane / 16u;
  let n = firstN + (lane % 16u) * 4u;
  if (!whole) {
    for (var e = 0u; e < 8u; e++) {
      put(m + e * 2u, n, tile[own][e * 32u + lane]);
    }
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
  let at = p.outOffset4 + m * p.outStride4 + n / 4u;
  let r0 = result(at, tile[own][lane], s0);
  let r1 = result(at + 2u * p.outStride4, tile[own][lane + 32u], s1);
  let r2 = result(at + 4u * p.outStride4, tile[own][lane + 64u], s2);
  let r3 = result(at + 6u * p.outStride4, tile[own][lane + 96u], s3);
  let r4 = result(at + 8u * p.outStride4, tile[own][lane + 128u], s4);
  let r5 = result(at + 10u * p.outStride4, tile[own][lane + 160u], s5);
  let r6 = result(at + 12u * p.outStride4, tile[own][lane + 192u], s6);
  let r7 = result(at + 14u * p.outStride4, tile[own][lane + 224u], s7);
  out[at] = r0;
  out[at + 2u * p.outStride4] = r1;
  out[at + 4u * p.outStride4] = r2;
  out[at + 6u * p.outStride4] = r3;
  out[at + 8u * p.outStride4] = r4;
  out[at + 10u * p.outStride4] = r5;
  out[at + 12u * p.outStride4] = r6;
  out[at + 14u * p.outStride4] = r7;
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
  let multiplies = subgroup < SUBS;
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
  let column = thread % 4u;
  var x0 = x[p.xOffset8 + (firstM + row) * p.xStride8 + column];
  var x1 = x[p.xOffset8 + (firstM + row + 32u) * p.xStride8 + column];
  var x2 = x[p.xOffset8 + (firstM + row + 64u) * p.xStride8 + column];
  var x3 = x[p.xOffset8 + (firstM + row + 96u) * p.xStride8 + column];
  var w0 = w[min(firstN + row, p.columns - 1u) * (PANELS * 4u) + column];
  var w1 = w[min(firstN + row + 32u, p.columns - 1u) * (PANELS * 4u) + column];
  var w2 = w[min(firstN + row + 64u, p.columns - 1u) * (PANELS * 4u) + column];
  var w3 = w[min(firstN + row + 96u, p.columns - 1u) * (PANELS * 4u) + column];
  for (var panel = 0u; panel + 1u < PANELS; panel++) {
    tile[0u][row * STRIDE8 + column] = x0;
    tile[0u][(row + 32u) * STRIDE8 + column] = x1;
    tile[1u][row * STRIDE8 + column] = x2;
    tile[1u][(row + 32u) * STRIDE8 + column] = x3;
    tile[2u][row * STRIDE8 + column] = halves(w0);
    tile[2u][(row + 32u) * STRIDE8 + column] = halves(w1);
    tile[3u][row * STRIDE8 + column] = halves(w2);
    tile[3u][(row + 32u) * STRIDE8 + column] = halves(w3);
    workgroupBarrier();
    if (multiplies) {
      {
        let a0 = subgroupMatrixLoad<Left, row_major>(&tile[left], 0u, STRIDE8);
        let a1 = subgroupMatrixLoad<Left, row_major>(&tile[left], 80u, STRIDE8);
        let a2 = subgroupMatrixLoad<Left, row_major>(&tile[left], 160u, STRIDE8);
        let a3 = subgroupMatrixLoad<Left, row_major>(&tile[left], 240u, STRIDE8);
        let b0 = subgroupMatrixLoad<Right, col_major>(&tile[right], 0u, STRIDE8);
        acc0 = subgroupMatrixMultiplyAccumulate(a0, b0, acc0);
        acc4 = subgroupMatrixMultiplyAccumulate(a1, b0, acc4);
        acc8 = subgroupMatrixMultiplyAccumulate(a2, b0, acc8);
        acc12 = subgroupMatrixMultiplyAccumulate(a3, b0, acc12);
        let b1 = subgroupMatrixLoad<Right, col_major>(&tile[right], 80u, STRIDE8);
        acc1 = subgroupMatrixMultiplyAccumulate(a0, b1, acc1);
        acc5 = subgroupMatrixMultiplyAccumulate(a1, b1, acc5);
        acc9 = subgroupMatrixMultiplyAccumulate(a2, b1, acc9);
        acc13 = subgroupMatrixMultiplyAccumulate(a3, b1, acc13);
        let b2 = subgroupMatrixLoad<Right, col_major>(&tile[right], 160u, STRIDE8);
        acc2 = subgroupMatrixMultiplyAccumulate(a0, b2, acc2);
        acc6 = subgroupMatrixMultiplyAccumulate(a1, b2, acc6);
        acc10 = subgroupMatrixMultiplyAccumulate(a2, b2, acc10);
        acc14 = subgroupMatrixMultiplyAccumulate(a3, b2, acc14);
        let b3 = subgroupMatrixLoad<Right, col_major>(&tile[right], 240u, STRIDE8);
        acc3 = subgroupMatrixMultiplyAccumulate(a0, b3, acc3);
        acc7 = subgroupMatrixMultiplyAccumulate(a1, b3, acc7);
        acc11 = subgroupMatrixMultiplyAccumulate(a2, b3, acc11);
        acc15 = subgroupMatrixMultiplyAccumulate(a3, b3, acc15);
      }
    }
    let ahead = (panel + 1u) * 4u + column;
    x0 = x[p.xOffset8 + (firstM + row) * p.xStride8 + ahead];
    x1 = x[p.xOffset8 + (firstM + row + 32u) * p.xStride8 + ahead];
    x2 = x[p.xOffset8 + (firstM + row + 64u) * p.xStride8 + ahead];
    x3 = x[p.xOffset8 + (firstM + row + 96u) * p.xStride8 + ahead];
    w0 = w[min(firstN + row, p.columns - 1u) * (PANELS * 4u) + ahead];
    w1 = w[min(firstN + row + 32u, p.columns - 1u) * (PANELS * 4u) + ahead];
    w2 = w[min(firstN + row + 64u, p.columns - 1u) * (PANELS * 4u) + ahead];
    w3 = w[min(firstN + row + 96u, p.columns - 1u) * (PANELS * 4u) + ahead];
    if (multiplies) {
      {
        let a0 = subgroupMatrixLoad<Left, row_major>(&tile[left], 2u, STRIDE8);
        let a1 = subgroupMatrixLoad<Left, row_major>(&tile[left], 82u, STRIDE8);
        let a2 = subgroupMatrixLoad<Left, row_major>(&tile[left], 162u, STRIDE8);
        let a3 = subgroupMatrixLoad<Left, row_major>(&tile[left], 242u, STRIDE8);
        let b0 = subgroupMatrixLoad<Right, col_major>(&tile[right], 2u, STRIDE8);
        acc0 = subgroupMatrixMultiplyAccumulate(a0, b0, acc0);
        acc4 = subgroupMatrixMultiplyAccumulate(a1, b0, acc4);
        acc8 = subgroupMatrixMultiplyAccumulate(a2, b0, acc8);
        acc12 = subgroupMatrixMultiplyAccumulate(a3, b0, acc12);
        let b1 = subgroupMatrixLoad<Right, col_major>(&tile[right], 82u, STRIDE8);
        acc1 = subgroupMatrixMultiplyAccumulate(a0, b1, acc1);
        acc5 = subgroupMatrixMultiplyAccumulate(a1, b1, acc5);
        acc9 = subgroupMatrixMultiplyAccumulate(a2, b1, acc9);
        acc13 = subgroupMatrixMultiplyAccumulate(a3, b1, acc13);
        let b2 = subgroupMatrixLoad<Right, col_major>(&tile[right], 162u, STRIDE8);
        acc2 = subgroupMatrixMultiplyAccumulate(a0, b2, acc2);
        acc6 = subgroupMatrixMultiplyAccumulate(a1, b2, acc6);
        acc10 = subgroupMatrixMultiplyAccumulate(a2, b2, acc10);
        acc14 = subgroupMatrixMultiplyAccumulate(a3, b2, acc14);
        let b3 = subgroupMatrixLoad<Right, col_major>(&tile[right], 242u, STRIDE8);
        acc3 = subgroupMatrixMultiplyAccumulate(a0, b3, acc3);
        acc7 = subgroupMatrixMultiplyAccumulate(a1, b3, acc7);
        acc11 = subgroupMatrixMultiplyAccumulate(a2, b3, acc11);
        acc15 = subgroupMatrixMultiplyAccumulate(a3, b3, acc15);
      }
    }
    workgroupBarrier();
  }
  {
    tile[0u][row * STRIDE8 + column] = x0;
    tile[0u][(row + 32u) * STRIDE8 + column] = x1;
    tile[1u][row * STRIDE8 + column] = x2;
    tile[1u][(row + 32u) * STRIDE8 + column] = x3;
    tile[2u][row * STRIDE8 + column] = halves(w0);
    tile[2u][(row + 32u) * STRIDE8 + column] = halves(w1);
    tile[3u][row * STRIDE8 + column] = halves(w2);
    tile[3u][(row + 32u) * STRIDE8 + column] = halves(w3);
    workgroupBarrier();
    if (multiplies) {
      {
        let a0 = subgroupMatrixLoad<Left, row_major>(&tile[left], 0u, STRIDE8);
        let a1 = subgroupMatrixLoad<Left, row_major>(&tile[left], 80u, STRIDE8);
        let a2 = subgroupMatrixLoad<Left, row_major>(&tile[left], 160u, STRIDE8);
        let a3 = subgroupMatrixLoad<Left, row_major>(&tile[left], 240u, STRIDE8);
        let b0 = subgroupMatrixLoad<Right, col_major>(&tile[right], 0u, STRIDE8);
        acc0 = subgroupMatrixMultiplyAccumulate(a0, b0, acc0);
        acc4 = subgroupMatrixMultiplyAccumulate(a1, b0, acc4);
        acc8 = subgroupMatrixMultiplyAccumulate(a2, b0, acc8);
        acc12 = subgroupMatrixMultiplyAccumulate(a3, b0, acc12);
        let b1 = subgroupMatrixLoad<Right, col_major>(&tile[right], 80u, STRIDE8);
        acc1 = subgroupMatrixMultiplyAccumulate(a0, b1, acc1);
        acc5 = subgroupMatrixMultiplyAccumulate(a1, b1, acc5);
        acc9 = subgroupMatrixMultiplyAccumulate(a2, b1, acc9);
        acc13 = subgroupMatrixMultiplyAccumulate(a3, b1, acc13);
        let b2 = subgroupMatrixLoad<Right, col_major>(&tile[right], 160u, STRIDE8);
        acc2 = subgroupMatrixMultiplyAccumulate(a0, b2, acc2);
        acc6 = subgroupMatrixMultiplyAccumulate(a1, b2, acc6);
        acc10 = subgroupMatrixMultiplyAccumulate(a2, b2, acc10);
        acc14 = subgroupMatrixMultiplyAccumulate(a3, b2, acc14);
        let b3 = subgroupMatrixLoad<Right, col_major>(&tile[right], 240u, STRIDE8);
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
        let b0 = subgroupMatrixLoad<Right, col_major>(&tile[right], 2u, STRIDE8);
        acc0 = subgroupMatrixMultiplyAccumulate(a0, b0, acc0);
        acc4 = subgroupMatrixMultiplyAccumulate(a1, b0, acc4);
        acc8 = subgroupMatrixMultiplyAccumulate(a2, b0, acc8);
        acc12 = subgroupMatrixMultiplyAccumulate(a3, b0, acc12);
        let b1 = subgroupMatrixLoad<Right, col_major>(&tile[right], 82u, STRIDE8);
        acc1 = subgroupMatrixMultiplyAccumulate(a0, b1, acc1);
        acc5 = subgroupMatrixMultiplyAccumulate(a1, b1, acc5);
        acc9 = subgroupMatrixMultiplyAccumulate(a2, b1, acc9);
        acc13 = subgroupMatrixMultiplyAccumulate(a3, b1, acc13);
        let b2 = subgroupMatrixLoad<Right, col_major>(&tile[right], 162u, STRIDE8);
        acc2 = subgroupMatrixMultiplyAccumulate(a0, b2, acc2);
        acc6 = subgroupMatrixMultiplyAccumulate(a1, b2, acc6);
        acc10 = subgroupMatrixMultiplyAccumulate(a2, b2, acc10);
        acc14 = subgroupMatrixMultiplyAccumulate(a3, b2, acc14);
        let b3 = subgroupMatrixLoad<Right, col_major>(&tile[right], 242u, STRIDE8);
        acc3 = subgroupMatrixMultiplyAccumulate(a0, b3, acc3);
        acc7 = subgroupMatrixMultiplyAccumulate(a1, b3, acc7);
        acc11 = subgroupMatrixMultiplyAccumulate(a2, b3, acc11);
        acc15 = subgroupMatrixMultiplyAccumulate(a3, b3, acc15);
      }
    }
    workgroupBarrier();
  }
  let whole = firstM + 128u <= p.rows && firstN + 128u <= p.columns;
  subgroupMatrixStore<row_major>(&tile[own], 0u, acc0, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 4u, acc1, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 8u, acc2, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 12u, acc3, 16u);
  workgroupBarrier();
  finish(firstM + subM, firstN + subN, own, lane, whole);
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&tile[own], 0u, acc4, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 4u, acc5, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 8u, acc6, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 12u, acc7, 16u);
  workgroupBarrier();
  finish(firstM + subM + 16u, firstN + subN, own, lane, whole);
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&tile[own], 0u, acc8, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 4u, acc9, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 8u, acc10, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 12u, acc11, 16u);
  workgroupBarrier();
  finish(firstM + subM + 32u, firstN + subN, own, lane, whole);
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&tile[own], 0u, acc12, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 4u, acc13, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 8u, acc14, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 12u, acc15, 16u);
  workgroupBarrier();
  finish(firstM + subM + 48u, firstN + subN, own, lane, whole);
}
