// Joins the chunks of attention-partial.wgsl, ascending: from m = -1e30, l = 0, o = 0, for the chunk's (m_c, l_c, o_c)
//   m' = max(m, m_c), a = exp(m - m'), b = exp(m_c - m'), l = fma(l_c, b, l * a), o = fma(o_c, b, o * a), m = m'
// and out = o * (1 / l). One thread a (row, head, four d). Only chunks up to the row's position are read.
struct Params {
  rows: u32,
  heads: u32,
  d4: u32,
  outStride4: u32,
  chunks: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> meta_: array<vec2<u32>>;  // [rows]: slot, position
@group(0) @binding(2) var<storage, read> partials: array<vec4<f32>>;  // [rows, heads, chunks, 1 + d4]: (m, l, -, -), o
@group(0) @binding(3) var<storage, read_write> out: array<vec4<f32>>;  // [rows, outStride4]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let index = id.y * groups.x * 64u + id.x;
  let d = index % p.d4;
  let h = index / p.d4 % p.heads;
  let r = index / p.d4 / p.heads;
  if (r >= p.rows) {
    return;
  }
  let last = meta_[r].y / 64u;
  let pitch = 1u + p.d4;
  let base = (r * p.heads + h) * p.chunks * pitch;
  var m = -1e30;
  var l = 0.0;
  var o = vec4<f32>(0.0);
  for (var first = 0u; first <= last; first += 8u) {
    // Eight chunks are loaded at a time, so that their loads overlap.
    var states: array<vec4<f32>, 8>;
    var values: array<vec4<f32>, 8>;
    for (var i = 0u; i < 8u; i++) {
      let at = base + min(first + i, last) * pitch;
      states[i] = partials[at];
      values[i] = partials[at + 1u + d];
    }
    for (var i = 0u; i < 8u; i++) {
      if (first + i <= last) {
        let top = max(m, states[i].x);
        let a = exp(m - top);
        let b = exp(states[i].x - top);
        l = fma(states[i].y, b, l * a);
        o = fma(values[i], vec4<f32>(b), o * a);
        m = top;
      }
    }
  }
  out[r * p.outStride4 + h * p.d4 + d] = o * (1.0 / l);
}
