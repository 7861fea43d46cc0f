// Written by tools/matrix-few; change the template, not this file.
// out[m, n] = (mode 2: out[m, n] +) s[m] * sum_k x[m, k] * w[n, k] + loraScale * sum_r z[m, t(n) * rank + r] * b[r, n]
// for at most 4 rows. Operands, order and bits as in matrix-matmul, epilogue as in matrix-matmul-lora. A workgroup
// owns 4 x 8 outputs and streams its rows of w once: 256 of k at a time; all lanes load, 2 panels ahead,
// into two buffers, so that one barrier a panel is enough. LoRA's term and what stands in out are fetched first, while the weights are on
// their way. Offsets into workgroup memory are literals where they can be, so that their bounds cost nothing.
// w stands in panels (matrix-panels): the 256 terms of 8 rows next to each other.
// The matrices are 16 x 16: their further rows and columns are whatever stands in the workgroup memory, and are not stored.
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

override ROUNDS: u32 = 1u;  // k / 512
override RANK4: u32 = 0u;  // quads of a target's rank; 0: no LoRA

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;  // [rows, xStride8] x 8 f16, from xOffset8
@group(0) @binding(2) var<storage, read> scales: array<f32>;  // [rows]
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;  // [columns / 8, ROUNDS * 2, 8, 32] x 8 bf16
@group(0) @binding(4) var<storage, read> z: array<vec4<f32>>;  // [rows, zStride4]: RANK4 quads a target
@group(0) @binding(5) var<storage, read> b: array<vec4<f32>>;  // [4 RANK4, bStride4] from bOffset4: B transposed
@group(0) @binding(6) var<storage, read_write> out: array<vec4<f32>>;  // [rows, outStride4] from outOffset4

var<workgroup> tile: array<vec4<u32>, 1188>;

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

// Eight elements of a row of x; rows past the last are zero and cost no load.
fn activations(m: u32, at: u32) -> vec4<u32> {
  if (m >= p.rows) {
    return vec4<u32>(0u);
  }
  return x[p.xOffset8 + m * p.xStride8 + at];
}

fn weights(n: u32, at: u32) -> vec4<u32> {
  let panel = n / 8u * (ROUNDS * 2u) + at / 32u;
  return w[(panel * 8u + n % 8u) * 32u + at % 32u];
}

// LoRA's sum for four columns of a row, r ascending.
fn loraOf(m: u32, n: u32) -> vec4<f32> {
  let first = select(0u, RANK4, n >= p.split1) + select(0u, RANK4, n >= p.split2);
  let column = p.bOffset4 + n / 4u;
  var delta = vec4<f32>(0.0);
  for (var r = 0u; r < RANK4; r++) {
    let left = z[m * p.zStride4 + first + r];
    delta = fma(vec4<f32>(left.x), b[4u * r * p.bStride4 + column], delta);
    delta = fma(vec4<f32>(left.y), b[(4u * r + 1u) * p.bStride4 + column], delta);
    delta = fma(vec4<f32>(left.z), b[(4u * r + 2u) * p.bStride4 + column], delta);
    delta = fma(vec4<f32>(left.w), b[(4u * r + 3u) * p.bStride4 + column], delta);
  }
  return delta;
}

// What stands in four outputs.
fn standing(m: u32, n: u32) -> vec4<f32> {
  return out[p.outOffset4 + m * p.outStride4 + n / 4u];
}

