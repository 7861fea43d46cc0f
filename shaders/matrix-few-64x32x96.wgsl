// Written by tools/matrix-few; change the template, not this file.
// out[m, n] = (mode 2: out[m, n] +) s[m] * sum_k x[m, k] * w[n, k] + loraScale * sum_r z[m, t(n) * rank + r] * b[r, n]
// for at most 64 rows. Operands, order and bits as in matrix-matmul, epilogue as in matrix-matmul-lora. A workgroup
// owns 64 x 32 outputs and streams its rows of w once, 96 of k a stage: all lanes stage, the first subgroups
// multiply. w is the left matrix, so that few rows of x need a narrow right one.
// What keeps loads in flight on NVIDIA's compiler (read from its output): they have no condition, or their results are
// copied, and waited for, at once; so indices are clamped, a row past the last repeats it, and the last round, which
// loads nothing, is written out. The conversion reads its factor from workgroup memory, or it is moved up before the
// barrier and waits there for the stage after this one. Loads for 2 stages are on the way while as many are multiplied.
// LoRA's term and what stands in out are fetched before the weights, or (LATE) beside them by the subgroups that finish
// alone: which is faster depends on the shape.
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

override ROUNDS: u32 = 1u;  // k / 192
override RANK4: u32 = 0u;  // quads of a target's rank; 0: no LoRA
override LATE: bool = false;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;  // [rows, xStride8] x 8 f16, from xOffset8
@group(0) @binding(2) var<storage, read> scales: array<f32>;  // [rows]
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;  // [columns, ROUNDS * 24] x 8 bf16
@group(0) @binding(4) var<storage, read> z: array<vec4<f32>>;  // [rows, zStride4]: RANK4 quads a target
@group(0) @binding(5) var<storage, read> b: array<vec4<f32>>;  // [4 RANK4, bStride4] from bOffset4: B transposed
@group(0) @binding(6) var<storage, read_write> out: array<vec4<f32>>;  // [rows, outStride4] from outOffset4

var<workgroup> tile: array<vec4<u32>, 2496>;
var<workgroup> factor: f32;

// 1 / x of a power of two, exactly.
fn inverse(power: f32) -> f32 {
  return bitcast<f32>(0x7f000000u - bitcast<u32>(power));
}

fn half2(word: u32, scale: f32) -> u32 {
  let low = bitcast<f32>(word << 16u) * scale;
  let high = bitcast<f32>(word & 0xffff0000u) * scale;
  return pack2x16float(vec2<f32>(low, high));
}

fn halves(v: vec4<u32>, scale: f32) -> vec4<u32> {
  return vec4<u32>(half2(v.x, scale), half2(v.y, scale), half2(v.z, scale), half2(v.w, scale));
}

fn activations(m: u32, at: u32) -> vec4<u32> {
  return x[p.xOffset8 + min(m, p.rows - 1u) * p.xStride8 + at];
}

