// partial[blockOffset + b] = sum of x[i]^2 over the elements i of block b: 65,536 of them, fewer in the last.
// One workgroup a block: lane l adds elements l, l + 256, ... in order, then lane 0 adds the 256 partial sums in order.
struct Params {
  count: u32,
  offset: u32,
  blocks: u32,
  blockOffset: u32,
}

const LANES = 256u;
const BLOCK = 65536u;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;  // [count] from offset
@group(0) @binding(2) var<storage, read_write> partial: array<f32>;  // [blocks] from blockOffset

var<workgroup> sums: array<f32, 256>;

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let block = wg.y * groups.x + wg.x;
  if (block >= p.blocks) {
    return;
  }
  let end = min(p.count, (block + 1u) * BLOCK);
  var sum = 0.0;
  for (var i = block * BLOCK + lane; i < end; i += LANES) {
    let value = x[p.offset + i];
    sum = fma(value, value, sum);
  }
  sums[lane] = sum;
  workgroupBarrier();
  if (lane != 0u) {
    return;
  }
  var total = 0.0;
  for (var i = 0u; i < LANES; i++) {
    total = total + sums[i];
  }
  partial[p.blockOffset + block] = total;
}
