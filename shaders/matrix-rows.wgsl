// Prepares rows for a product by subgroup matrices, and multiplies them by LoRA's A on the way:
//   v[m, k] = x[m, k]                                                             (SOURCE 0)
//             gain[k] * (x[m, k] / sqrt(mean_k(x[m, k]^2) + eps))                 (SOURCE 1, RMSNorm)
//             g / (1 + exp(-g)) * u  with g = x[m, k], u = x[m, upOffset + k]     (SOURCE 2, SwiGLU)
//             attention joined from the chunks of attention-partial, as below     (SOURCE 3)
//   packed[m, k] = round(v[m, k] * 2^e), scales[m] = 2^-e, as matrix-pack does; z[m, j] = sum_k a[j, k] * v[m, k]
// A workgroup makes one row and `perGroup` of its z; the first one of a row writes packed and scales. Lane l has quads
// l, l + 256, ... of the row; sums are taken lane by lane, then over lanes in a fixed tree: the bits depend on the row
// and on A alone, not on how z is cut among workgroups. The row is kept in workgroup memory,
// with zeros past its end; loops have as many turns for every lane, so that a lane's loads are under way together. What
// does not depend on the row (gain, A) is loaded for a lane's first two quads before the row is waited for.
// Chunks c of 64 keys are joined in ascending order, up to the row's position: from m = -1e30, l = 0, o = 0, for the
// chunk's (m_c, l_c, o_c)
//   m' = max(m, m_c), a = exp(m - m'), b = exp(m_c - m'), l = fma(l_c, b, l * a), o = fma(o_c, b, o * a), m = m'
// and v = o * (1 / l), as attention-flash does.
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
  chunks: u32,
  eps: f32,
}

override SOURCE: u32 = 0u;
override D4: u32 = 256u;  // headDim / 4 for SOURCE 3, else ROW4
override ROW4: u32 = 256u;  // k4 to the next multiple of LANES

const LANES = 256u;
const TOGETHER = 4u;  // outputs of z that are summed at a time
const WINDOW = 16u;  // chunks of attention whose loads are under way together
override HEADS = ROW4 / D4;
override FACTORS = HEADS * WINDOW;

@group(0) @binding(0) var<uniform> p: Params;
// [rows, xStride4]; SOURCE 3: [rows, heads, chunks, 1 + D4]: (m, l, -, -), then o
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> gain: array<vec4<f32>>;  // [k4], for SOURCE 1
@group(0) @binding(3) var<storage, read> a: array<vec4<f32>>;  // [width, k4]
@group(0) @binding(4) var<storage, read_write> packed: array<vec2<u32>>;  // [rows, packed2] x 4 f16
@group(0) @binding(5) var<storage, read_write> scales: array<f32>;  // [rows]
@group(0) @binding(6) var<storage, read_write> z: array<f32>;  // [rows, zStride]
@group(0) @binding(7) var<storage, read> meta_: array<vec2<u32>>;  // [rows]: slot, position, for SOURCE 3

var<workgroup> row: array<vec4<f32>, ROW4>;
var<workgroup> parts: array<f32, 1024>;  // [TOGETHER, LANES]
var<workgroup> sums: array<f32, 256>;  // [TOGETHER, 64]
var<workgroup> topBits: atomic<u32>;
var<workgroup> factors: array<vec2<f32>, FACTORS>;  // [heads, WINDOW]: a, b
var<workgroup> inverses: array<f32, HEADS>;  // 1 / l

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

// A row of attention to `row`, a window of chunks at a time: a lane a head finds each chunk's factors (a, b), then every
// lane applies them to its own quads, whose loads are under way together.
fn join(r: u32, lane: u32) {
  let last = meta_[r].y / 64u;
  let heads = p.k4 / D4;
  let stride = 1u + D4;
  var m = -1e30;
  var l = 0.0;
  for (var first = 0u; first <= last; first += WINDOW) {
    if (first > 0u) {
      workgroupBarrier();
    }
    if (lane < heads) {
      let from_ = (r * heads + lane) * p.chunks * stride;
      var states: array<vec4<f32>, WINDOW>;
      for (var i = 0u; i < WINDOW; i++) {
        states[i] = x[from_ + min(first + i, last) * stride];
      }
      for (var i = 0u; i < WINDOW; i++) {
        if (first + i <= last) {
          let top = max(m, states[i].x);
          let a = exp(m - top);
          let b = exp(states[i].x - top);
          l = fma(states[i].y, b, l * a);
          m = top;
          factors[lane * WINDOW + i] = vec2<f32>(a, b);
        }
      }
    }
    workgroupBarrier();
    for (var q = lane; q < ROW4; q += LANES) {
      let c = min(q, p.k4 - 1u);
      let from_ = (r * heads + c / D4) * p.chunks * stride + 1u + c % D4;
      var values: array<vec4<f32>, WINDOW>;
      for (var i = 0u; i < WINDOW; i++) {
        values[i] = x[from_ + min(first + i, last) * stride];
      }
      var o = vec4<f32>(0.0);
      if (first > 0u) {
        o = row[q];
      }
      for (var i = 0u; i < WINDOW; i++) {
        if (first + i <= last) {
          let f = factors[c / D4 * WINDOW + i];
          o = fma(values[i], vec4<f32>(f.y), o * f.x);
        }
      }
      row[q] = o;
    }
  }
  if (lane < heads) {
    inverses[lane] = 1.0 / l;
  }
  workgroupBarrier();
}

