// out[m, n] = scale * s[m] * sum_k x[m, k] * w[n, k] (mode 0), with modes 1 and 2 as in matmul: up to 64 rows.
// Operands, order and bits as in matrix-matmul. Made to stream the weights once: a workgroup owns TILE_N rows of w, 16
// a subgroup (16 columns of out, with up to four accumulators below each other); all four subgroups load, and the next
// panel of k is on its way in registers while this one is multiplied.
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

override TILE_M: u32 = 16u;  // 16, 32 or 64
override TILE_N: u32 = 64u;  // 16, 32 or 64
override TILE_K: u32 = 128u;  // TILE_M and TILE_N times it: 1024 to 8192
override PANELS: u32 = 1u;  // k / TILE_K

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;  // [rows, xStride8] from xOffset8
@group(0) @binding(2) var<storage, read> scales: array<f32>;  // [rows]
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;  // [columns, PANELS * TILE_K / 8] x 8 bf16
@group(0) @binding(4) var<storage, read_write> out: array<vec4<f32>>;  // [rows, outStride4] from outOffset4

var<workgroup> tile: array<vec4<u32>, (TILE_M + TILE_N) * (TILE_K / 8u + 1u)>;

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
  return w[min(n, p.columns - 1u) * (PANELS * (TILE_K / 8u)) + at];
}

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
  @builtin(subgroup_id) subgroup: u32,
  @builtin(subgroup_invocation_id) lane: u32,
) {
  let row8 = TILE_K / 8u;
  let stride8 = row8 + 1u;
  let wBase = TILE_M * stride8;
  let rowsAPass = 128u / row8;
  let xLoads = TILE_M * row8 / 128u;
  let wLoads = TILE_N * row8 / 128u;
  let firstM = wg.y * TILE_M;
  let firstN = wg.x * TILE_N;
  let multiplies = subgroup < TILE_N / 16u;
  let subN = (subgroup & (TILE_N / 16u - 1u)) * 16u;
  let own = (subgroup & 3u) * 64u;
  let row = thread / row8;
  let column = thread % row8;
  var acc0: Sum;
  var acc1: Sum;
  var acc2: Sum;
  var acc3: Sum;
  if (p.mode == 1u) {
    stageStart(own, lane, firstM, firstN + subN);
    workgroupBarrier();
    acc0 = subgroupMatrixLoad<Sum, row_major>(&tile, own, 4u);
    workgroupBarrier();
    if (TILE_M > 16u) {
      stageStart(own, lane, firstM + 16u, firstN + subN);
      workgroupBarrier();
      acc1 = subgroupMatrixLoad<Sum, row_major>(&tile, own, 4u);
      workgroupBarrier();
    }
    if (TILE_M > 32u) {
      stageStart(own, lane, firstM + 32u, firstN + subN);
      workgroupBarrier();
      acc2 = subgroupMatrixLoad<Sum, row_major>(&tile, own, 4u);
      workgroupBarrier();
    }
    if (TILE_M > 32u) {
      stageStart(own, lane, firstM + 48u, firstN + subN);
      workgroupBarrier();
      acc3 = subgroupMatrixLoad<Sum, row_major>(&tile, own, 4u);
      workgroupBarrier();
    }
  }
  var x0: vec4<u32>;
  var x1: vec4<u32>;
  var x2: vec4<u32>;
  var x3: vec4<u32>;
  var x4: vec4<u32>;
  var x5: vec4<u32>;
  var x6: vec4<u32>;
  var x7: vec4<u32>;
  var w0: vec4<u32>;
  var w1: vec4<u32>;
  var w2: vec4<u32>;
  var w3: vec4<u32>;
  var w4: vec4<u32>;
  var w5: vec4<u32>;
  var w6: vec4<u32>;
  var w7: vec4<u32>;
  {
    let at = column;
    w0 = weights(firstN + row, at);
    x0 = activations(firstM + row, at);
    if (wLoads > 1u) { w1 = weights(firstN + row + 1u * rowsAPass, at); }
    if (xLoads > 1u) { x1 = activations(firstM + row + 1u * rowsAPass, at); }
    if (wLoads > 2u) { w2 = weights(firstN + row + 2u * rowsAPass, at); }
    if (xLoads > 2u) { x2 = activations(firstM + row + 2u * rowsAPass, at); }
    if (wLoads > 3u) { w3 = weights(firstN + row + 3u * rowsAPass, at); }
    if (xLoads > 3u) { x3 = activations(firstM + row + 3u * rowsAPass, at); }
    if (wLoads > 4u) { w4 = weights(firstN + row + 4u * rowsAPass, at); }
    if (xLoads > 4u) { x4 = activations(firstM + row + 4u * rowsAPass, at); }
    if (wLoads > 5u) { w5 = weights(firstN + row + 5u * rowsAPass, at); }
    if (xLoads > 5u) { x5 = activations(firstM + row + 5u * rowsAPass, at); }
    if (wLoads > 6u) { w6 = weights(firstN + row + 6u * rowsAPass, at); }
    if (xLoads > 6u) { x6 = activations(firstM + row + 6u * rowsAPass, at); }
    if (wLoads > 7u) { w7 = weights(firstN + row + 7u * rowsAPass, at); }
    if (xLoads > 7u) { x7 = activations(firstM + row + 7u * rowsAPass, at); }
  }
  for (var panel = 0u; panel < PANELS; panel++) {
    tile[row * stride8 + column] = x0;
    tile[wBase + row * stride8 + column] = halves(w0);
    if (xLoads > 1u) { tile[(row + 1u * rowsAPass) * stride8 + column] = x1; }
    if (wLoads > 1u) { tile[wBase + (row + 1u * rowsAPass) * stride8 + column] = halves(w1); }
    if (xLoads > 2u) { tile[(row + 2u * rowsAPass) * stride8 + column] = x2; }
    if (wLoads > 2u) { tile[wBase + (row + 2u * rowsAPass) * stride8 + column] = halves(w2); }
    if (xLoads > 3u) { tile[(row + 3u * rowsAPass) * stride8 + column] = x3; }
    if (wLoads > 3u) { tile[wBase + (row + 3u * rowsAPass) * stride8 + column] = halves(w3); }
    if (xLoads > 4u) { tile[(row + 4u * rowsAPass) * stride8 + column] = x4; }
    if (wLoads > 4u) { tile[wBase + (row + 4u * rowsAPass) * stride8 + column] = halves(w4); }
    if (xLoads > 5u) { tile[(row + 5u * rowsAPass) * stride8 + column] = x5; }
    if (wLoads > 5u) { tile[wBase + (row + 5u * rowsAPass) * stride8 + column] = halves(w5); }
    if (xLoads > 6u) { tile[(row + 6u * rowsAPass) * stride8 + column] = x6; }
    if (wLoads > 6u) { tile[wBase + (row + 6u * rowsAPass) * stride8 + column] = halves(w6); }
    if (xLoads > 7u) { tile[(row + 7u * rowsAPass) * stride8 + column] = x7; }
    if (wLoads > 7u) { tile[wBase + (row + 7u * rowsAPass) * stride8 + column] = halves(w7); }
    workgroupBarrier();
    if (panel + 1u < PANELS) {
      let at = (panel + 1u) * row8 + column;
      w0 = weights(firstN + row, at);
      x0 = activations(firstM + row, at);
      if (wLoads > 1u) { w1 = weights(firstN + row + 1u * rowsAPass, at); }
      if (xLoads > 1u) { x1 = activations(firstM + row + 1u * rowsAPass, at); }
      if (wLoads > 2u) { w2 = weights(firstN + row + 2u * rowsAPass, at); }
      if (xLoads > 2u) { x2 = activations(firstM + row + 2u * rowsAPass, at); }
      if (wLoads > 3u) { w3 = weights(firstN + row + 3u * rowsAPass, at); }
      if (xLoads > 3u) { x3 = activations(firstM + row + 3u * rowsAPass, at); }
      if (wLoads > 4u) { w4 = weights(firstN + row + 4u * rowsAPass, at); }
      if (xLoads > 4u) { x4 = activations(firstM + row + 4u * rowsAPass, at); }
      if (wLoads > 5u) { w5 = weights(firstN + row + 5u * rowsAPass, at); }
      if (xLoads > 5u) { x5 = activations(firstM + row + 5u * rowsAPass, at); }
      if (wLoads > 6u) { w6 = weights(firstN + row + 6u * rowsAPass, at); }
      if (xLoads > 6u) { x6 = activations(firstM + row + 6u * rowsAPass, at); }
      if (wLoads > 7u) { w7 = weights(firstN + row + 7u * rowsAPass, at); }
      if (xLoads > 7u) { x7 = activations(firstM + row + 7u * rowsAPass, at); }
    }
    if (multiplies) {
      for (var k = 0u; k < TILE_K / 64u; k++) {
        let at = k * 8u;
        let b0 = subgroupMatrixLoad<Right, col_major>(&tile, wBase + subN * stride8 + at, stride8);
        let b1 = subgroupMatrixLoad<Right, col_major>(&tile, wBase + subN * stride8 + at + 2u, stride8);
        let b2 = subgroupMatrixLoad<Right, col_major>(&tile, wBase + subN * stride8 + at + 4u, stride8);
        let b3 = subgroupMatrixLoad<Right, col_major>(&tile, wBase + subN * stride8 + at + 6u, stride8);
        let a0 = subgroupMatrixLoad<Left, row_major>(&tile, at, stride8);
        let a1 = subgroupMatrixLoad<Left, row_major>(&tile, at + 2u, stride8);
        let a2 = subgroupMatrixLoad<Left, row_major>(&tile, at + 4u, stride8);
        let a3 = subgroupMatrixLoad<Left, row_major>(&tile, at + 6u, stride8);
        acc0 = subgroupMatrixMultiplyAccumulate(a0, b0, acc0);
        acc0 = subgroupMatrixMultiplyAccumulate(a1, b1, acc0);
        acc0 = subgroupMatrixMultiplyAccumulate(a2, b2, acc0);
        acc0 = subgroupMatrixMultiplyAccumulate(a3, b3, acc0);
        if (TILE_M > 16u) {
          let a0 = subgroupMatrixLoad<Left, row_major>(&tile, 16u * stride8 + at, stride8);
          let a1 = subgroupMatrixLoad<Left, row_major>(&tile, 16u * stride8 + at + 2u, stride8);
          let a2 = subgroupMatrixLoad<Left, row_major>(&tile, 16u * stride8 + at + 4u, stride8);
          let a3 = subgroupMatrixLoad<Left, row_major>(&tile, 16u * stride8 + at + 6u, stride8);
          acc1 = subgroupMatrixMultiplyAccumulate(a0, b0, acc1);
          acc1 = subgroupMatrixMultiplyAccumulate(a1, b1, acc1);
          acc1 = subgroupMatrixMultiplyAccumulate(a2, b2, acc1);
          acc1 = subgroupMatrixMultiplyAccumulate(a3, b3, acc1);
        }
        if (TILE_M > 32u) {
          let a0 = subgroupMatrixLoad<Left, row_major>(&tile, 32u * stride8 + at, stride8);
          let a1 = subgroupMatrixLoad<Left, row_major>(&tile, 32u * stride8 + at + 2u, stride8);
          let a2 = subgroupMatrixLoad<Left, row_major>(&tile, 32u * stride8 + at + 4u, stride8);
          let a3 = subgroupMatrixLoad<Left, row_major>(&tile, 32u * stride8 + at + 6u, stride8);
          acc2 = subgroupMatrixMultiplyAccumulate(a0, b0, acc2);
          acc2 = subgroupMatrixMultiplyAccumulate(a1, b1, acc2);
          acc2 = subgroupMatrixMultiplyAccumulate(a2, b2, acc2);
          acc2 = subgroupMatrixMultiplyAccumulate(a3, b3, acc2);
        }
        if (TILE_M > 32u) {
          let a0 = subgroupMatrixLoad<Left, row_major>(&tile, 48u * stride8 + at, stride8);
          let a1 = subgroupMatrixLoad<Left, row_major>(&tile, 48u * stride8 + at + 2u, stride8);
          let a2 = subgroupMatrixLoad<Left, row_major>(&tile, 48u * stride8 + at + 4u, stride8);
          let a3 = subgroupMatrixLoad<Left, row_major>(&tile, 48u * stride8 + at + 6u, stride8);
          acc3 = subgroupMatrixMultiplyAccumulate(a0, b0, acc3);
          acc3 = subgroupMatrixMultiplyAccumulate(a1, b1, acc3);
          acc3 = subgroupMatrixMultiplyAccumulate(a2, b2, acc3);
          acc3 = subgroupMatrixMultiplyAccumulate(a3, b3, acc3);
        }
      }
    }
    workgroupBarrier();
  }
  if (multiplies) {
    subgroupMatrixStore<row_major>(&tile, own, acc0, 4u);
  }
  workgroupBarrier();
  if (multiplies) {
    finish(own, lane, firstM, firstN + subN);
  }
  workgroupBarrier();
  if (TILE_M > 16u) {
    if (multiplies) {
      subgroupMatrixStore<row_major>(&tile, own, acc1, 4u);
    }
    workgroupBarrier();
    if (multiplies) {
      finish(own, lane, firstM + 16u, firstN + subN);
    }
    workgroupBarrier();
  }
  if (TILE_M > 32u) {
    if (multiplies) {
      subgroupMatrixStore<row_major>(&tile, own, acc2, 4u);
    }
    workgroupBarrier();
    if (multiplies) {
      finish(own, lane, firstM + 32u, firstN + subN);
    }
    workgroupBarrier();
  }
  if (TILE_M > 32u) {
    if (multiplies) {
      subgroupMatrixStore<row_major>(&tile, own, acc3, 4u);
    }
    workgroupBarrier();
    if (multiplies) {
      finish(own, lane, firstM + 48u, firstN + subN);
    }
    workgroupBarrier();
  }
}
