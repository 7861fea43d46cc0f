// out[outOffset4 + i] = sum over slices, ascending, of partial[slice, i], in quads: the end of a sum that was cut into
// slices. One thread a quad, plain additions.
struct Params {
  length4: u32,
  slices: u32,
  outOffset4: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> partial: array<vec4<f32>>;  // [slices, length4]
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;  // from outOffset4

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = id.y * groups.x * 64u + id.x;
  if (i >= p.length4) {
    return;
  }
  var sum = partial[i];
  for (var slice = 1u; slice < p.slices; slice++) {
    sum = sum + partial[slice * p.length4 + i];
  }
  out[p.outOffset4 + i] = sum;
}
