// The product of matmul.wgsl, bit for bit, for software adapters with subgroups of eight: see there for x, w, out and
// modes. There a load costs as much as many multiplications and is never shared between lanes. So each lane loads one
// quad of a row of x for all eight, and the lanes read it from its register in the order of k. One f32 accumulator an
// output, k ascending, one fma a step. A lane owns ROWS (1, 4 or 8) rows by four columns, or by one column (NARROW).
enable subgroups;

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

override ROWS: u32 = 8u;
override BF16: bool = true;
override NARROW: bool = false;
override QUADS: bool = false;  // columns is a multiple of four
override MODE: u32 = 0u;  // as p.mode

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;  // [rows, xStride4] from xOffset4
@group(0) @binding(2) var<storage, read> w: array<vec2<u32>>;  // [columns, k4] x 4 bf16, or [columns, k4, 2] x 2 f32
@group(0) @binding(3) var<storage, read_write> out: array<f32>;  // [rows, outStride] from outOffset

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

fn before(at: u32, n: u32) -> vec4<f32> {
  var value = vec4<f32>(out[at], 0.0, 0.0, 0.0);
  if (NARROW) {
    return value;
  }
  if (QUADS || n + 1u < p.columns) { value.y = out[at + 1u]; }
  if (QUADS || n + 2u < p.columns) { value.z = out[at + 2u]; }
  if (QUADS || n + 3u < p.columns) { value.w = out[at + 3u]; }
  return value;
}

fn start(m: u32, n: u32) -> vec4<f32> {
  if (MODE != 1u || m >= p.rows || n >= p.columns) {
    return vec4<f32>(0.0);
  }
  return before(p.outOffset + m * p.outStride + n, n);
}

fn finish(m: u32, n: u32, sum: vec4<f32>) {
  if (n >= p.columns) {
    return;
  }
  let at = p.outOffset + m * p.outStride + n;
  var value = sum;
  if (MODE == 0u) {
    value = p.scale * sum;
  } else if (MODE == 2u) {
    value = fma(vec4<f32>(p.scale), sum, before(at, n));
  }
  out[at] = value.x;
  if (NARROW) {
    return;
  }
  if (QUADS || n + 1u < p.columns) { out[at + 1u] = value.y; }
  if (QUADS || n + 2u < p.columns) { out[at + 2u] = value.z; }
  if (QUADS || n + 3u < p.columns) { out[at + 3u] = value.w; }
}

fn step(acc: vec4<f32>, a: vec4<f32>, w0: vec4<f32>, w1: vec4<f32>, w2: vec4<f32>, w3: vec4<f32>) -> vec4<f32> {
  if (NARROW) {
    let one = fma(a.w, w0.w, fma(a.z, w0.z, fma(a.y, w0.y, fma(a.x, w0.x, acc.x))));
    return vec4<f32>(one, 0.0, 0.0, 0.0);
  }
  var sum = fma(vec4<f32>(a.x), vec4<f32>(w0.x, w1.x, w2.x, w3.x), acc);
  sum = fma(vec4<f32>(a.y), vec4<f32>(w0.y, w1.y, w2.y, w3.y), sum);
  sum = fma(vec4<f32>(a.z), vec4<f32>(w0.z, w1.z, w2.z, w3.z), sum);
  return fma(vec4<f32>(a.w), vec4<f32>(w0.w, w1.w, w2.w, w3.w), sum);
}

