// clip = [norm, min(1, maxNorm / (norm + 1e-6))], norm = sqrt(sum of the block sums); maxNorm 0 means no clipping: 1.
// The block sums are added in place by the fixed binary tree: at stride s = 1, 2, 4, ... entry i (a multiple of 2s)
// takes in entry i + s where there is one, and passes unchanged where there is none. One workgroup in all.
struct Params {
  blocks: u32,
  levels: u32,  // ceil(log2(blocks))
  maxNorm: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> partial: array<f32>;  // [blocks]; holds the tree's sums afterwards
@group(0) @binding(2) var<storage, read_write> clip: array<f32>;  // [2]

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32) {
  for (var level = 0u; level < p.levels; level++) {
    let stride = 1u << level;
    for (var i = lane * stride * 2u; i + stride < p.blocks; i += stride * 128u) {
      partial[i] = partial[i] + partial[i + stride];
    }
    storageBarrier();
  }
  if (lane == 0u) {
    let norm = sqrt(partial[0]);
    clip[0] = norm;
    clip[1] = select(min(1.0, p.maxNorm / (norm + 1e-6)), 1.0, p.maxNorm == 0.0);
  }
}
