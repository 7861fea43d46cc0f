// out[m, n] = scale * sum_k x[m, k] * w[n, k]        (mode 0)
//             out[m, n] + sum_k x[m, k] * w[n, k]    (mode 1: the accumulator starts at out[m, n])
//             out[m, n] + scale * sum_k x[m, k] * w[n, k]   (mode 2: added once, after the sum)
// x: [rows, k4 * 4] f32, row stride xStride; w: [columns, k4 * 4], bf16 packed two a word, or f32; out: row stride outStride.
// Rows are padded with zeros to four elements. One f32 accumulator an output, k ascending, each step one fma: so the
// bits do not depend on the number of rows, on the row's position or on ROWS. Each thread owns ROWS x 4 outputs and
// keeps them in registers; no workgroup memory, because barriers cost software adapters more than loads do.
struct Params {
  rows: u32,
  columns: u32,
  k4: u32,
  xStride4: u32,
  xOffset4: u32,
  outStride: u32,
  outOffset: u32,
  mode: u32,
  scale: f32,
}

override ROWS: u32 = 4u;
override BF16: bool = true;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;  // [rows, xStride4] from xOffset4
@group(0) @binding(2) var<storage, read> w: array<vec2<u32>>;  // [columns, k4] x 4 bf16, or [columns, k4, 2] x 2 f32
@group(0) @binding(3) var<storage, read_write> out: array<f32>;  // [rows, outStride] from outOffset

fn weight(n: u32, k: u32) -> vec4<f32> {
  let at = min(n, p.columns - 1u) * p.k4 + k;
  if (BF16) {
    let pair = w[at];
    return vec4<f32>(
      bitcast<f32>(pair.x << 16u),
      bitcast<f32>(pair.x & 0xffff0000u),
      bitcast<f32>(pair.y << 16u),
      bitcast<f32>(pair.y & 0xffff0000u),
    );
  }
  let low = w[at * 2u];
  let high = w[at * 2u + 1u];
  return vec4<f32>(bitcast<f32>(low.x), bitcast<f32>(low.y), bitcast<f32>(high.x), bitcast<f32>(high.y));
}

fn start(m: u32, n: u32) -> vec4<f32> {
  if (p.mode != 1u || m >= p.rows) {
    return vec4<f32>(0.0);
  }
  let at = p.outOffset + m * p.outStride + n;
  var value = vec4<f32>(0.0);
  value.x = out[at];
  if (n + 1u < p.columns) { value.y = out[at + 1u]; }
  if (n + 2u < p.columns) { value.z = out[at + 2u]; }
  if (n + 3u < p.columns) { value.w = out[at + 3u]; }
  return value;
}

fn put(at: u32, value: f32) {
  if (p.mode == 0u) {
    out[at] = p.scale * value;
  } else if (p.mode == 1u) {
    out[at] = value;
  } else {
    out[at] = fma(p.scale, value, out[at]);
  }
}

fn finish(m: u32, n: u32, value: vec4<f32>) {
  if (m >= p.rows) {
    return;
  }
  let at = p.outOffset + m * p.outStride + n;
  put(at, value.x);
  if (n + 1u < p.columns) { put(at + 1u, value.y); }
  if (n + 2u < p.columns) { put(at + 2u, value.z); }
  if (n + 3u < p.columns) { put(at + 3u, value.w); }
}

fn step(acc: vec4<f32>, a: vec4<f32>, w0: vec4<f32>, w1: vec4<f32>, w2: vec4<f32>, w3: vec4<f32>) -> vec4<f32> {
  var sum = fma(vec4<f32>(a.x), vec4<f32>(w0.x, w1.x, w2.x, w3.x), acc);
  sum = fma(vec4<f32>(a.y), vec4<f32>(w0.y, w1.y, w2.y, w3.y), sum);
  sum = fma(vec4<f32>(a.z), vec4<f32>(w0.z, w1.z, w2.z, w3.z), sum);
  return fma(vec4<f32>(a.w), vec4<f32>(w0.w, w1.w, w2.w, w3.w), sum);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let n = id.x * 4u;
  let m = id.y * ROWS;
  if (n >= p.columns || m >= p.rows) {
    return;
  }
  let last = p.rows - 1u;
  let x0 = p.xOffset4 + m * p.xStride4;
  let x1 = p.xOffset4 + min(m + 1u, last) * p.xStride4;
  let x2 = p.xOffset4 + min(m + 2u, last) * p.xStride4;
  let x3 = p.xOffset4 + min(m + 3u, last) * p.xStride4;
  var acc0 = start(m, n);
  var acc1 = vec4<f32>(0.0);
  var acc2 = vec4<f32>(0.0);
  var acc3 = vec4<f32>(0.0);
  if (ROWS == 4u) {
    acc1 = start(m + 1u, n);
    acc2 = start(m + 2u, n);
    acc3 = start(m + 3u, n);
  }
  for (var k = 0u; k < p.k4; k++) {
    let w0 = weight(n, k);
    let w1 = weight(n + 1u, k);
    let w2 = weight(n + 2u, k);
    let w3 = weight(n + 3u, k);
    acc0 = step(acc0, x[x0 + k], w0, w1, w2, w3);
    if (ROWS == 4u) {
      acc1 = step(acc1, x[x1 + k], w0, w1, w2, w3);
      acc2 = step(acc2, x[x2 + k], w0, w1, w2, w3);
      acc3 = step(acc3, x[x3 + k], w0, w1, w2, w3);
    }
  }
  finish(m, n, acc0);
  if (ROWS == 4u) {
    finish(m + 1u, n, acc1);
    finish(m + 2u, n, acc2);
    finish(m + 3u, n, acc3);
  }
}
