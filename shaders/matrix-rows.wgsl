// Prepares rows for a product by subgroup matrices, and multiplies them by LoRA's A on the way:
//   v[m, k] = x[m, k]                                                             (SOURCE 0)
//             gain[k] * (x[m, k] / sqrt(mean_k(x[m, k]^2) + eps))                 (SOURCE 1, RMSNorm)
//             g / (1 + exp(-g)) * u  with g = x[m, k], u = x[m, upOffset + k]     (SOURCE 2, SwiGLU)
//   packed[m, k] = round(v[m, k] * 2^e), scales[m] = 2^-e, as matrix-pack does; z[m, j] = sum_k a[j, k] * v[m, k]
// A workgroup makes one row and `perGroup` of its z; the first one of a row writes packed and scales. Lane l has quads
// l, l + 256, ... of the row; sums are taken lane by lane, then over lanes in a fixed tree: the bits depend on the row
// and on A alone, not on how z is cut among workgroups. The row is kept in workgroup memory,
// with zeros past its end; loops have as many turns for every lane, so that a lane's loads are under way together.
struct Params {
  rows: u32,
  columns: u32,
  k4: u32,
  xStride4: u32,
  upOffset4: u32,
  packed2: u32,
  width: u32,
  zStride: u32,
  perGroup: u32,
  eps: f32,
}

override SOURCE: u32 = 0u;
override ROW4: u32 = 256u;  // k4 to the next multiple of LANES

const LANES = 256u;
const TOGETHER = 4u;  // outputs of z that are summed at a time

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;  // [rows, xStride4]
@group(0) @binding(2) var<storage, read> gain: array<vec4<f32>>;  // [k4], for SOURCE 1
@group(0) @binding(3) var<storage, read> a: array<vec4<f32>>;  // [width, k4]
@group(0) @binding(4) var<storage, read_write> packed: array<vec2<u32>>;  // [rows, packed2] x 4 f16
@group(0) @binding(5) var<storage, read_write> scales: array<f32>;  // [rows]
@group(0) @binding(6) var<storage, read_write> z: array<f32>;  // [rows, zStride]

var<workgroup> row: array<vec4<f32>, ROW4>;
var<workgroup> parts: array<f32, 1024>;  // [TOGETHER, LANES]
var<workgroup> sums: array<f32, 256>;  // [TOGETHER, 64]
var<workgroup> topBits: atomic<u32>;

fn roundHalf(value: f32) -> u32 {
  let bits = bitcast<u32>(value);
  let magnitude = bits & 0x7fffffffu;
  let normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13u) & 1u)) >> 13u;
  let small = bitcast<u32>(bitcast<f32>(magnitude) + 0.5) - 0x3f000000u;
  return ((bits >> 16u) & 0x8000u) | select(small, normal, magnitude >= 0x38800000u);
}

// parts[0, ..] summed: 16 runs of 16, then the runs.
fn total(lane: u32) -> f32 {
  workgroupBarrier();
  if (lane < 16u) {
    var run = 0.0;
    for (var i = 0u; i < 16u; i++) {
      run = run + parts[lane * 16u + i];
    }
    sums[lane] = run;
  }
  workgroupBarrier();
  var all = 0.0;
  for (var i = 0u; i < 16u; i++) {
    all = all + sums[i];
  }
  return all;
}

fn dot4(acc: f32, w: vec4<f32>, v: vec4<f32>) -> f32 {
  return fma(w.w, v.w, fma(w.z, v.z, fma(w.y, v.y, fma(w.x, v.x, acc))));
}

