// The product of matmul-nn.wgsl, bit for bit, for GPUs: see there for x, w, out and modes. A workgroup of 16 x 16
// threads owns 128 x 128 outputs, a thread 8 x 8 of them, sixteen apart in rows and in quads of columns. Panels of
// sixteen n stand in workgroup memory (16 KiB, what WebGPU core allows); the next panel is loaded into registers
// before the current one is multiplied. One f32 accumulator an output, n ascending, one fma a step.
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

override BF16: bool = true;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;  // [rows, xStride4] from xOffset4
@group(0) @binding(2) var<storage, read> w: array<vec2<u32>>;  // [n, c4] x 4 bf16, or [n, c4, 2] x 2 f32
@group(0) @binding(3) var<storage, read_write> out: array<f32>;  // [rows, outStride] from outOffset

var<workgroup> left: array<vec4<f32>, 512>;  // [4 quads of n, 128 rows]
var<workgroup> right: array<vec4<f32>, 512>;  // [16 n, 32 quads of columns]

fn weight(at: u32) -> vec4<f32> {
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


fn start(m: u32, n: u32) -> f32 {
  if (p.mode != 1u || m >= p.rows || n >= p.columns) {
    return 0.0;
  }
  return out[p.outOffset + m * p.outStride + n];
}

fn put(m: u32, n: u32, value: f32) {
  if (m >= p.rows || n >= p.columns) {
    return;
  }
  let at = p.outOffset + m * p.outStride + n;
  if (p.mode == 0u) {
    out[at] = p.scale * value;
  } else if (p.mode == 1u) {
    out[at] = value;
  } else {
    out[at] = fma(p.scale, value, out[at]);
  }
}

// Four steps of a row's sums over four columns.
fn step(acc: vec4<f32>, a: vec4<f32>, w0: vec4<f32>, w1: vec4<f32>, w2: vec4<f32>, w3: vec4<f32>) -> vec4<f32> {
  var sum = fma(vec4<f32>(a.x), w0, acc);
  sum = fma(vec4<f32>(a.y), w1, sum);
  sum = fma(vec4<f32>(a.z), w2, sum);
  return fma(vec4<f32>(a.w), w3, sum);
}

fn startRow(m: u32, n: u32) -> vec4<f32> {
  return vec4<f32>(start(m, n + 0u), start(m, n + 1u), start(m, n + 2u), start(m, n + 3u));
}

fn putRow(m: u32, n: u32, low: vec4<f32>, high: vec4<f32>) {
  put(m, n + 0u, low.x);
  put(m, n + 1u, low.y);
  put(m, n + 2u, low.z);
  put(m, n + 3u, low.w);
  put(m, n + 64u, high.x);
  put(m, n + 65u, high.y);
  put(m, n + 66u, high.z);
  put(m, n + 67u, high.w);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let tx = thread % 16u;
  let ty = thread / 16u;
  let last = p.rows - 1u;
  let m = wg.y * 128u + ty;
  let n = wg.x * 128u + tx * 4u;
  let quads = (p.n + 3u) / 4u;
  let end = p.n - 1u;
  // What this thread loads of a panel: two quads of x (one of four rows apart by 64), two quads of w (n apart by
  // eight).
  let loadK = thread % 4u;
  let loadRow = thread / 4u;
  let x0 = p.xOffset4 + min(wg.y * 128u + loadRow, last) * p.xStride4;
  let x1 = p.xOffset4 + min(wg.y * 128u + loadRow + 64u, last) * p.xStride4;
  let loadC = min(wg.x * 32u + thread % 32u, (p.columns + 3u) / 4u - 1u);
  let loadN = thread / 32u;
  let toLeft = loadK * 128u + loadRow;
  var a0 = x[x0 + min(loadK, quads - 1u)];
  var a1 = x[x1 + min(loadK, quads - 1u)];
  var b0 = weight(min(loadN, end) * p.c4 + loadC);
  var b1 = weight(min(loadN + 8u, end) * p.c4 + loadC);
  var low0 = startRow(m + 0u, n);
  var high0 = startRow(m + 0u, n + 64u);
  var low1 = startRow(m + 16u, n);
  var high1 = startRow(m + 16u, n + 64u);
  var low2 = startRow(m + 32u, n);
  var high2 = startRow(m + 32u, n + 64u);
  var low3 = startRow(m + 48u, n);
  var high3 = startRow(m + 48u, n + 64u);
  var low4 = startRow(m + 64u, n);
  var high4 = startRow(m + 64u, n + 64u);
  var low5 = startRow(m + 80u, n);
  var high5 = startRow(m + 80u, n + 64u);
  var low6 = startRow(m + 96u, n);
  var high6 = startRow(m + 96u, n + 64u);
  var low7 = startRow(m + 112u, n);
  var high7 = startRow(m + 112u, n + 64u);
  for (var base = 0u; base < quads; base += 4u) {
    workgroupBarrier();
    left[toLeft] = a0;
    left[toLeft + 64u] = a1;
    right[thread] = b0;
    right[thread + 256u] = b1;
    workgroupBarrier();
    let next = base + 4u;
    if (next < quads) {
      let k = min(next + loadK, quads - 1u);
      a0 = x[x0 + k];
      a1 = x[x1 + k];
      b0 = weight(min(next * 4u + loadN, end) * p.c4 + loadC);
      b1 = weight(min(next * 4u + loadN + 8u, end) * p.c4 + loadC);
    }
    let count = min(4u, quads - base);
    for (var i = 0u; i < count; i++) {
      let p0 = right[(i * 4u + 0u) * 32u + tx];
      let q0 = right[(i * 4u + 0u) * 32u + 16u + tx];
      let p1 = right[(i * 4u + 1u) * 32u + tx];
      let q1 = right[(i * 4u + 1u) * 32u + 16u + tx];
      let p2 = right[(i * 4u + 2u) * 32u + tx];
      let q2 = right[(i * 4u + 2u) * 32u + 16u + tx];
      let p3 = right[(i * 4u + 3u) * 32u + tx];
      let q3 = right[(i * 4u + 3u) * 32u + 16u + tx];
      let r0 = left[i * 128u + 0u + ty];
      low0 = step(low0, r0, p0, p1, p2, p3);
      high0 = step(high0, r0, q0, q1, q2, q3);
      let r1 = left[i * 128u + 16u + ty];
      low1 = step(low1, r1, p0, p1, p2, p3);
      high1 = step(high1, r1, q0, q1, q2, q3);
      let r2 = left[i * 128u + 32u + ty];
      low2 = step(low2, r2, p0, p1, p2, p3);
      high2 = step(high2, r2, q0, q1, q2, q3);
      let r3 = left[i * 128u + 48u + ty];
      low3 = step(low3, r3, p0, p1, p2, p3);
      high3 = step(high3, r3, q0, q1, q2, q3);
      let r4 = left[i * 128u + 64u + ty];
      low4 = step(low4, r4, p0, p1, p2, p3);
      high4 = step(high4, r4, q0, q1, q2, q3);
      let r5 = left[i * 128u + 80u + ty];
      low5 = step(low5, r5, p0, p1, p2, p3);
      high5 = step(high5, r5, q0, q1, q2, q3);
      let r6 = left[i * 128u + 96u + ty];
      low6 = step(low6, r6, p0, p1, p2, p3);
      high6 = step(high6, r6, q0, q1, q2, q3);
      let r7 = left[i * 128u + 112u + ty];
      low7 = step(low7, r7, p0, p1, p2, p3);
      high7 = step(high7, r7, q0, q1, q2, q3);
    }
  }
  putRow(m + 0u, n, low0, high0);
  putRow(m + 16u, n, low1, high1);
  putRow(m + 32u, n, low2, high2);
  putRow(m + 48u, n, low3, high3);
  putRow(m + 64u, n, low4, high4);
  putRow(m + 80u, n, low5, high5);
  putRow(m + 96u, n, low6, high6);
  putRow(m + 112u, n, low7, high7);
}
