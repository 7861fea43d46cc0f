// Written by tools/matrix-few; change the template, not this file.
// out[m, n] = (mode 2: out[m, n] +) s[m] * sum_k x[m, k] * w[n, k] + loraScale * sum_r z[m, t(n) * rank + r] * b[r, n]
// for at most 64 rows. Operands, order and bits as in matrix-matmul, epilogue as in matrix-matmul-lora. A workgroup
// owns 64 x 32 outputs and streams its rows of w once: 64 of k at a time; all lanes load, 1 panel ahead,
// into one buffer. LoRA's term and what stands in out are fetched first, while the weights are on
// their way. Offsets into workgroup memory are literals where they can be, so that their bounds cost nothing.
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

override ROUNDS: u32 = 1u;  // k / 64
override RANK4: u32 = 0u;  // quads of a target's rank; 0: no LoRA

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;  // [rows, xStride8] x 8 f16, from xOffset8
@group(0) @binding(2) var<storage, read> scales: array<f32>;  // [rows]
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;  // [columns, ROUNDS * 8] x 8 bf16
@group(0) @binding(4) var<storage, read> z: array<vec4<f32>>;  // [rows, zStride4]: RANK4 quads a target
@group(0) @binding(5) var<storage, read> b: array<vec4<f32>>;  // [4 RANK4, bStride4] from bOffset4: B transposed
@group(0) @binding(6) var<storage, read_write> out: array<vec4<f32>>;  // [rows, outStride4] from outOffset4

var<workgroup> tile: array<vec4<u32>, 864>;

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
  return w[min(n, p.columns - 1u) * (ROUNDS * 8u) + at];
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
  let m = at / 8u;
  let n = firstN + (at % 8u) * 4u;
  if (m >= min(p.rows, 64u) || n >= p.columns) {
    return;
  }
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

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
  @builtin(subgroup_id) subgroup: u32,
) {
  // Who multiplies changes from workgroup to workgroup, so that neighbours use different parts of a processor.
  let turn = (subgroup + wg.x * 4u) & 3u;
  let multiplies = turn < 4u;
  let blockN = turn % 2u;
  let blockM = turn / 2u % 2u * 2u;
  let wFrom = blockN * 144u;
  let xFrom = blockM * 144u;
  let firstN = wg.x * 32u;
  let thread = index;
  let row = thread / 8u;
  let column = thread % 8u;
  var acc0: Sum;
  var acc1: Sum;
  var w0_0 = weights(firstN + row, column);
  var w0_1 = weights(firstN + row + 16u, column);
  var x0_0 = activations(row, column);
  var x0_1 = activations(row + 16u, column);
  var x0_2 = activations(row + 32u, column);
  var x0_3 = activations(row + 48u, column);
  var before0 = vec4<f32>(0.0);
  var delta0 = vec4<f32>(0.0);
  if (index / 8u < min(p.rows, 64u) && firstN + index % 8u * 4u < p.columns) {
    if (RANK4 > 0u) {
      delta0 = loraOf(index / 8u, firstN + index % 8u * 4u);
    }
    if (p.mode == 2u) {
      before0 = standing(index / 8u, firstN + index % 8u * 4u);
    }
  }
  var before1 = vec4<f32>(0.0);
  var delta1 = vec4<f32>(0.0);
  if ((index + 128u) / 8u < min(p.rows, 64u) && firstN + (index + 128u) % 8u * 4u < p.columns) {
    if (RANK4 > 0u) {
      delta1 = loraOf((index + 128u) / 8u, firstN + (index + 128u) % 8u * 4u);
    }
    if (p.mode == 2u) {
      before1 = standing((index + 128u) / 8u, firstN + (index + 128u) % 8u * 4u);
    }
  }
  var before2 = vec4<f32>(0.0);
  var delta2 = vec4<f32>(0.0);
  if ((index + 256u) / 8u < min(p.rows, 64u) && firstN + (index + 256u) % 8u * 4u < p.columns) {
    if (RANK4 > 0u) {
      delta2 = loraOf((index + 256u) / 8u, firstN + (index + 256u) % 8u * 4u);
    }
    if (p.mode == 2u) {
      before2 = standing((index + 256u) / 8u, firstN + (index + 256u) % 8u * 4u);
    }
  }
  var before3 = vec4<f32>(0.0);
  var delta3 = vec4<f32>(0.0);
  if ((index + 384u) / 8u < min(p.rows, 64u) && firstN + (index + 384u) % 8u * 4u < p.columns) {
    if (RANK4 > 0u) {
      delta3 = loraOf((index + 384u) / 8u, firstN + (index + 384u) % 8u * 4u);
    }
    if (p.mode == 2u) {
      before3 = standing((index + 384u) / 8u, firstN + (index + 384u) % 8u * 4u);
    }
  }
  for (var round = 0u; round < ROUNDS; round++) {
    workgroupBarrier();
    tile[(row) * 9u + column] = halves(w0_0);
    tile[(row + 16u) * 9u + column] = halves(w0_1);
    tile[288u + (row) * 9u + column] = x0_0;
    tile[288u + (row + 16u) * 9u + column] = x0_1;
    tile[288u + (row + 32u) * 9u + column] = x0_2;
    tile[288u + (row + 48u) * 9u + column] = x0_3;
    workgroupBarrier();
    if (round + 1u < ROUNDS) {
      w0_0 = weights(firstN + row, (round * 1u + 1u) * 8u + column);
      w0_1 = weights(firstN + row + 16u, (round * 1u + 1u) * 8u + column);
      x0_0 = activations(row, (round * 1u + 1u) * 8u + column);
      x0_1 = activations(row + 16u, (round * 1u + 1u) * 8u + column);
      x0_2 = activations(row + 32u, (round * 1u + 1u) * 8u + column);
      x0_3 = activations(row + 48u, (round * 1u + 1u) * 8u + column);
    }
    if (multiplies) {
      let w0 = subgroupMatrixLoad<Right, col_major>(&tile, 0u + wFrom, 9u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 288u + xFrom, 9u), w0, acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 432u + xFrom, 9u), w0, acc1);
      let w1 = subgroupMatrixLoad<Right, col_major>(&tile, 2u + wFrom, 9u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 290u + xFrom, 9u), w1, acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 434u + xFrom, 9u), w1, acc1);
      let w2 = subgroupMatrixLoad<Right, col_major>(&tile, 4u + wFrom, 9u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 292u + xFrom, 9u), w2, acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 436u + xFrom, 9u), w2, acc1);
      let w3 = subgroupMatrixLoad<Right, col_major>(&tile, 6u + wFrom, 9u);
      acc0 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 294u + xFrom, 9u), w3, acc0);
      acc1 = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&tile, 438u + xFrom, 9u), w3, acc1);
    }
  }
  workgroupBarrier();
  if (multiplies) {
    subgroupMatrixStore<row_major>(&tile, (blockM) * 128u + blockN * 4u, acc0, 8u);
    subgroupMatrixStore<row_major>(&tile, (blockM + 1u) * 128u + blockN * 4u, acc1, 8u);
  }
  workgroupBarrier();
  finish(index, firstN, before0, delta0);
  finish(index + 128u, firstN, before1, delta1);
  finish(index + 256u, firstN, before2, delta2);
  finish(index + 384u, firstN, before3, delta3);
}