fn weights(n: u32, at: u32) -> vec4<u32> {
  return w[min(n, p.columns - 1u) * (ROUNDS * 24u) + at];
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

// Quad `at` of the workgroup's outputs, row by row: whether it is there.
fn isOutput(at: u32, firstN: u32) -> bool {
  return at / 8u < min(p.rows, 64u) && firstN + at % 8u * 4u < p.columns;
}

// Four outputs from a sum.
fn finish(at: u32, firstN: u32, before: vec4<f32>, delta: vec4<f32>) {
  if (!isOutput(at, firstN)) {
    return;
  }
  let m = at / 8u;
  let n = firstN + (at % 8u) * 4u;
  let to = p.outOffset4 + m * p.outStride4 + n / 4u;
  var value = (bitcast<vec4<f32>>(tile[at]) * scales[m]) * inverse(p.weightScale);
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

@compute @workgroup_size(192)
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
  @builtin(subgroup_id) subgroup: u32,
) {
  let firstN = wg.x * 32u;
  let multiplies = subgroup < 4u;
  let blockN = subgroup % 2u;
  let wFrom = blockN * 208u;
  let blockM = subgroup / 2u;
  let xFrom = blockM * 416u;
  let row = index / 12u;
  let column = index % 12u;
  // Outputs are finished by subgroups that do not multiply, as far as there are any.
  let turn = (subgroup + 2u) % 6u;
  let place = turn * 32u + index % 32u;
  var acc0: Sum;
  var acc1: Sum;
  var w0_0 = weights(firstN + row, column);
  var w0_1 = weights(firstN + row + 16u, column);
  var x0_0 = activations(row, column);
  var x0_1 = activations(row + 16u, column);
  var x0_2 = activations(row + 32u, column);
  var x0_3 = activations(row + 48u, column);
  var w1_0 = weights(firstN + row, 1u * 12u + column);
  var w1_1 = weights(firstN + row + 16u, 1u * 12u + column);
  var x1_0 = activations(row, 1u * 12u + column);
  var x1_1 = activations(row + 16u, 1u * 12u + column);
  var x1_2 = activations(row + 32u, 1u * 12u + column);
  var x1_3 = activations(row + 48u, 1u * 12u + column);
  if (index == 0u) {
    factor = p.weightScale;
  }
  workgroupBarrier();
  var before0 = vec4<f32>(0.0);
  var delta0 = vec4<f32>(0.0);
  if (isOutput(place, firstN)) {
    if (RANK4 > 0u) {
      delta0 = loraOf((place) / 8u, firstN + (place) % 8u * 4u);
    }
    if (p.mode == 2u) {
      before0 = out[p.outOffset4 + (place) / 8u * p.outStride4 + (firstN + (place) % 8u * 4u) / 4u];
    }
  }
  var before1 = vec4<f32>(0.0);
  var delta1 = vec4<f32>(0.0);
  if (isOutput(place + 192u, firstN)) {
    if (RANK4 > 0u) {
      delta1 = loraOf((place + 192u) / 8u, firstN + (place + 192u) % 8u * 4u);
    }
    if (p.mode == 2u) {
      before1 = out[p.outOffset4 + (place + 192u) / 8u * p.outStride4 + (firstN + (place + 192u) % 8u * 4u) / 4u];
    }
  }
  var before2 = vec4<f32>(0.0);
  var delta2 = vec4<f32>(0.0);
  if (isOutput(place + 384u, firstN)) {
    if (RANK4 > 0u) {
      delta2 = loraOf((place + 384u) / 8u, firstN + (place + 384u) % 8u * 4u);
    }
    if (p.mode == 2u) {
      before2 = out[p.outOffset4 + (place + 384u) / 8u * p.outStride4 + (firstN + (place + 384u) % 8u * 4u) / 4u];
    }
  }
  for (var round = 0u; round + 1u < ROUNDS; round++) {
    let scale0 = factor;
    tile[(row) * 13u + column] = halves(w0_0, scale0);
    tile[(row + 16u) * 13u + column] = halves(w0_1, scale0);
    tile[(row) * 13u + column + 832u] = x0_0;
    tile[(row + 16u) * 13u + column + 832u] = x0_1;
    tile[(row + 32u) * 13u + column + 832u] = x0_2;
    tile[(row + 48u) * 13u + column + 832u] = x0_3;
    workgroupBarrier();
    w0_0 = weights(firstN + row, (round * 2u + 2u) * 12u + column);
    w0_1 = weights(firstN + row + 16u, (round * 2u + 2u) * 12u + column);
    x0_0 = activations(row, (round * 2u + 2u) * 12u + column);
    x0_1 = activations(row + 16u, (round * 2u + 2u) * 12u + column);
    x0_2 = activations(row + 32u, (round * 2u + 2u) * 12u + column);
    x0_3 = activations(row + 48u, (round * 2u + 2u) * 12u + column);
    if (multiplies) {
      let w0 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w0, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 832u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w0, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1040u, 13u), acc1);
      let w1 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom + 2u, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w1, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 834u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w1, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1042u, 13u), acc1);
      let w2 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom + 4u, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w2, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 836u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w2, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1044u, 13u), acc1);
      let w3 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom + 6u, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w3, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 838u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w3, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1046u, 13u), acc1);
      let w4 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom + 8u, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w4, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 840u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w4, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1048u, 13u), acc1);
      let w5 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom + 10u, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w5, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 842u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w5, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1050u, 13u), acc1);
    }
    let scale1 = factor;
    tile[(row) * 13u + column + 416u] = halves(w1_0, scale1);
    tile[(row + 16u) * 13u + column + 416u] = halves(w1_1, scale1);
    tile[(row) * 13u + column + 1664u] = x1_0;
    tile[(row + 16u) * 13u + column + 1664u] = x1_1;
    tile[(row + 32u) * 13u + column + 1664u] = x1_2;
    tile[(row + 48u) * 13u + column + 1664u] = x1_3;
    workgroupBarrier();
    w1_0 = weights(firstN + row, (round * 2u + 3u) * 12u + column);
    w1_1 = weights(firstN + row + 16u, (round * 2u + 3u) * 12u + column);
    x1_0 = activations(row, (round * 2u + 3u) * 12u + column);
    x1_1 = activations(row + 16u, (round * 2u + 3u) * 12u + column);
    x1_2 = activations(row + 32u, (round * 2u + 3u) * 12u + column);
    x1_3 = activations(row + 48u, (round * 2u + 3u) * 12u + column);
    if (multiplies) {
      let w0 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom + 416u, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w0, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1664u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w0, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1872u, 13u), acc1);
      let w1 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom + 418u, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w1, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1666u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w1, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1874u, 13u), acc1);
      let w2 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom + 420u, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w2, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1668u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w2, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1876u, 13u), acc1);
      let w3 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom + 422u, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w3, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1670u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w3, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1878u, 13u), acc1);
      let w4 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom + 424u, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w4, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1672u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w4, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1880u, 13u), acc1);
      let w5 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom + 426u, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w5, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1674u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w5, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1882u, 13u), acc1);
    }
  }
  {
    let scale0 = factor;
    tile[(row) * 13u + column] = halves(w0_0, scale0);
    tile[(row + 16u) * 13u + column] = halves(w0_1, scale0);
    tile[(row) * 13u + column + 832u] = x0_0;
    tile[(row + 16u) * 13u + column + 832u] = x0_1;
    tile[(row + 32u) * 13u + column + 832u] = x0_2;
    tile[(row + 48u) * 13u + column + 832u] = x0_3;
    workgroupBarrier();
    if (multiplies) {
      let w0 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w0, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 832u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w0, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1040u, 13u), acc1);
      let w1 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom + 2u, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w1, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 834u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w1, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1042u, 13u), acc1);
      let w2 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom + 4u, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w2, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 836u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w2, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1044u, 13u), acc1);
      let w3 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom + 6u, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w3, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 838u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w3, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1046u, 13u), acc1);
      let w4 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom + 8u, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w4, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 840u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w4, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1048u, 13u), acc1);
      let w5 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom + 10u, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w5, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 842u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w5, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1050u, 13u), acc1);
    }
    let scale1 = factor;
    tile[(row) * 13u + column + 416u] = halves(w1_0, scale1);
    tile[(row + 16u) * 13u + column + 416u] = halves(w1_1, scale1);
    tile[(row) * 13u + column + 1664u] = x1_0;
    tile[(row + 16u) * 13u + column + 1664u] = x1_1;
    tile[(row + 32u) * 13u + column + 1664u] = x1_2;
    tile[(row + 48u) * 13u + column + 1664u] = x1_3;
    workgroupBarrier();
    if (multiplies) {
      let w0 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom + 416u, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w0, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1664u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w0, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1872u, 13u), acc1);
      let w1 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom + 418u, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w1, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1666u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w1, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1874u, 13u), acc1);
      let w2 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom + 420u, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w2, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1668u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w2, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1876u, 13u), acc1);
      let w3 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom + 422u, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w3, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1670u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w3, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1878u, 13u), acc1);
      let w4 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom + 424u, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w4, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1672u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w4, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1880u, 13u), acc1);
      let w5 = subgroupMatrixLoad<Left, row_major>(&tile, wFrom + 426u, 13u);
      acc0 = subgroupMatrixMultiplyAccumulate(w5, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1674u, 13u), acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(w5, subgroupMatrixLoad<Right, col_major>(&tile, xFrom + 1882u, 13u), acc1);
    }
  }
  workgroupBarrier();
  if (multiplies) {
    subgroupMatrixStore<col_major>(&tile, blockM * 256u + blockN * 4u, acc0, 8u);
    subgroupMatrixStore<col_major>(&tile, blockM * 256u + blockN * 4u + 128u, acc1, 8u);
  }
  workgroupBarrier();
  finish(place, firstN, before0, delta0);
  finish(place + 192u, firstN, before1, delta1);
  finish(place + 384u, firstN, before2, delta2);
}
