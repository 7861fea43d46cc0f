// a[i] = a[i] + b[i] for i < count: one merge of the gradient tree. One thread four elements; those past
// count in the last four keep their bits.
struct Params {
  count: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;  // [count], padded to four
@group(0) @binding(2) var<storage, read_write> a: array<vec4<f32>>;  // [count], padded to four

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let index = id.y * groups.x * 64u + id.x;
  if (index * 4u >= p.count) {
    return;
  }
  let inside = (vec4<u32>(index * 4u) + vec4<u32>(0u, 1u, 2u, 3u)) < vec4<u32>(p.count);
  let before = a[index];
  a[index] = select(before, before + b[index], inside);
}
