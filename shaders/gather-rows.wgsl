// Gather (SCATTER false): out[i, c] = x[index[i], c]. Scatter (SCATTER true): out[index[i], c] = x[i, c].
// Indices of a scatter are distinct. A copy: bit-exact.
struct Params {
  rows: u32,
  c4: u32,
  xStride4: u32,
  outStride4: u32,
  indexOffset: u32,
}

override SCATTER: bool = false;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> index: array<u32>;  // [rows] from indexOffset
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> out: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let c = id.x;
  let i = id.y;
  if (c >= p.c4 || i >= p.rows) {
    return;
  }
  let other = index[p.indexOffset + i];
  let source = select(other, i, SCATTER);
  let to = select(i, other, SCATTER);
  out[to * p.outStride4 + c] = x[source * p.xStride4 + c];
}
