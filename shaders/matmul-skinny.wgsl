// The product of matmul.wgsl, bit for bit, for GPUs and at most sixteen rows: see there for x, w, out and modes.
// A workgroup of 64 threads owns sixteen columns; a thread one column and ROWS (1, 2 or 4) rows, four apart. Panels of
// PANEL quads of k are loaded together, so that many loads are under way, and stand in workgroup memory; the next panel
// is loaded before the current one is multiplied. One f32 accumulator an output, k ascending, one fma a step.
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

override BF16: bool = true;
override ROWS: u32 = 1u;
override LEFT: u32 = 128u;  // PANEL * 4 * ROWS

const PANEL = 32u;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;  // [rows, xStride4] from xOffset4
@group(0) @binding(2) var<storage, read> w: array<vec2<u32>>;  // [columns, k4] x 4 bf16, or [columns, k4, 2] x 2 f32
@group(0) @binding(3) var<storage, read_write> out: array<f32>;  // [rows, outStride] from outOffset

var<workgroup> left: array<vec4<f32>, LEFT>;  // [PANEL, 4 * ROWS rows]
var<workgroup> right: array<vec4<f32>, 512>;  // [PANEL, 16 columns]

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

fn step(acc: f32, a: vec4<f32>, b: vec4<f32>) -> f32 {
  return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, acc))));
}

@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  let column = (wg.y * groups.x + wg.x) * 16u;
  let n = column + thread % 16u;
  let m = thread / 16u;
  let last = p.rows - 1u;
  // Loads of w: thread t takes column t / 4 and quads t % 4, t % 4 + 4, ...: neighbours read neighbouring words.
  let loadColumn = thread / 4u;
  let loadK = thread % 4u;
  let source = min(column + loadColumn, p.columns - 1u) * p.k4;
  let k1 = p.k4 - 1u;
  var b0 = weight(source + min(loadK, k1));
  var b1 = weight(source + min(loadK + 4u, k1));
  var b2 = weight(source + min(loadK + 8u, k1));
  var b3 = weight(source + min(loadK + 12u, k1));
  var b4 = weight(source + min(loadK + 16u, k1));
  var b5 = weight(source + min(loadK + 20u, k1));
  var b6 = weight(source + min(loadK + 24u, k1));
  var b7 = weight(source + min(loadK + 28u, k1));
  var acc0 = start(m, n);
  var acc1 = 0.0;
  var acc2 = 0.0;
  var acc3 = 0.0;
  if (ROWS >= 2u) {
    acc1 = start(m + 4u, n);
  }
  if (ROWS == 4u) {
    acc2 = start(m + 8u, n);
    acc3 = start(m + 12u, n);
  }
  for (var base = 0u; base < p.k4; base += PANEL) {
    workgroupBarrier();
    right[loadK * 16u + loadColumn] = b0;
    right[(loadK + 4u) * 16u + loadColumn] = b1;
    right[(loadK + 8u) * 16u + loadColumn] = b2;
    right[(loadK + 12u) * 16u + loadColumn] = b3;
    right[(loadK + 16u) * 16u + loadColumn] = b4;
    right[(loadK + 20u) * 16u + loadColumn] = b5;
    right[(loadK + 24u) * 16u + loadColumn] = b6;
    right[(loadK + 28u) * 16u + loadColumn] = b7;
    for (var i = 0u; i < LEFT; i += 64u) {
      let row = (i + thread) / PANEL;
      let k = (i + thread) % PANEL;
      left[k * 4u * ROWS + row] = x[p.xOffset4 + min(row, last) * p.xStride4 + min(base + k, k1)];
    }
    workgroupBarrier();
    let next = base + PANEL + loadK;
    b0 = weight(source + min(next, k1));
    b1 = weight(source + min(next + 4u, k1));
    b2 = weight(source + min(next + 8u, k1));
    b3 = weight(source + min(next + 12u, k1));
    b4 = weight(source + min(next + 16u, k1));
    b5 = weight(source + min(next + 20u, k1));
    b6 = weight(source + min(next + 24u, k1));
    b7 = weight(source + min(next + 28u, k1));
    let count = min(PANEL, p.k4 - base);
    for (var i = 0u; i < count; i++) {
      let b = right[i * 16u + thread % 16u];
      acc0 = step(acc0, left[i * 4u * ROWS + m], b);
      if (ROWS >= 2u) {
        acc1 = step(acc1, left[i * 4u * ROWS + m + 4u], b);
      }
      if (ROWS == 4u) {
        acc2 = step(acc2, left[i * 4u * ROWS + m + 8u], b);
        acc3 = step(acc3, left[i * 4u * ROWS + m + 12u], b);
      }
    }
  }
  put(m, n, acc0);
  if (ROWS >= 2u) {
    put(m + 4u, n, acc1);
  }
  if (ROWS == 4u) {
    put(m + 8u, n, acc2);
    put(m + 12u, n, acc3);
  }
}
