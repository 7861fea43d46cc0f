// The product of matrix-matmul-lora without subgroup matrices, in f32 and k ascending: the same operands, roundings and
// epilogue, other bits. It lets every adapter run the family's pass, slowly: tests compare passes with each other there.
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

override PANELS: u32 = 1u;  // k / 32
override RANK4: u32 = 0u;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;  // [rows, xStride8] x 8 f16, from xOffset8
@group(0) @binding(2) var<storage, read> scales: array<f32>;  // [rows]
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;  // [columns, PANELS * 4] x 8 bf16
@group(0) @binding(4) var<storage, read> z: array<vec4<f32>>;  // [rows, zStride4]
@group(0) @binding(5) var<storage, read> b: array<vec4<f32>>;  // [4 RANK4, bStride4] from bOffset4
@group(0) @binding(6) var<storage, read_write> out: array<vec4<f32>>;  // [rows, outStride4] from outOffset4

// What two weights become as f16, in f32: their values times weightScale, which f16 holds exactly but for the smallest.
fn halves(word: u32) -> vec2<f32> {
  let low = bitcast<f32>(word << 16u) * p.weightScale;
  let high = bitcast<f32>(word & 0xffff0000u) * p.weightScale;
  return unpack2x16float(pack2x16float(vec2<f32>(low, high)));
}

// Two steps of k for four columns.
fn step(acc: vec4<f32>, word: u32, w0: u32, w1: u32, w2: u32, w3: u32) -> vec4<f32> {
  let left = unpack2x16float(word);
  let r0 = halves(w0);
  let r1 = halves(w1);
  let r2 = halves(w2);
  let r3 = halves(w3);
  let sum = fma(vec4<f32>(left.x), vec4<f32>(r0.x, r1.x, r2.x, r3.x), acc);
  return fma(vec4<f32>(left.y), vec4<f32>(r0.y, r1.y, r2.y, r3.y), sum);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let n = (wg.x * 8u + index % 8u) * 4u;
  let m = wg.y * 8u + index / 8u;
  if (m >= p.rows || n >= p.columns) {
    return;
  }
  let row8 = PANELS * 4u;
  let n0 = n * row8;
  let n1 = min(n + 1u, p.columns - 1u) * row8;
  let n2 = min(n + 2u, p.columns - 1u) * row8;
  let n3 = min(n + 3u, p.columns - 1u) * row8;
  var sum = vec4<f32>(0.0);
  for (var k = 0u; k < row8; k++) {
    let v = x[p.xOffset8 + m * p.xStride8 + k];
    let w0 = w[n0 + k];
    let w1 = w[n1 + k];
    let w2 = w[n2 + k];
    let w3 = w[n3 + k];
    sum = step(sum, v.x, w0.x, w1.x, w2.x, w3.x);
    sum = step(sum, v.y, w0.y, w1.y, w2.y, w3.y);
    sum = step(sum, v.z, w0.z, w1.z, w2.z, w3.z);
    sum = step(sum, v.w, w0.w, w1.w, w2.w, w3.w);
  }
  let to = p.outOffset4 + m * p.outStride4 + n / 4u;
  var value = (sum * scales[m]) * bitcast<f32>(0x7f000000u - bitcast<u32>(p.weightScale));
  if (p.mode == 2u) {
    value = value + out[to];
  }
  if (RANK4 > 0u) {
    let first = select(0u, RANK4, n >= p.split1) + select(0u, RANK4, n >= p.split2);
    let column = p.bOffset4 + n / 4u;
    var delta = vec4<f32>(0.0);
    for (var r = 0u; r < RANK4; r++) {
      let left = z[m * p.zStride4 + first + r];
      delta = fma(vec4<f32>(left.x), b[4u * r * p.bStride4 + column], delta);
      delta = fma(vec4<f32>(left.y), b[(4u * r + 1u) * p.bStride4 + column], delta);
      delta = fma(vec4<f32>(left.z), b[(4u * r + 2u) * p.bStride4 + column], delta);
      delta = fma(vec4<f32>(left.w), b[(4u * r + 3u) * p.bStride4 + column], delta);
    }
    value = fma(vec4<f32>(p.loraScale), delta, value);
  }
  if (n + 4u > p.columns) {
    value = select(out[to], value, vec4<u32>(n) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(p.columns));
  }
  out[to] = value;
}
