// out[m, c] = scale * sum_n x[m, n] * w[n, c]        (mode 0), with modes 1 and 2 as in matmul.
// The gradient of a linear layer with respect to its input (w as the forward stores it, no transposed copy), and the
// LoRA products dz = s * dY B, dX += dz A. x: [rows, xStride4 * 4] f32; w: [n, c4 * 4] bf16 packed two a word, or f32.
// One f32 accumulator an output, n ascending, one fma a step: bits independent of rows and of ROWS.
struct Params {
  rows: u32,
  columns: u32,
  n: u32,
  c4: u32,
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
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;  // [rows, xStride4] from xOffset4; zero past n
@group(0) @binding(2) var<storage, read> w: array<vec2<u32>>;  // [n, c4] x 4 bf16, or [n, c4, 2] x 2 f32
@group(0) @binding(3) var<storage, read_write> out: array<f32>;  // [rows, outStride] from outOffset

fn weight(n: u32, c: u32) -> vec4<f32> {
  let at = min(n, p.n - 1u) * p.c4 + c;
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

fn start(m: u32, c: u32) -> vec4<f32> {
  if (p.mode != 1u || m >= p.rows) {
    return vec4<f32>(0.0);
  }
  let at = p.outOffset + m * p.outStride + c;
  var value = vec4<f32>(0.0);
  value.x = out[at];
  if (c + 1u < p.columns) { value.y = out[at + 1u]; }
  if (c + 2u < p.columns) { value.z = out[at + 2u]; }
  if (c + 3u < p.columns) { value.w = out[at + 3u]; }
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

fn finish(m: u32, c: u32, value: vec4<f32>) {
  if (m >= p.rows) {
    return;
  }
  let at = p.outOffset + m * p.outStride + c;
  put(at, value.x);
  if (c + 1u < p.columns) { put(at + 1u, value.y); }
  if (c + 2u < p.columns) { put(at + 2u, value.z); }
  if (c + 3u < p.columns) { put(at + 3u, value.w); }
}

fn step(acc: vec4<f32>, a: vec4<f32>, w0: vec4<f32>, w1: vec4<f32>, w2: vec4<f32>, w3: vec4<f32>) -> vec4<f32> {
  var sum = fma(vec4<f32>(a.x), w0, acc);
  sum = fma(vec4<f32>(a.y), w1, sum);
  sum = fma(vec4<f32>(a.z), w2, sum);
  return fma(vec4<f32>(a.w), w3, sum);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let c = id.x * 4u;
  let m = id.y * ROWS;
  if (c >= p.columns || m >= p.rows) {
    return;
  }
  let last = p.rows - 1u;
  let x0 = p.xOffset4 + m * p.xStride4;
  let x1 = p.xOffset4 + min(m + 1u, last) * p.xStride4;
  let x2 = p.xOffset4 + min(m + 2u, last) * p.xStride4;
  let x3 = p.xOffset4 + min(m + 3u, last) * p.xStride4;
  var acc0 = start(m, c);
  var acc1 = vec4<f32>(0.0);
  var acc2 = vec4<f32>(0.0);
  var acc3 = vec4<f32>(0.0);
  if (ROWS == 4u) {
    acc1 = start(m + 1u, c);
    acc2 = start(m + 2u, c);
    acc3 = start(m + 3u, c);
  }
  for (var n = 0u; n < p.n; n += 4u) {
    let w0 = weight(n, id.x);
    let w1 = weight(n + 1u, id.x);
    let w2 = weight(n + 2u, id.x);
    let w3 = weight(n + 3u, id.x);
    let k = n / 4u;
    acc0 = step(acc0, x[x0 + k], w0, w1, w2, w3);
    if (ROWS == 4u) {
      acc1 = step(acc1, x[x1 + k], w0, w1, w2, w3);
      acc2 = step(acc2, x[x2 + k], w0, w1, w2, w3);
      acc3 = step(acc3, x[x3 + k], w0, w1, w2, w3);
    }
  }
  finish(m, c, acc0);
  if (ROWS == 4u) {
    finish(m + 1u, c, acc1);
    finish(m + 2u, c, acc2);
    finish(m + 3u, c, acc3);
  }
}
