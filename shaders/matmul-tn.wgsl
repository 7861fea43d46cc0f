// out[i, j] = scale * sum_m a[m, i] * b[m, j]        (mode 0), or added to out[i, j] (mode 2).
// The LoRA gradients: dB = s * dY^T z, dA = dz^T x. a: [rows, aStride4 * 4], b: [rows, bStride4 * 4], both f32;
// out: [columns i, outStride]. One accumulator an output, m ascending: the order over tokens is that of the batch.
struct Params {
  rows: u32,
  iCount: u32,
  jCount: u32,
  aStride4: u32,
  aOffset4: u32,
  bStride4: u32,
  bOffset4: u32,
  outStride: u32,
  outOffset: u32,
  mode: u32,
  scale: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> a: array<vec4<f32>>;  // [rows, aStride4] from aOffset4
@group(0) @binding(2) var<storage, read> b: array<vec4<f32>>;  // [rows, bStride4] from bOffset4
@group(0) @binding(3) var<storage, read_write> out: array<f32>;  // [iCount, outStride] from outOffset

fn put(at: u32, value: f32) {
  if (p.mode == 0u) {
    out[at] = p.scale * value;
  } else {
    out[at] = fma(p.scale, value, out[at]);
  }
}

fn finish(i: u32, j: u32, value: vec4<f32>) {
  if (i >= p.iCount) {
    return;
  }
  let at = p.outOffset + i * p.outStride + j;
  put(at, value.x);
  if (j + 1u < p.jCount) { put(at + 1u, value.y); }
  if (j + 2u < p.jCount) { put(at + 2u, value.z); }
  if (j + 3u < p.jCount) { put(at + 3u, value.w); }
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let j = id.x * 4u;
  let i = id.y * 4u;
  if (j >= p.jCount || i >= p.iCount) {
    return;
  }
  var acc0 = vec4<f32>(0.0);
  var acc1 = vec4<f32>(0.0);
  var acc2 = vec4<f32>(0.0);
  var acc3 = vec4<f32>(0.0);
  for (var m = 0u; m < p.rows; m++) {
    let left = a[p.aOffset4 + m * p.aStride4 + id.y];
    let right = b[p.bOffset4 + m * p.bStride4 + id.x];
    acc0 = fma(vec4<f32>(left.x), right, acc0);
    acc1 = fma(vec4<f32>(left.y), right, acc1);
    acc2 = fma(vec4<f32>(left.z), right, acc2);
    acc3 = fma(vec4<f32>(left.w), right, acc3);
  }
  finish(i, j, acc0);
  finish(i + 1u, j, acc1);
  finish(i + 2u, j, acc2);
  finish(i + 3u, j, acc3);
}
