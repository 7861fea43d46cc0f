// Written by tools/matrix-many; change the template, not this file.
// matrix-matmul-lora in tiles of 192 x 128 outputs, with the same bits: eight subgroups of 3 x 4 matrices, one
// workgroup a processor, 64 of k at a time: whole lines of the cache in a load, half as many barriers for a product. It
// is the faster form where the other's last wave of tiles leaves much of the device idle (wideIsFaster in
// matrix-tiles.ts). Rows and columns past the last are read as the last.
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

override SUBS: u32 = 8u;  // subgroups that multiply: all
override PANELS: u32 = 1u;  // k / 64
override RANK4: u32 = 0u;  // quads of a target's rank; 0: no LoRA

const STRIDE8 = 9u;  // of a staged row of x and w: 64 elements and 8 of padding

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;  // [rows, xStride8] from xOffset8
@group(0) @binding(2) var<storage, read> scales: array<f32>;  // [rows]
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;  // [columns, PANELS * 8] x 8 bf16
@group(0) @binding(4) var<storage, read> z: array<vec4<f32>>;  // [rows, zStride4]: RANK4 quads a target
@group(0) @binding(5) var<storage, read> b: array<vec4<f32>>;  // [RANK4 * 4, bStride4] from bOffset4
@group(0) @binding(6) var<storage, read_write> out: array<vec4<f32>>;  // [rows, outStride4] from outOffset4

// Rows of x by the subgroups that multiply them, and rows of w; after, the subgroups' sums: 16 rows of 32 columns each.
var<workgroup> tileX: array<array<vec4<u32>, 432>, 4>;
var<workgroup> tileW: array<array<vec4<u32>, 576>, 2>;

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

// Eight halves of a row of x to the part of the subgroups that multiply the row.
fn stage(row: u32, column: u32, value: vec4<u32>) {
  tileX[row / 48u][(row % 48u) * STRIDE8 + column] = value;
}