@compute @workgroup_size(8)
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
  @builtin(subgroup_invocation_id) lane: u32,
) {
  let n = (wg.x * 8u + thread) * select(4u, 1u, NARROW);
  let m = wg.y * ROWS;
  let last = p.rows - 1u;
  let x0 = p.xOffset4 + min(m, last) * p.xStride4;
  let x1 = p.xOffset4 + min(m + 1u, last) * p.xStride4;
  let x2 = p.xOffset4 + min(m + 2u, last) * p.xStride4;
  let x3 = p.xOffset4 + min(m + 3u, last) * p.xStride4;
  let x4 = p.xOffset4 + min(m + 4u, last) * p.xStride4;
  let x5 = p.xOffset4 + min(m + 5u, last) * p.xStride4;
  let x6 = p.xOffset4 + min(m + 6u, last) * p.xStride4;
  let x7 = p.xOffset4 + min(m + 7u, last) * p.xStride4;
  let end = p.columns - 1u;
  let at0 = min(n, end) * p.k4;
  let at1 = min(n + 1u, end) * p.k4;
  let at2 = min(n + 2u, end) * p.k4;
  let at3 = min(n + 3u, end) * p.k4;
  var acc0 = start(m, n);
  var acc1 = vec4<f32>(0.0);
  var acc2 = vec4<f32>(0.0);
  var acc3 = vec4<f32>(0.0);
  var acc4 = vec4<f32>(0.0);
  var acc5 = vec4<f32>(0.0);
  var acc6 = vec4<f32>(0.0);
  var acc7 = vec4<f32>(0.0);
  if (ROWS >= 4u) {
    acc1 = start(m + 1u, n);
    acc2 = start(m + 2u, n);
    acc3 = start(m + 3u, n);
  }
  if (ROWS == 8u) {
    acc4 = start(m + 4u, n);
    acc5 = start(m + 5u, n);
    acc6 = start(m + 6u, n);
    acc7 = start(m + 7u, n);
  }
  for (var base = 0u; base < p.k4; base += 8u) {
    let own = min(base + lane, p.k4 - 1u);
    let count = min(8u, p.k4 - base);
    let own0 = x[x0 + own];
    var own1 = vec4<f32>(0.0);
    var own2 = vec4<f32>(0.0);
    var own3 = vec4<f32>(0.0);
    var own4 = vec4<f32>(0.0);
    var own5 = vec4<f32>(0.0);
    var own6 = vec4<f32>(0.0);
    var own7 = vec4<f32>(0.0);
    if (ROWS >= 4u) {
      own1 = x[x1 + own];
      own2 = x[x2 + own];
      own3 = x[x3 + own];
    }
    if (ROWS == 8u) {
      own4 = x[x4 + own];
      own5 = x[x5 + own];
      own6 = x[x6 + own];
      own7 = x[x7 + own];
    }
    for (var i = 0u; i < count; i++) {
      let k = base + i;
      let w0 = weight(at0 + k);
      var w1 = w0;
      var w2 = w0;
      var w3 = w0;
      if (!NARROW) {
        w1 = weight(at1 + k);
        w2 = weight(at2 + k);
        w3 = weight(at3 + k);
      }
      acc0 = step(acc0, subgroupShuffle(own0, i), w0, w1, w2, w3);
      if (ROWS >= 4u) {
        acc1 = step(acc1, subgroupShuffle(own1, i), w0, w1, w2, w3);
        acc2 = step(acc2, subgroupShuffle(own2, i), w0, w1, w2, w3);
        acc3 = step(acc3, subgroupShuffle(own3, i), w0, w1, w2, w3);
      }
      if (ROWS == 8u) {
        acc4 = step(acc4, subgroupShuffle(own4, i), w0, w1, w2, w3);
        acc5 = step(acc5, subgroupShuffle(own5, i), w0, w1, w2, w3);
        acc6 = step(acc6, subgroupShuffle(own6, i), w0, w1, w2, w3);
        acc7 = step(acc7, subgroupShuffle(own7, i), w0, w1, w2, w3);
      }
    }
  }
  // A loop, because stores are most of the code: the compiler's time goes with its length.
  let live = min(ROWS, p.rows - m);
  for (var i = 0u; i < live; i++) {
    var sum = acc0;
    if (i == 1u) { sum = acc1; }
    if (i == 2u) { sum = acc2; }
    if (i == 3u) { sum = acc3; }
    if (i == 4u) { sum = acc4; }
    if (i == 5u) { sum = acc5; }
    if (i == 6u) { sum = acc6; }
    if (i == 7u) { sum = acc7; }
    finish(m + i, n, sum);
  }
}
