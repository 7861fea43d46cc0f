// The product of matrix-matmul-nn-lora without subgroup matrices, in f32 and n ascending: the same operands, roundings
// and epilogue, other bits. It lets every adapter run the family's backward pass, slowly.
struct Params {
  rows: u32,
  columns: u32,
  n: u32,
  c8: u32,
  xStride8: u32,
  xOffset8: u32,
  outStride4: u32,
  outOffset4: u32,
  mode: u32,
  weightScale: f32,
  zStride4: u32,
  aStride4: u32,
  sliceOut4: u32,
}

override PANELS: u32 = 1u;  // ceil(n / 32), or of a slice
override WIDTH4: u32 = 0u;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;  // [rows, xStride8] x 8 f16, from xOffset8
@group(0) @binding(2) var<storage, read> scales: array<f32>;  // [rows]
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;  // [n, c8] x 8 bf16
@group(0) @binding(4) var<storage, read> dz: array<vec4<f32>>;  // [rows, zStride4]
@group(0) @binding(5) var<storage, read> a: array<vec4<f32>>;  // [WIDTH4 * 4, aStride4]
@group(0) @binding(6) var<storage, read_write> out: array<vec4<f32>>;  // [slices, sliceOut4]

// What two weights become as f16, in f32.
fn halves(word: u32) -> vec2<f32> {
  let low = bitcast<f32>(word << 16u) * p.weightScale;
  let high = bitcast<f32>(word & 0xffff0000u) * p.weightScale;
  return unpack2x16float(pack2x16float(vec2<f32>(low, high)));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let c = (wg.x * 8u + lane % 8u) * 4u;
  let m = wg.y * 8u + lane / 8u;
  if (m >= p.rows || c >= p.columns) {
    return;
  }
  let inverse = bitcast<f32>(0x7f000000u - bitcast<u32>(p.weightScale));
  let to = wg.z * p.sliceOut4 + p.outOffset4 + m * p.outStride4 + c / 4u;
  var sum = vec4<f32>(0.0);
  if (p.mode == 1u) {
    sum = (out[to] * p.weightScale) * bitcast<f32>(0x7f000000u - bitcast<u32>(scales[m]));
  }
  let first = wg.z * PANELS * 32u;
  let end = min(p.n, first + PANELS * 32u);
  for (var n = first; n < end; n++) {
    let eight = x[p.xOffset8 + m * p.xStride8 + n / 8u];
    let pair = unpack2x16float(eight[(n % 8u) / 2u]);
    let left = select(pair.x, pair.y, n % 2u == 1u);
    let words = w[n * p.c8 + c / 8u];
    let half = (c % 8u) / 2u;
    let right = vec4<f32>(halves(words[half]), halves(words[half + 1u]));
    sum = fma(vec4<f32>(left), right, sum);
  }
  var value = (sum * scales[m]) * inverse;
  if (WIDTH4 > 0u) {
    var delta = vec4<f32>(0.0);
    for (var r = 0u; r < WIDTH4; r++) {
      let left = dz[m * p.zStride4 + r];
      delta = fma(vec4<f32>(left.x), a[4u * r * p.aStride4 + c / 4u], delta);
      delta = fma(vec4<f32>(left.y), a[(4u * r + 1u) * p.aStride4 + c / 4u], delta);
      delta = fma(vec4<f32>(left.z), a[(4u * r + 2u) * p.aStride4 + c / 4u], delta);
      delta = fma(vec4<f32>(left.w), a[(4u * r + 3u) * p.aStride4 + c / 4u], delta);
    }
    value = value + delta;
  }
  out[to] = value;
}
