// The gradient of logprobs-backward, rounded to f16 at once, as matrix-pack rounds rows:
//   packed[r, v] = round(d[r, v] * 2^e), scales[r] = 2^-e,
//   d[r, v] = gradient[r] / T * (1[v == target[r]] - exp(x[v] - top - logSum)), x = logits / T.
// No pass over the row is needed for e: no |d| is above |gradient / T| times 1 - exp(logprob of the target), which
// comes into [2^14, 2^15); where that difference is below 2^-8, 2^-8 stands in for it, so that its rounding cannot
// matter. Zeros for v >= vocabulary, for gradient[r] = 0 and for a target of 0xffffffff; NaN throughout where a
// statistic is not finite. One thread eight columns, nothing is summed: the bits depend on the row alone.
struct Params {
  rows: u32,
  vocabulary: u32,
  stride4: u32,
  packed4: u32,
  rowOffset: u32,
  inverseTemperature: f32,
}

const LIMIT = vec4<f32>(1.7e38);

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> targets: array<u32>;  // [all rows] from rowOffset
@group(0) @binding(2) var<storage, read> stats: array<vec4<f32>>;  // [all rows] from rowOffset: top, logSum, logprob, -
@group(0) @binding(3) var<storage, read> gradient: array<f32>;  // [all rows] from rowOffset
@group(0) @binding(4) var<storage, read> logits: array<vec4<f32>>;  // [rows, stride4]
@group(0) @binding(5) var<storage, read_write> packed: array<vec4<u32>>;  // [rows, packed4] x 8 f16
@group(0) @binding(6) var<storage, read_write> scales: array<f32>;  // [rows]

fn roundHalf(value: f32) -> u32 {
  let bits = bitcast<u32>(value);
  let magnitude = bits & 0x7fffffffu;
  let normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13u) & 1u)) >> 13u;
  let small = bitcast<u32>(bitcast<f32>(magnitude) + 0.5) - 0x3f000000u;
  return ((bits >> 16u) & 0x8000u) | select(small, normal, magnitude >= 0x38800000u);
}

fn finite(value: f32) -> bool {
  return (bitcast<u32>(value) & 0x7f800000u) != 0x7f800000u;
}

// Four columns from quad `quad` on, scaled and rounded: two words.
fn quadAt(row: u32, quad: u32, wanted: u32, row_: vec4<f32>, g: f32, factor: f32) -> vec2<u32> {
  let ids = vec4<u32>(quad * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
  let x = clamp(logits[row * p.stride4 + min(quad, p.stride4 - 1u)] * p.inverseTemperature, -LIMIT, LIMIT);
  let probability = exp((x - row_.x) - row_.y);
  let hit = select(vec4<f32>(0.0), vec4<f32>(1.0), ids == vec4<u32>(wanted));
  let d = select(vec4<f32>(0.0), (g * (hit - probability)) * factor, ids < vec4<u32>(p.vocabulary));
  return vec2<u32>(roundHalf(d.x) | (roundHalf(d.y) << 16u), roundHalf(d.z) | (roundHalf(d.w) << 16u));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = wg.y;
  let column = wg.x * 256u + lane;
  if (row >= p.rows || column >= p.packed4) {
    return;
  }
  let at = p.rowOffset + row;
  let wanted = targets[at];
  let row_ = stats[at];
  let g = gradient[at] * p.inverseTemperature;
  let live = wanted != 0xffffffffu && g != 0.0;
  let bound = abs(g) * max(1.0 - exp(row_.z), 0.00390625);
  // 2^e has the biased exponent 268 - that of the bound; e is at most 126.
  let exponent = min((bitcast<u32>(bound) >> 23u) & 255u, 254u);
  let biased = select(127u, clamp(268u - exponent, 14u, 253u), live);
  var words = vec4<u32>(0u);
  if (live) {
    let factor = bitcast<f32>(biased << 23u);
    words = vec4<u32>(
      quadAt(row, column * 2u, wanted, row_, g, factor),
      quadAt(row, column * 2u + 1u, wanted, row_, g, factor),
    );
    if (!(finite(row_.x) && finite(row_.y) && finite(row_.z) && finite(g))) {
      words = vec4<u32>(0x7e007e00u);
    }
  }
  packed[row * p.packed4 + column] = words;
  if (column == 0u) {
    scales[row] = bitcast<f32>((254u - biased) << 23u);
  }
}