// Quad c of four rows of A, from j on; rows past `count` repeat the last.
struct Four {
  w0: vec4<f32>,
  w1: vec4<f32>,
  w2: vec4<f32>,
  w3: vec4<f32>,
}

fn four(j: u32, count: u32, c: u32) -> Four {
  let at = min(c, p.k4 - 1u);
  return Four(
    a[j * p.k4 + at],
    a[(j + min(1u, count - 1u)) * p.k4 + at],
    a[(j + min(2u, count - 1u)) * p.k4 + at],
    a[(j + min(3u, count - 1u)) * p.k4 + at],
  );
}

// A quad's terms of four sums.
fn add(sums4: vec4<f32>, w: Four, v: vec4<f32>) -> vec4<f32> {
  return vec4<f32>(dot4(sums4.x, w.w0, v), dot4(sums4.y, w.w1, v), dot4(sums4.z, w.w2, v), dot4(sums4.w, w.w3, v));
}

// Outputs of z from `done` on that this workgroup sums together.
fn countOf(first: u32, done: u32) -> u32 {
  return min(TOGETHER, min(p.perGroup - done, select(0u, p.width - first - done, p.width > first + done)));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let m = wg.x;
  let base = m * p.xStride4;
  let first = wg.y * p.perGroup;
  var early0: Four;
  var early1: Four;
  var count = countOf(first, 0u);
  if (count > 0u) {
    early0 = four(first, count, lane);
    if (ROW4 > LANES) {
      early1 = four(first, count, LANES + lane);
    }
  }
  var gain0: vec4<f32>;
  var gain1: vec4<f32>;
  if (SOURCE == 1u) {
    gain0 = gain[min(lane, p.k4 - 1u)];
    gain1 = gain[min(LANES + lane, p.k4 - 1u)];
  }
  if (SOURCE == 3u) {
    join(m, lane);
  }
  var squares = 0.0;
  for (var i = 0u; i < ROW4 / LANES; i++) {
    let c = i * LANES + lane;
    let at = min(c, p.k4 - 1u);
    var v: vec4<f32>;
    if (SOURCE == 3u) {
      v = row[c] * inverses[at / D4];
    } else {
      v = x[base + at];
    }
    if (SOURCE == 2u) {
      v = v / (vec4<f32>(1.0) + exp(min(-v, vec4<f32>(80.0)))) * x[base + at + p.upOffset4];
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
      var g = select(gain1, gain0, i == 0u);
      if (i > 1u) {
        g = gain[min(c, p.k4 - 1u)];
      }
      row[c] = g * (row[c] * inverse);
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
  for (var done = 0u; done < p.perGroup; done += TOGETHER) {
    if (count > 0u) {
      var sum = add(vec4<f32>(0.0), early0, row[lane]);
      if (ROW4 > LANES) {
        sum = add(sum, early1, row[LANES + lane]);
      }
      for (var i = 2u; i < ROW4 / LANES; i++) {
        let c = i * LANES + lane;
        sum = add(sum, four(first + done, count, c), row[c]);
      }
      parts[lane] = sum.x;
      parts[LANES + lane] = sum.y;
      parts[2u * LANES + lane] = sum.z;
      parts[3u * LANES + lane] = sum.w;
    }
    let now = count;
    count = countOf(first, done + TOGETHER);
    if (done + TOGETHER < p.perGroup && count > 0u) {
      early0 = four(first + done + TOGETHER, count, lane);
      if (ROW4 > LANES) {
        early1 = four(first + done + TOGETHER, count, LANES + lane);
      }
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
    if (lane < now) {
      var all = 0.0;
      for (var i = 0u; i < 8u; i++) {
        all = all + parts[lane * 8u + i];
      }
      z[m * p.zStride + first + done + lane] = all;
    }
    workgroupBarrier();
  }
}
