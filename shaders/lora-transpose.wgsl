// out[to + r * stride + n] = flat[from + n * rank + r] for n < count: LoRA's B by rows of the rank, as products read it.
// table: one entry a workgroup, 64 columns of one target.
struct Params {
  entries: u32,
  rank: u32,
}

struct Entry {
  source: u32,
  to: u32,
  stride: u32,
  count: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> table: array<Entry>;
@group(0) @binding(2) var<storage, read> parameters: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let index = wg.y * groups.x + wg.x;
  if (index >= p.entries) {
    return;
  }
  let entry = table[index];
  if (lane >= entry.count) {
    return;
  }
  for (var r = 0u; r < p.rank; r++) {
    out[entry.to + r * entry.stride + lane] = parameters[entry.source + lane * p.rank + r];
  }
}
