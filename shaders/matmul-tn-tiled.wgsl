// The product of matmul-tn.wgsl, bit for bit, for GPUs; as in matmul-tn-lanes.wgsl the roles of a and b may be swapped:
// out[i, j] = scale * sum_m a[m, i] * b[m, j]        (mode 0), or added to out[i, j] (mode 2).
// A workgroup of 64 threads owns 16 i by 64 j, a thread 4 by 4. Panels of sixteen tokens stand in workgroup memory; the
// next panel is loaded into registers before the current one is multiplied. One accumulator an output, m ascending.
struct Params {
  rows: u32,
  iCount: u32,
  jCount: u32,
  aStride4: u32,
  aOffset4: u32,
  bStride4: u32,
  bOffset4: u32,
  iStride: u32,
  jStride: u32,
  outOffset: u32,
  mode: u32,
  scale: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> a: array<vec4<f32>>;  // [rows, aStride4] from aOffset4
@group(0) @binding(2) var<storage, read> b: array<vec4<f32>>;  // [rows, bStride4] from bOffset4
@group(0) @binding(3) var<storage, read_write> out: array<f32>;  // i * iStride + j * jStride from outOffset

var<workgroup> left: array<vec4<f32>, 64>;  // [16 tokens, 4 quads of i]
var<workgroup> right: array<vec4<f32>, 256>;  // [16 tokens, 16 quads of j]

fn put(i: u32, j: u32, value: f32) {
  if (i >= p.iCount || j >= p.jCount) {
    return;
  }
  let at = p.outOffset + i * p.iStride + j * p.jStride;
  if (p.mode == 0u) {
    out[at] = p.scale * value;
  } else {
    out[at] = fma(p.scale, value, out[at]);
  }
}

fn finish(i: u32, j: u32, value: vec4<f32>) {
  put(i, j, value.x);
  put(i, j + 1u, value.y);
  put(i, j + 2u, value.z);
  put(i, j + 3u, value.w);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let last = p.rows - 1u;
  // A thread loads one quad of a (token thread / 4) and four of b (tokens thread / 16 + 0, 4, 8, 12) of a panel.
  let a4 = p.aOffset4 + min(wg.y * 4u + thread % 4u, (p.iCount + 3u) / 4u - 1u);
  let b4 = p.bOffset4 + min(wg.x * 16u + thread % 16u, (p.jCount + 3u) / 4u - 1u);
  let tokenA = thread / 4u;
  let tokenB = thread / 16u;
  var a0 = a[a4 + min(tokenA, last) * p.aStride4];
  var b0 = b[b4 + min(tokenB, last) * p.bStride4];
  var b1 = b[b4 + min(tokenB + 4u, last) * p.bStride4];
  var b2 = b[b4 + min(tokenB + 8u, last) * p.bStride4];
  var b3 = b[b4 + min(tokenB + 12u, last) * p.bStride4];
  var acc0 = vec4<f32>(0.0);
  var acc1 = vec4<f32>(0.0);
  var acc2 = vec4<f32>(0.0);
  var acc3 = vec4<f32>(0.0);
  for (var base = 0u; base < p.rows; base += 16u) {
    workgroupBarrier();
    left[thread] = a0;
    right[thread] = b0;
    right[thread + 64u] = b1;
    right[thread + 128u] = b2;
    right[thread + 192u] = b3;
    workgroupBarrier();
    let next = base + 16u;
    a0 = a[a4 + min(next + tokenA, last) * p.aStride4];
    b0 = b[b4 + min(next + tokenB, last) * p.bStride4];
    b1 = b[b4 + min(next + tokenB + 4u, last) * p.bStride4];
    b2 = b[b4 + min(next + tokenB + 8u, last) * p.bStride4];
    b3 = b[b4 + min(next + tokenB + 12u, last) * p.bStride4];
    let count = min(16u, p.rows - base);
    for (var m = 0u; m < count; m++) {
      let l = left[m * 4u + thread / 16u];
      let r = right[m * 16u + thread % 16u];
      acc0 = fma(vec4<f32>(l.x), r, acc0);
      acc1 = fma(vec4<f32>(l.y), r, acc1);
      acc2 = fma(vec4<f32>(l.z), r, acc2);
      acc3 = fma(vec4<f32>(l.w), r, acc3);
    }
  }
  let i = wg.y * 16u + thread / 16u * 4u;
  let j = wg.x * 64u + thread % 16u * 4u;
  finish(i, j, acc0);
  finish(i + 1u, j, acc1);
  finish(i + 2u, j, acc2);
  finish(i + 3u, j, acc3);
}
