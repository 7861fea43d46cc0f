// After a draw, for each live row of a decode batch: the id drawn becomes the row's next token, the positions in meta
// and in the draw's key go up by one, and (id, truncated log-prob, log-prob, entropy) is stored in the results ring at
// the step's place. A row that is not live, or that drew no id, keeps its token and positions; its result's id is NONE.
// One workgroup does all rows and then counts the step: the host need not know the step when it records the dispatch.
struct Params {
  rows: u32,
  ring: u32,  // steps that the ring holds
}

const LANES = 64u;
const NONE = 0xffffffffu;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> ids: array<u32>;  // [rows]
@group(0) @binding(2) var<storage, read> truncated: array<u32>;  // [rows]: f32 bits
@group(0) @binding(3) var<storage, read> stats: array<vec4<u32>>;  // [rows, 4]: f32 bits; log-prob third, entropy last
@group(0) @binding(4) var<storage, read_write> tokens: array<u32>;  // [rows]
@group(0) @binding(5) var<storage, read_write> meta_: array<vec2<u32>>;  // [rows]: slot, position
@group(0) @binding(6) var<storage, read_write> keys: array<vec4<u32>>;  // [rows, 2]: see sample.wgsl
@group(0) @binding(7) var<storage, read_write> results: array<vec4<u32>>;  // [ring, rows]
@group(0) @binding(8) var<storage, read_write> steps: array<u32>;  // [1]: steps done

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32) {
  let step = steps[0];
  let first = (step % p.ring) * p.rows;
  for (var row = lane; row < p.rows; row += LANES) {
    var result = vec4<u32>(NONE, vec3<u32>(0x7fc00000u));
    if (keys[row * 2u + 1u].y != 0u && ids[row] != NONE) {
      result = vec4<u32>(ids[row], truncated[row], stats[row].zw);
      tokens[row] = ids[row];
      meta_[row].y += 1u;
      keys[row * 2u + 1u].x += 1u;
    }
    results[first + row] = result;
  }
  storageBarrier();
  if (lane == 0u) {
    steps[0] = step + 1u;
  }
}