// A lane's share of TOGETHER outputs from j on, into parts. All rows of A are loaded before any is used, because they
// come from far; outputs past `count` repeat the last.
fn dots(j: u32, count: u32, lane: u32) {
  let a0 = j * p.k4;
  let a1 = (j + min(1u, count - 1u)) * p.k4;
  let a2 = (j + min(2u, count - 1u)) * p.k4;
  let a3 = (j + min(3u, count - 1u)) * p.k4;
  var sum0 = 0.0;
  var sum1 = 0.0;
  var sum2 = 0.0;
  var sum3 = 0.0;
  for (var i = 0u; i < ROW4 / LANES; i++) {
    let c = i * LANES + lane;
    let from_ = min(c, p.k4 - 1u);
    let w0 = a[a0 + from_];
    let w1 = a[a1 + from_];
    let w2 = a[a2 + from_];
    let w3 = a[a3 + from_];
    let v = row[c];
    sum0 = dot4(sum0, w0, v);
    sum1 = dot4(sum1, w1, v);
    sum2 = dot4(sum2, w2, v);
    sum3 = dot4(sum3, w3, v);
  }
  parts[lane] = sum0;
  parts[LANES + lane] = sum1;
  parts[2u * LANES + lane] = sum2;
  parts[3u * LANES + lane] = sum3;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let m = wg.x;
  let base = m * p.xStride4;
  var squares = 0.0;
  for (var i = 0u; i < ROW4 / LANES; i++) {
    let c = i * LANES + lane;
    let at = base + min(c, p.k4 - 1u);
    var v = x[at];
    if (SOURCE == 2u) {
      v = v / (vec4<f32>(1.0) + exp(min(-v, vec4<f32>(80.0)))) * x[at + p.upOffset4];
    }
    v = select(vec4<f32>(0.0), v, c < p.k4);
    row[c] = v;
    squares = dot4(squares, v, v);
  }
  if (SOURCE == 1u) {
    parts[lane] = squares;
    let inverse = inverseSqrt(total(lane) / f32(p.columns) + p.eps);
    for (var i = 0u; i < ROW4 / LANES; i++) {
      let c = i * LANES + lane;
      row[c] = gain[min(c, p.k4 - 1u)] * (row[c] * inverse);
    }
  }
  if (wg.y == 0u) {
    var top = 0u;
    for (var i = 0u; i < ROW4 / LANES; i++) {
      let bits = bitcast<vec4<u32>>(row[i * LANES + lane]) & vec4<u32>(0x7fffffffu);
      top = max(top, max(max(bits.x, bits.y), max(bits.z, bits.w)));
    }
    atomicMax(&topBits, top);
  }
  workgroupBarrier();
  if (wg.y == 0u) {
    let found = atomicLoad(&topBits);
    let exponent = found >> 23u;
    let biased = select(clamp(268u - min(exponent, 254u), 14u, 253u), 127u, found == 0u);
    let factor = bitcast<f32>(biased << 23u);
    for (var c = lane; c < p.packed2; c += LANES) {
      let v = row[c] * factor;
      var words = vec2<u32>(roundHalf(v.x) | (roundHalf(v.y) << 16u), roundHalf(v.z) | (roundHalf(v.w) << 16u));
      if (exponent == 255u) {
        words = vec2<u32>(0x7e007e00u);
      }
      packed[m * p.packed2 + c] = words;
    }
    if (lane == 0u) {
      scales[m] = bitcast<f32>((254u - biased) << 23u);
    }
  }
  let first = wg.y * p.perGroup;
  for (var j0 = 0u; j0 < p.perGroup; j0 += TOGETHER) {
    let count = min(TOGETHER, min(p.perGroup - j0, select(0u, p.width - first - j0, p.width > first + j0)));
    if (count > 0u) {
      dots(first + j0, count, lane);
    }
    workgroupBarrier();
    let j = lane / 64u;
    var run = 0.0;
    for (var i = 0u; i < 4u; i++) {
      run = run + parts[j * LANES + lane % 64u + i * 64u];
    }
    sums[lane] = run;
    workgroupBarrier();
    if (lane < 32u) {
      // Eight lanes an output, eight runs each, then the eight.
      var eight = 0.0;
      for (var i = 0u; i < 8u; i++) {
        eight = eight + sums[lane * 8u + i];
      }
      parts[lane] = eight;
    }
    workgroupBarrier();
    if (lane < count) {
      var all = 0.0;
      for (var i = 0u; i < 8u; i++) {
        all = all + parts[lane * 8u + i];
      }
      z[m * p.zStride + first + j0 + lane] = all;
    }
    workgroupBarrier();
  }
}
