// out[r, c] = table[token[r], c]
// table: [rows, c4 * 4] bf16 packed two a word, or f32; a part of the vocabulary from firstRow when the table is split
// over bindings: rows of other parts are left to the other dispatches. A copy: bit-exact.
struct Params {
  rows: u32,
  c4: u32,
  outStride4: u32,
  firstRow: u32,
  tableRows: u32,
}

override BF16: bool = true;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tokens: array<u32>;  // [rows]
@group(0) @binding(2) var<storage, read> table: array<vec2<u32>>;  // [tableRows, c4] x 4 bf16, or [.., c4, 2] x 2 f32
@group(0) @binding(3) var<storage, read_write> out: array<vec4<f32>>;  // [rows, outStride4]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let c = id.x;
  let r = id.y;
  if (c >= p.c4 || r >= p.rows) {
    return;
  }
  let row = tokens[r] - p.firstRow;
  if (row >= p.tableRows) {
    return;
  }
  let at = row * p.c4 + c;
  if (BF16) {
    let pair = table[at];
    out[r * p.outStride4 + c] = vec4<f32>(
      bitcast<f32>(pair.x << 16u),
      bitcast<f32>(pair.x & 0xffff0000u),
      bitcast<f32>(pair.y << 16u),
      bitcast<f32>(pair.y & 0xffff0000u),
    );
  } else {
    let low = table[at * 2u];
    let high = table[at * 2u + 1u];
    out[r * p.outStride4 + c] = vec4<f32>(bitcast<f32>(low.x), bitcast<f32>(low.y), bitcast<f32>(high.x), bitcast<f32>(high.y));
  }
}