// Four outputs from a sum: at counts quads of the workgroup's outputs, row by row.
fn finish(at: u32, firstN: u32, before: vec4<f32>, delta: vec4<f32>) {
  let m = at / 2u;
  let n = firstN + (at % 2u) * 4u;
  if (m >= min(p.rows, 4u) || n >= p.columns) {
    return;
  }
  let to = p.outOffset4 + m * p.outStride4 + n / 4u;
  var value = (bitcast<vec4<f32>>(tile[at / 2u * 4u + at % 2u]) * scales[m]) * inverse(p.weightScale);
  if (p.mode == 2u) {
    value = value + before;
  }
  if (RANK4 > 0u) {
    value = fma(vec4<f32>(p.loraScale), delta, value);
  }
  if (n + 4u > p.columns) {
    value = select(out[to], value, vec4<u32>(n) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(p.columns));
  }
  out[to] = value;
}

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
  @builtin(subgroup_id) subgroup: u32,
) {
  // Who multiplies changes from workgroup to workgroup, so that neighbours use different parts of a processor.
  let turn = (subgroup + wg.x * 1u) & 7u;
  let multiplies = turn < 1u;
  let blockN = turn % 1u;
  let blockM = turn / 1u % 1u * 1u;
  let wFrom = blockN * 528u;
  let xFrom = blockM * 528u;
  let firstN = wg.x * 8u;
  let thread = index;
  let row = thread / 32u;
  let column = thread % 32u;
  var acc0: Sum;
  var w0_0 = weights(firstN + row, column);
  var x0_0 = activations(row, column);
  var w1_0 = weights(firstN + row, 1u * 32u + column);
  var x1_0 = activations(row, 1u * 32u + column);
  var before0 = vec4<f32>(0.0);
  var delta0 = vec4<f32>(0.0);
  if (index / 2u < min(p.rows, 4u) && firstN + index % 2u * 4u < p.columns) {
    if (RANK4 > 0u) {
      delta0 = loraOf(index / 2u, firstN + index % 2u * 4u);
    }
    if (p.mode == 2u) {
      before0 = standing(index / 2u, firstN + index % 2u * 4u);
    }
  }
  for (var round = 0u; round < ROUNDS; round++) {
    tile[(row) * 33u + column] = halves(w0_0);
    if (row < 4u) {
      tile[528u + (row) * 33u + column] = x0_0;
    }
    workgroupBarrier();
    if (round + 1u < ROUNDS) {
      w0_0 = weights(firstN + row, (round * 2u + 2u) * 32u + column);
      x0_0 = activations(row, (round * 2u + 2u) * 32u + column);
    }
    if (multiplies) {
      let w0 = subgroupMatrixLoad<Right, col_major>(&tile, 0u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 528u + xFrom, 33u), w0, acc0);
      let w1 = subgroupMatrixLoad<Right, col_major>(&tile, 2u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 530u + xFrom, 33u), w1, acc0);
      let w2 = subgroupMatrixLoad<Right, col_major>(&tile, 4u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 532u + xFrom, 33u), w2, acc0);
      let w3 = subgroupMatrixLoad<Right, col_major>(&tile, 6u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 534u + xFrom, 33u), w3, acc0);
      let w4 = subgroupMatrixLoad<Right, col_major>(&tile, 8u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 536u + xFrom, 33u), w4, acc0);
      let w5 = subgroupMatrixLoad<Right, col_major>(&tile, 10u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 538u + xFrom, 33u), w5, acc0);
      let w6 = subgroupMatrixLoad<Right, col_major>(&tile, 12u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 540u + xFrom, 33u), w6, acc0);
      let w7 = subgroupMatrixLoad<Right, col_major>(&tile, 14u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 542u + xFrom, 33u), w7, acc0);
      let w8 = subgroupMatrixLoad<Right, col_major>(&tile, 16u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 544u + xFrom, 33u), w8, acc0);
      let w9 = subgroupMatrixLoad<Right, col_major>(&tile, 18u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 546u + xFrom, 33u), w9, acc0);
      let w10 = subgroupMatrixLoad<Right, col_major>(&tile, 20u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 548u + xFrom, 33u), w10, acc0);
      let w11 = subgroupMatrixLoad<Right, col_major>(&tile, 22u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 550u + xFrom, 33u), w11, acc0);
      let w12 = subgroupMatrixLoad<Right, col_major>(&tile, 24u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 552u + xFrom, 33u), w12, acc0);
      let w13 = subgroupMatrixLoad<Right, col_major>(&tile, 26u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 554u + xFrom, 33u), w13, acc0);
      let w14 = subgroupMatrixLoad<Right, col_major>(&tile, 28u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 556u + xFrom, 33u), w14, acc0);
      let w15 = subgroupMatrixLoad<Right, col_major>(&tile, 30u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 558u + xFrom, 33u), w15, acc0);
    }
    tile[264u + (row) * 33u + column] = halves(w1_0);
    if (row < 4u) {
      tile[660u + (row) * 33u + column] = x1_0;
    }
    workgroupBarrier();
    if (round + 1u < ROUNDS) {
      w1_0 = weights(firstN + row, (round * 2u + 3u) * 32u + column);
      x1_0 = activations(row, (round * 2u + 3u) * 32u + column);
    }
    if (multiplies) {
      let w0 = subgroupMatrixLoad<Right, col_major>(&tile, 264u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 660u + xFrom, 33u), w0, acc0);
      let w1 = subgroupMatrixLoad<Right, col_major>(&tile, 266u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 662u + xFrom, 33u), w1, acc0);
      let w2 = subgroupMatrixLoad<Right, col_major>(&tile, 268u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 664u + xFrom, 33u), w2, acc0);
      let w3 = subgroupMatrixLoad<Right, col_major>(&tile, 270u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 666u + xFrom, 33u), w3, acc0);
      let w4 = subgroupMatrixLoad<Right, col_major>(&tile, 272u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 668u + xFrom, 33u), w4, acc0);
      let w5 = subgroupMatrixLoad<Right, col_major>(&tile, 274u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 670u + xFrom, 33u), w5, acc0);
      let w6 = subgroupMatrixLoad<Right, col_major>(&tile, 276u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 672u + xFrom, 33u), w6, acc0);
      let w7 = subgroupMatrixLoad<Right, col_major>(&tile, 278u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 674u + xFrom, 33u), w7, acc0);
      let w8 = subgroupMatrixLoad<Right, col_major>(&tile, 280u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 676u + xFrom, 33u), w8, acc0);
      let w9 = subgroupMatrixLoad<Right, col_major>(&tile, 282u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 678u + xFrom, 33u), w9, acc0);
      let w10 = subgroupMatrixLoad<Right, col_major>(&tile, 284u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 680u + xFrom, 33u), w10, acc0);
      let w11 = subgroupMatrixLoad<Right, col_major>(&tile, 286u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 682u + xFrom, 33u), w11, acc0);
      let w12 = subgroupMatrixLoad<Right, col_major>(&tile, 288u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 684u + xFrom, 33u), w12, acc0);
      let w13 = subgroupMatrixLoad<Right, col_major>(&tile, 290u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 686u + xFrom, 33u), w13, acc0);
      let w14 = subgroupMatrixLoad<Right, col_major>(&tile, 292u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 688u + xFrom, 33u), w14, acc0);
      let w15 = subgroupMatrixLoad<Right, col_major>(&tile, 294u + wFrom, 33u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 690u + xFrom, 33u), w15, acc0);
    }
  }
  workgroupBarrier();
  if (multiplies) {
    subgroupMatrixStore<row_major>(&tile, (blockM) * 64u + blockN * 4u, acc0, 4u);
  }
  workgroupBarrier();
  finish(index, firstN, before0, delta0);
}
