// Written by tools/matrix-many; change the template, not this file.
// out[m, n] = s[m] * sum_k x[m, k] * w[n, k] + loraScale * sum_r z[m, t(n) * rank + r] * b[r, n]: a linear layer with
// LoRA, many rows. The product is that of matrix-matmul, bit for bit: operands, tile, order and prefetch are described
// there. The epilogue of an element, in f32, each step as written:
//   v = sum * s[m] * inverse(weightScale), both exact; mode 2: v = v + out;
//   delta = 0; r ascending: delta = fma(z[m, t * rank + r], b[r, n], delta); v = fma(loraScale, delta, v).
// A fused matrix has up to three targets: t(n) = 0 below column split1, 1 below split2, 2 from there; the splits are
// multiples of four. b stands transposed (columns along a row), so that a thread reads it by quads of columns.
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
  zStride4: u32,
  bStride4: u32,
  bOffset4: u32,
  split1: u32,
  split2: u32,
  loraScale: f32,
}

override SUBS: u32 = 4u;  // subgroups that multiply: all
override PANELS: u32 = 1u;  // k / 32
override RANK4: u32 = 0u;  // quads of a target's rank; 0: no LoRA

const STRIDE8 = 5u;  // of a staged row of x and w: 32 elements and 8 of padding

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;  // [rows to a multiple of 128, xStride8] from xOffset8
@group(0) @binding(2) var<storage, read> scales: array<f32>;  // [rows]
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;  // [columns, PANELS * 4] x 8 bf16
@group(0) @binding(4) var<storage, read> z: array<vec4<f32>>;  // [rows, zStride4]: RANK4 quads a target
@group(0) @binding(5) var<storage, read> b: array<vec4<f32>>;  // [RANK4 * 4, bStride4] from bOffset4
@group(0) @binding(6) var<storage, read_write> out: array<vec4<f32>>;  // [rows, outStride4] from outOffset4

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

// What a sum comes to.
fn result(at: u32, sum: vec4<u32>, scale: f32, delta: vec4<f32>) -> vec4<f32> {
  var value = (bitcast<vec4<f32>>(sum) * scale) * inverse(p.weightScale);
  if (p.mode == 2u) {
    value = value + out[at];
  }
  if (RANK4 > 0u) {
    value = fma(vec4<f32>(p.loraScale), delta, value);
  }
  return value;
}

// Four sums to out. Columns past the last stay as they are.
fn put(m: u32, n: u32, sum: vec4<u32>, delta: vec4<f32>) {
  if (m >= p.rows || n >= p.columns) {
    return;
  }
  let at = p.outOffset4 + m * p.outStride4 + n / 4u;
  var value = result(at, sum, scales[m], delta);
  if (n + 4u > p.columns) {
    value = select(out[at], value, vec4<u32>(n) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(p.columns));
  }
  out[at] = value;
}

// Four of the rank, ascending, for four columns.
fn add4(left: vec4<f32>, b0: vec4<f32>, b1: vec4<f32>, b2: vec4<f32>, b3: vec4<f32>, sum: vec4<f32>) -> vec4<f32> {
  var delta = fma(vec4<f32>(left.x), b0, sum);
  delta = fma(vec4<f32>(left.y), b1, delta);
  delta = fma(vec4<f32>(left.z), b2, delta);
  return fma(vec4<f32>(left.w), b3, delta);
}

// Sixteen rows by 64 columns of a subgroup, from its part of the workgroup memory: eight rows' quads a thread. `whole`:
// all of the tile is outputs, and no condition stands between the loads of the rows' scales.
fn finish(firstM: u32, n: u32, own: u32, lane: u32, whole: bool) {
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
  let column = p.bOffset4 + min(n, p.columns - 1u) / 4u;
  let z4 = select(0u, RANK4, n >= p.split1) + select(0u, RANK4, n >= p.split2);
  for (var quad = 0u; quad < RANK4; quad++) {
    let b0 = b[quad * 4u * p.bStride4 + column];
    let b1 = b[(quad * 4u + 1u) * p.bStride4 + column];
    let b2 = b[(quad * 4u + 2u) * p.bStride4 + column];
    let b3 = b[(quad * 4u + 3u) * p.bStride4 + column];
    delta0 = add4(z[min(m, last) * p.zStride4 + z4 + quad], b0, b1, b2, b3, delta0);
    delta1 = add4(z[min(m + 2u, last) * p.zStride4 + z4 + quad], b0, b1, b2, b3, delta1);
    delta2 = add4(z[min(m + 4u, last) * p.zStride4 + z4 + quad], b0, b1, b2, b3, delta2);
    delta3 = add4(z[min(m + 6u, last) * p.zStride4 + z4 + quad], b0, b1, b2, b3, delta3);
    delta4 = add4(z[min(m + 8u, last) * p.zStride4 + z4 + quad], b0, b1, b2, b3, delta4);
    delta5 = add4(z[min(m + 10u, last) * p.zStride4 + z4 + quad], b0, b1, b2, b3, delta5);
    delta6 = add4(z[min(m + 12u, last) * p.zStride4 + z4 + quad], b0, b1, b2, b3, delta6);
    delta7 = add4(z[min(m + 14u, last) * p.zStride4 + z4 + quad], b0, b1, b2, b3, delta7);
  }
  if (!whole) {
    put(m, n, tile[own][lane], delta0);
    put(m + 2u, n, tile[own][lane + 32u], delta1);
    put(m + 4u, n, tile[own][lane + 64u], delta2);
    put(m + 6u, n, tile[own][lane + 96u], delta3);
    put(m + 8u, n, tile[own][lane + 128u], delta4);
    put(m + 10u, n, tile[own][lane + 160u], delta5);
    put(m + 12u, n, tile[own][lane + 192u], delta6);
    put(m + 14u, n, tile[own][lane + 224u], delta7);
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
  let r0 = result(at, tile[own][lane], s0, delta0);
  let r1 = result(at + 2u * p.outStride4, tile[own][lane + 32u], s1, delta1);
  let r2 = result(at + 4u * p.outStride4, tile[own][lane + 64u], s2, delta2);
  let r3 = result(at + 6u * p.outStride4, tile[own][lane + 96u], s3, delta3);
  let r4 = result(at + 8u * p.outStride4, tile[own][lane + 128u], s4, delta4);
  let r5 = result(at + 10u * p.outStride4, tile[own][lane + 160u], s5, delta5);
  let r6 = result(at + 12u * p.outStride4, tile[own][lane + 192u], s6, delta6);
  let r7 = result(at + 14u * p.outStride4, tile[own][lane + 224u], s7, delta7);
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
  let n = firstN + subN + (lane % 16u) * 4u;
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
  finish(firstM + subM, n, own, lane, whole);
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&tile[own], 0u, acc4, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 4u, acc5, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 8u, acc6, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 12u, acc7, 16u);
  workgroupBarrier();
  finish(firstM + subM + 16u, n, own, lane, whole);
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&tile[own], 0u, acc8, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 4u, acc9, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 8u, acc10, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 12u, acc11, 16u);
  workgroupBarrier();
  finish(firstM + subM + 32u, n, own, lane, whole);
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&tile[own], 0u, acc12, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 4u, acc13, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 8u, acc14, 16u);
  subgroupMatrixStore<row_major>(&tile[own], 12u, acc15, 16u);
  workgroupBarrier();
  finish(firstM + subM + 48u, n, own, lane, whole);
}