// Sixteen rows by 32 columns of a subgroup, from its part of the workgroup memory: four rows' quads a thread.
fn finish(firstM: u32, firstN: u32, part: u32, base: u32, lane: u32) {
  let m = firstM + lane / 8u;
  let n = firstN + (lane % 8u) * 4u;
  var delta0 = vec4<f32>(0.0); var delta1 = vec4<f32>(0.0);
  var delta2 = vec4<f32>(0.0); var delta3 = vec4<f32>(0.0);
  let last = p.rows - 1u;
  let column = p.bOffset4 + min(n, p.columns - 1u) / 4u;
  let z4 = select(0u, RANK4, n >= p.split1) + select(0u, RANK4, n >= p.split2);
  for (var quad = 0u; quad < RANK4; quad++) {
    let b0 = b[quad * 4u * p.bStride4 + column];
    let b1 = b[(quad * 4u + 1u) * p.bStride4 + column];
    let b2 = b[(quad * 4u + 2u) * p.bStride4 + column];
    let b3 = b[(quad * 4u + 3u) * p.bStride4 + column];
    delta0 = add4(z[min(m, last) * p.zStride4 + z4 + quad], b0, b1, b2, b3, delta0);
    delta1 = add4(z[min(m + 4u, last) * p.zStride4 + z4 + quad], b0, b1, b2, b3, delta1);
    delta2 = add4(z[min(m + 8u, last) * p.zStride4 + z4 + quad], b0, b1, b2, b3, delta2);
    delta3 = add4(z[min(m + 12u, last) * p.zStride4 + z4 + quad], b0, b1, b2, b3, delta3);
  }
  if (firstM + 16u <= p.rows && firstN + 32u <= p.columns) {
    let s0 = scales[m]; let s1 = scales[m + 4u];
    let s2 = scales[m + 8u]; let s3 = scales[m + 12u];
    let at = p.outOffset4 + m * p.outStride4 + n / 4u;
    let r0 = result(at, tileX[part][base + lane], s0, delta0);
    let r1 = result(at + 4u * p.outStride4, tileX[part][base + lane + 32u], s1, delta1);
    let r2 = result(at + 8u * p.outStride4, tileX[part][base + lane + 64u], s2, delta2);
    let r3 = result(at + 12u * p.outStride4, tileX[part][base + lane + 96u], s3, delta3);
    out[at] = r0;
    out[at + 4u * p.outStride4] = r1;
    out[at + 8u * p.outStride4] = r2;
    out[at + 12u * p.outStride4] = r3;
    return;
  }
  put(m, n, tileX[part][base + lane], delta0);
  put(m + 4u, n, tileX[part][base + lane + 32u], delta1);
  put(m + 8u, n, tileX[part][base + lane + 64u], delta2);
  put(m + 12u, n, tileX[part][base + lane + 96u], delta3);
}

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
  @builtin(subgroup_id) subgroup: u32,
  @builtin(subgroup_invocation_id) lane: u32,
) {
  let firstM = wg.y * 192u;
  let firstN = wg.x * 128u;
  let left = (subgroup / 2u) & 3u;
  let right = subgroup & 1u;
  let multiplies = subgroup < SUBS;
  var acc0: Sum; var acc1: Sum; var acc2: Sum; var acc3: Sum;
  var acc4: Sum; var acc5: Sum; var acc6: Sum; var acc7: Sum;
  var acc8: Sum; var acc9: Sum; var acc10: Sum; var acc11: Sum;
  let row = thread / 8u;
  let column = thread % 8u;
  let fromX0 = p.xOffset8 + min(firstM + row, p.rows - 1u) * p.xStride8 + column;
  let fromX1 = p.xOffset8 + min(firstM + row + 32u, p.rows - 1u) * p.xStride8 + column;
  let fromX2 = p.xOffset8 + min(firstM + row + 64u, p.rows - 1u) * p.xStride8 + column;
  let fromX3 = p.xOffset8 + min(firstM + row + 96u, p.rows - 1u) * p.xStride8 + column;
  let fromX4 = p.xOffset8 + min(firstM + row + 128u, p.rows - 1u) * p.xStride8 + column;
  let fromX5 = p.xOffset8 + min(firstM + row + 160u, p.rows - 1u) * p.xStride8 + column;
  let fromW0 = min(firstN + row, p.columns - 1u) * (PANELS * 8u) + column;
  let fromW1 = min(firstN + row + 32u, p.columns - 1u) * (PANELS * 8u) + column;
  let fromW2 = min(firstN + row + 64u, p.columns - 1u) * (PANELS * 8u) + column;
  let fromW3 = min(firstN + row + 96u, p.columns - 1u) * (PANELS * 8u) + column;
  var x0 = x[fromX0];
  var x1 = x[fromX1];
  var x2 = x[fromX2];
  var x3 = x[fromX3];
  var x4 = x[fromX4];
  var x5 = x[fromX5];
  var w0 = w[fromW0];
  var w1 = w[fromW1];
  var w2 = w[fromW2];
  var w3 = w[fromW3];
  for (var panel = 0u; panel + 1u < PANELS; panel++) {
    stage(row, column, x0);
    stage(row + 32u, column, x1);
    stage(row + 64u, column, x2);
    stage(row + 96u, column, x3);
    stage(row + 128u, column, x4);
    stage(row + 160u, column, x5);
    tileW[0u][row * STRIDE8 + column] = halves(w0);
    tileW[0u][(row + 32u) * STRIDE8 + column] = halves(w1);
    tileW[1u][row * STRIDE8 + column] = halves(w2);
    tileW[1u][(row + 32u) * STRIDE8 + column] = halves(w3);
    workgroupBarrier();
    let ahead = (panel + 1u) * 8u;
    x0 = x[fromX0 + ahead];
    x1 = x[fromX1 + ahead];
    x2 = x[fromX2 + ahead];
    x3 = x[fromX3 + ahead];
    x4 = x[fromX4 + ahead];
    x5 = x[fromX5 + ahead];
    w0 = w[fromW0 + ahead];
    w1 = w[fromW1 + ahead];
    w2 = w[fromW2 + ahead];
    w3 = w[fromW3 + ahead];
    if (multiplies) {
      let a00 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 0u, STRIDE8);
      let a01 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 144u, STRIDE8);
      let a02 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 288u, STRIDE8);
      let b00 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 0u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(a00, b00, acc0);
      acc4 = subgroupMatrixMultiplyAccumulate(a01, b00, acc4);
      acc8 = subgroupMatrixMultiplyAccumulate(a02, b00, acc8);
      let b01 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 144u, STRIDE8);
      acc1 = subgroupMatrixMultiplyAccumulate(a00, b01, acc1);
      acc5 = subgroupMatrixMultiplyAccumulate(a01, b01, acc5);
      acc9 = subgroupMatrixMultiplyAccumulate(a02, b01, acc9);
      let b02 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 288u, STRIDE8);
      acc2 = subgroupMatrixMultiplyAccumulate(a00, b02, acc2);
      acc6 = subgroupMatrixMultiplyAccumulate(a01, b02, acc6);
      acc10 = subgroupMatrixMultiplyAccumulate(a02, b02, acc10);
      let b03 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 432u, STRIDE8);
      acc3 = subgroupMatrixMultiplyAccumulate(a00, b03, acc3);
      acc7 = subgroupMatrixMultiplyAccumulate(a01, b03, acc7);
      acc11 = subgroupMatrixMultiplyAccumulate(a02, b03, acc11);
      let a10 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 2u, STRIDE8);
      let a11 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 146u, STRIDE8);
      let a12 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 290u, STRIDE8);
      let b10 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 2u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(a10, b10, acc0);
      acc4 = subgroupMatrixMultiplyAccumulate(a11, b10, acc4);
      acc8 = subgroupMatrixMultiplyAccumulate(a12, b10, acc8);
      let b11 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 146u, STRIDE8);
      acc1 = subgroupMatrixMultiplyAccumulate(a10, b11, acc1);
      acc5 = subgroupMatrixMultiplyAccumulate(a11, b11, acc5);
      acc9 = subgroupMatrixMultiplyAccumulate(a12, b11, acc9);
      let b12 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 290u, STRIDE8);
      acc2 = subgroupMatrixMultiplyAccumulate(a10, b12, acc2);
      acc6 = subgroupMatrixMultiplyAccumulate(a11, b12, acc6);
      acc10 = subgroupMatrixMultiplyAccumulate(a12, b12, acc10);
      let b13 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 434u, STRIDE8);
      acc3 = subgroupMatrixMultiplyAccumulate(a10, b13, acc3);
      acc7 = subgroupMatrixMultiplyAccumulate(a11, b13, acc7);
      acc11 = subgroupMatrixMultiplyAccumulate(a12, b13, acc11);
      let a20 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 4u, STRIDE8);
      let a21 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 148u, STRIDE8);
      let a22 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 292u, STRIDE8);
      let b20 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 4u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(a20, b20, acc0);
      acc4 = subgroupMatrixMultiplyAccumulate(a21, b20, acc4);
      acc8 = subgroupMatrixMultiplyAccumulate(a22, b20, acc8);
      let b21 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 148u, STRIDE8);
      acc1 = subgroupMatrixMultiplyAccumulate(a20, b21, acc1);
      acc5 = subgroupMatrixMultiplyAccumulate(a21, b21, acc5);
      acc9 = subgroupMatrixMultiplyAccumulate(a22, b21, acc9);
      let b22 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 292u, STRIDE8);
      acc2 = subgroupMatrixMultiplyAccumulate(a20, b22, acc2);
      acc6 = subgroupMatrixMultiplyAccumulate(a21, b22, acc6);
      acc10 = subgroupMatrixMultiplyAccumulate(a22, b22, acc10);
      let b23 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 436u, STRIDE8);
      acc3 = subgroupMatrixMultiplyAccumulate(a20, b23, acc3);
      acc7 = subgroupMatrixMultiplyAccumulate(a21, b23, acc7);
      acc11 = subgroupMatrixMultiplyAccumulate(a22, b23, acc11);
      let a30 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 6u, STRIDE8);
      let a31 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 150u, STRIDE8);
      let a32 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 294u, STRIDE8);
      let b30 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 6u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(a30, b30, acc0);
      acc4 = subgroupMatrixMultiplyAccumulate(a31, b30, acc4);
      acc8 = subgroupMatrixMultiplyAccumulate(a32, b30, acc8);
      let b31 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 150u, STRIDE8);
      acc1 = subgroupMatrixMultiplyAccumulate(a30, b31, acc1);
      acc5 = subgroupMatrixMultiplyAccumulate(a31, b31, acc5);
      acc9 = subgroupMatrixMultiplyAccumulate(a32, b31, acc9);
      let b32 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 294u, STRIDE8);
      acc2 = subgroupMatrixMultiplyAccumulate(a30, b32, acc2);
      acc6 = subgroupMatrixMultiplyAccumulate(a31, b32, acc6);
      acc10 = subgroupMatrixMultiplyAccumulate(a32, b32, acc10);
      let b33 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 438u, STRIDE8);
      acc3 = subgroupMatrixMultiplyAccumulate(a30, b33, acc3);
      acc7 = subgroupMatrixMultiplyAccumulate(a31, b33, acc7);
      acc11 = subgroupMatrixMultiplyAccumulate(a32, b33, acc11);
    }
    workgroupBarrier();
  }
  {
    stage(row, column, x0);
    stage(row + 32u, column, x1);
    stage(row + 64u, column, x2);
    stage(row + 96u, column, x3);
    stage(row + 128u, column, x4);
    stage(row + 160u, column, x5);
    tileW[0u][row * STRIDE8 + column] = halves(w0);
    tileW[0u][(row + 32u) * STRIDE8 + column] = halves(w1);
    tileW[1u][row * STRIDE8 + column] = halves(w2);
    tileW[1u][(row + 32u) * STRIDE8 + column] = halves(w3);
    workgroupBarrier();
    if (multiplies) {
      let a00 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 0u, STRIDE8);
      let a01 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 144u, STRIDE8);
      let a02 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 288u, STRIDE8);
      let b00 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 0u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(a00, b00, acc0);
      acc4 = subgroupMatrixMultiplyAccumulate(a01, b00, acc4);
      acc8 = subgroupMatrixMultiplyAccumulate(a02, b00, acc8);
      let b01 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 144u, STRIDE8);
      acc1 = subgroupMatrixMultiplyAccumulate(a00, b01, acc1);
      acc5 = subgroupMatrixMultiplyAccumulate(a01, b01, acc5);
      acc9 = subgroupMatrixMultiplyAccumulate(a02, b01, acc9);
      let b02 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 288u, STRIDE8);
      acc2 = subgroupMatrixMultiplyAccumulate(a00, b02, acc2);
      acc6 = subgroupMatrixMultiplyAccumulate(a01, b02, acc6);
      acc10 = subgroupMatrixMultiplyAccumulate(a02, b02, acc10);
      let b03 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 432u, STRIDE8);
      acc3 = subgroupMatrixMultiplyAccumulate(a00, b03, acc3);
      acc7 = subgroupMatrixMultiplyAccumulate(a01, b03, acc7);
      acc11 = subgroupMatrixMultiplyAccumulate(a02, b03, acc11);
      let a10 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 2u, STRIDE8);
      let a11 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 146u, STRIDE8);
      let a12 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 290u, STRIDE8);
      let b10 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 2u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(a10, b10, acc0);
      acc4 = subgroupMatrixMultiplyAccumulate(a11, b10, acc4);
      acc8 = subgroupMatrixMultiplyAccumulate(a12, b10, acc8);
      let b11 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 146u, STRIDE8);
      acc1 = subgroupMatrixMultiplyAccumulate(a10, b11, acc1);
      acc5 = subgroupMatrixMultiplyAccumulate(a11, b11, acc5);
      acc9 = subgroupMatrixMultiplyAccumulate(a12, b11, acc9);
      let b12 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 290u, STRIDE8);
      acc2 = subgroupMatrixMultiplyAccumulate(a10, b12, acc2);
      acc6 = subgroupMatrixMultiplyAccumulate(a11, b12, acc6);
      acc10 = subgroupMatrixMultiplyAccumulate(a12, b12, acc10);
      let b13 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 434u, STRIDE8);
      acc3 = subgroupMatrixMultiplyAccumulate(a10, b13, acc3);
      acc7 = subgroupMatrixMultiplyAccumulate(a11, b13, acc7);
      acc11 = subgroupMatrixMultiplyAccumulate(a12, b13, acc11);
      let a20 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 4u, STRIDE8);
      let a21 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 148u, STRIDE8);
      let a22 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 292u, STRIDE8);
      let b20 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 4u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(a20, b20, acc0);
      acc4 = subgroupMatrixMultiplyAccumulate(a21, b20, acc4);
      acc8 = subgroupMatrixMultiplyAccumulate(a22, b20, acc8);
      let b21 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 148u, STRIDE8);
      acc1 = subgroupMatrixMultiplyAccumulate(a20, b21, acc1);
      acc5 = subgroupMatrixMultiplyAccumulate(a21, b21, acc5);
      acc9 = subgroupMatrixMultiplyAccumulate(a22, b21, acc9);
      let b22 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 292u, STRIDE8);
      acc2 = subgroupMatrixMultiplyAccumulate(a20, b22, acc2);
      acc6 = subgroupMatrixMultiplyAccumulate(a21, b22, acc6);
      acc10 = subgroupMatrixMultiplyAccumulate(a22, b22, acc10);
      let b23 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 436u, STRIDE8);
      acc3 = subgroupMatrixMultiplyAccumulate(a20, b23, acc3);
      acc7 = subgroupMatrixMultiplyAccumulate(a21, b23, acc7);
      acc11 = subgroupMatrixMultiplyAccumulate(a22, b23, acc11);
      let a30 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 6u, STRIDE8);
      let a31 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 150u, STRIDE8);
      let a32 = subgroupMatrixLoad<Left, row_major>(&tileX[left], 294u, STRIDE8);
      let b30 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 6u, STRIDE8);
      acc0 = subgroupMatrixMultiplyAccumulate(a30, b30, acc0);
      acc4 = subgroupMatrixMultiplyAccumulate(a31, b30, acc4);
      acc8 = subgroupMatrixMultiplyAccumulate(a32, b30, acc8);
      let b31 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 150u, STRIDE8);
      acc1 = subgroupMatrixMultiplyAccumulate(a30, b31, acc1);
      acc5 = subgroupMatrixMultiplyAccumulate(a31, b31, acc5);
      acc9 = subgroupMatrixMultiplyAccumulate(a32, b31, acc9);
      let b32 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 294u, STRIDE8);
      acc2 = subgroupMatrixMultiplyAccumulate(a30, b32, acc2);
      acc6 = subgroupMatrixMultiplyAccumulate(a31, b32, acc6);
      acc10 = subgroupMatrixMultiplyAccumulate(a32, b32, acc10);
      let b33 = subgroupMatrixLoad<Right, col_major>(&tileW[right], 438u, STRIDE8);
      acc3 = subgroupMatrixMultiplyAccumulate(a30, b33, acc3);
      acc7 = subgroupMatrixMultiplyAccumulate(a31, b33, acc7);
      acc11 = subgroupMatrixMultiplyAccumulate(a32, b33, acc11);
    }
  }
  let subM = firstM + left * 48u;
  let subN = firstN + right * 64u;
  let base = right * 128u;
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&tileX[left], base, acc0, 8u);
  subgroupMatrixStore<row_major>(&tileX[left], base + 4u, acc1, 8u);
  workgroupBarrier(); finish(subM, subN, left, base, lane);
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&tileX[left], base, acc2, 8u);
  subgroupMatrixStore<row_major>(&tileX[left], base + 4u, acc3, 8u);
  workgroupBarrier(); finish(subM, subN + 32u, left, base, lane);
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&tileX[left], base, acc4, 8u);
  subgroupMatrixStore<row_major>(&tileX[left], base + 4u, acc5, 8u);
  workgroupBarrier(); finish(subM + 16u, subN, left, base, lane);
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&tileX[left], base, acc6, 8u);
  subgroupMatrixStore<row_major>(&tileX[left], base + 4u, acc7, 8u);
  workgroupBarrier(); finish(subM + 16u, subN + 32u, left, base, lane);
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&tileX[left], base, acc8, 8u);
  subgroupMatrixStore<row_major>(&tileX[left], base + 4u, acc9, 8u);
  workgroupBarrier(); finish(subM + 32u, subN, left, base, lane);
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&tileX[left], base, acc10, 8u);
  subgroupMatrixStore<row_major>(&tileX[left], base + 4u, acc11, 8u);
  workgroupBarrier(); finish(subM + 32u, subN + 32u, left, base, lane);
}
