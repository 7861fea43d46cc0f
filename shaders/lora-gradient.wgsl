// Partial sums over a chunk of rows of out[c, r] = scale * sum_m big[m, c] * small[m, r], in f32: LoRA's gradients,
// with big = dOut, small = z for B, and big = x, small = dz for A. A fused layer has up to three targets: columns from
// start[t] on, `small` from quad t * rank4 on, and a place of its own in a chunk's part of `partial`:
//   TRANSPOSED 0: partial[chunk, out[t] + c * rank + r]; TRANSPOSED 1: partial[chunk, out[t] + r * outStride + c].
// A workgroup owns 128 columns, 16 of the rank and one chunk. Of the chunk's rows each of four groups of 32 threads
// takes every fourth, ascending, so that the group reads whole lines; then the four sums are added in order: the bits
// depend on the rows of the chunk alone. A thread owns 4 columns by 16 of the rank; `small` stands in workgroup memory.
struct Params {
  rows: u32,
  bigStride4: u32,
  smallStride4: u32,
  start0: u32,
  start1: u32,
  start2: u32,
  width0: u32,
  width1: u32,
  width2: u32,
  out0: u32,
  out1: u32,
  out2: u32,
  outStride4: u32,
  length4: u32,
  rank4: u32,
  scale: f32,
}

override TRANSPOSED: u32 = 0u;
override CHUNK: u32 = 128u;  // rows of a chunk: a multiple of 16, at most 256

const ZERO = vec4<f32>(0.0);
const SLAB = 130u;  // of workgroup memory at the end: [4 groups, 32 quads] and two of padding against bank conflicts

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> big: array<vec4<f32>>;  // [rows, bigStride4]
@group(0) @binding(2) var<storage, read> small: array<vec4<f32>>;  // [rows, smallStride4]
@group(0) @binding(3) var<storage, read_write> partial: array<vec4<f32>>;  // [chunks, length4]

var<workgroup> shared_: array<vec4<f32>, 1024>;  // [chunk up to 256, 4 quads of the rank]; at the end [4, SLAB]

// Writes one of four rounds: four quads of each thread, summed over the groups.
fn finish(s0: vec4<f32>, s1: vec4<f32>, s2: vec4<f32>, s3: vec4<f32>, thread: u32) -> vec4<f32> {
  workgroupBarrier();
  shared_[thread] = s0;
  shared_[SLAB + thread] = s1;
  shared_[2u * SLAB + thread] = s2;
  shared_[3u * SLAB + thread] = s3;
  workgroupBarrier();
  // Along the threads: TRANSPOSED 0 the four quads of a column, 1 the column quads of one of the rank.
  var at = (thread % 4u) * SLAB + thread / 4u;
  if (TRANSPOSED == 1u) {
    at = (thread / 32u) * SLAB + thread % 32u;
  }
  var total = shared_[at];
  for (var group = 1u; group < 4u; group++) {
    total = total + shared_[at + group * 32u];
  }
  return p.scale * total;
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  // Grid: 128 columns in x, chunks in y, a target and 16 of its rank in z.
  let slabs = (p.rank4 + 3u) / 4u;
  let target_ = wg.z / slabs;
  let first4 = (wg.z % slabs) * 4u;
  let start = select(select(p.start0, p.start1, target_ == 1u), p.start2, target_ == 2u);
  let width = select(select(p.width0, p.width1, target_ == 1u), p.width2, target_ == 2u);
  let out_ = select(select(p.out0, p.out1, target_ == 1u), p.out2, target_ == 2u);
  let column4 = wg.x * 32u + thread % 32u;
  if (wg.x * 128u >= width) {
    return;
  }
  let first = wg.y * CHUNK;
  let count = min(CHUNK, p.rows - first);
  for (var i = thread; i < CHUNK * 4u; i += 128u) {
    let quad = first4 + i % 4u;
    let row = first + min(i / 4u, count - 1u);
    let found = small[row * p.smallStride4 + target_ * p.rank4 + min(quad, p.rank4 - 1u)];
    shared_[i] = select(ZERO, found, i / 4u < count && quad < p.rank4);
  }
  workgroupBarrier();
  let group = thread / 32u;
  let base = start / 4u + min(column4, width / 4u - 1u);
  let last = p.rows - 1u;
  var next0 = big[min(first + group, last) * p.bigStride4 + base];
  var next1 = big[min(first + group + 4u, last) * p.bigStride4 + base];
  var next2 = big[min(first + group + 8u, last) * p.bigStride4 + base];
  var next3 = big[min(first + group + 12u, last) * p.bigStride4 + base];
  // Column (first digit) by quad of the rank (second).
  var a00 = ZERO;
  var a01 = ZERO;
  var a02 = ZERO;
  var a03 = ZERO;
  var a10 = ZERO;
  var a11 = ZERO;
  var a12 = ZERO;
  var a13 = ZERO;
  var a20 = ZERO;
  var a21 = ZERO;
  var a22 = ZERO;
  var a23 = ZERO;
  var a30 = ZERO;
  var a31 = ZERO;
  var a32 = ZERO;
  var a33 = ZERO;
  for (var i = group; i < count; i += 16u) {
    let now0 = next0;
    let now1 = next1;
    let now2 = next2;
    let now3 = next3;
    let ahead = first + i + 16u;
    next0 = big[min(ahead, last) * p.bigStride4 + base];
    next1 = big[min(ahead + 4u, last) * p.bigStride4 + base];
    next2 = big[min(ahead + 8u, last) * p.bigStride4 + base];
    next3 = big[min(ahead + 12u, last) * p.bigStride4 + base];
    for (var j = 0u; j < 4u; j++) {
      let now = select(select(now0, now1, j == 1u), select(now2, now3, j == 3u), j >= 2u);
      let at = (i + j * 4u) * 4u;
      let s0 = shared_[at];
      let s1 = shared_[at + 1u];
      let s2 = shared_[at + 2u];
      let s3 = shared_[at + 3u];
      a00 = fma(vec4<f32>(now.x), s0, a00);
      a01 = fma(vec4<f32>(now.x), s1, a01);
      a02 = fma(vec4<f32>(now.x), s2, a02);
      a03 = fma(vec4<f32>(now.x), s3, a03);
      a10 = fma(vec4<f32>(now.y), s0, a10);
      a11 = fma(vec4<f32>(now.y), s1, a11);
      a12 = fma(vec4<f32>(now.y), s2, a12);
      a13 = fma(vec4<f32>(now.y), s3, a13);
      a20 = fma(vec4<f32>(now.z), s0, a20);
      a21 = fma(vec4<f32>(now.z), s1, a21);
      a22 = fma(vec4<f32>(now.z), s2, a22);
      a23 = fma(vec4<f32>(now.z), s3, a23);
      a30 = fma(vec4<f32>(now.w), s0, a30);
      a31 = fma(vec4<f32>(now.w), s1, a31);
      a32 = fma(vec4<f32>(now.w), s2, a32);
      a33 = fma(vec4<f32>(now.w), s3, a33);
    }
  }
  let place = wg.y * p.length4 + out_ / 4u;
  if (TRANSPOSED == 1u) {
    let row = first4 * 4u + thread / 32u;
    let mine = column4 < width / 4u;
    let q0 = finish(vec4<f32>(a00.x, a10.x, a20.x, a30.x), vec4<f32>(a00.y, a10.y, a20.y, a30.y),
      vec4<f32>(a00.z, a10.z, a20.z, a30.z), vec4<f32>(a00.w, a10.w, a20.w, a30.w), thread);
    if (mine) { partial[place + row * p.outStride4 + column4] = q0; }
    let q1 = finish(vec4<f32>(a01.x, a11.x, a21.x, a31.x), vec4<f32>(a01.y, a11.y, a21.y, a31.y),
      vec4<f32>(a01.z, a11.z, a21.z, a31.z), vec4<f32>(a01.w, a11.w, a21.w, a31.w), thread);
    if (mine && first4 + 1u < p.rank4) { partial[place + (row + 4u) * p.outStride4 + column4] = q1; }
    let q2 = finish(vec4<f32>(a02.x, a12.x, a22.x, a32.x), vec4<f32>(a02.y, a12.y, a22.y, a32.y),
      vec4<f32>(a02.z, a12.z, a22.z, a32.z), vec4<f32>(a02.w, a12.w, a22.w, a32.w), thread);
    if (mine && first4 + 2u < p.rank4) { partial[place + (row + 8u) * p.outStride4 + column4] = q2; }
    let q3 = finish(vec4<f32>(a03.x, a13.x, a23.x, a33.x), vec4<f32>(a03.y, a13.y, a23.y, a33.y),
      vec4<f32>(a03.z, a13.z, a23.z, a33.z), vec4<f32>(a03.w, a13.w, a23.w, a33.w), thread);
    if (mine && first4 + 3u < p.rank4) { partial[place + (row + 12u) * p.outStride4 + column4] = q3; }
    return;
  }
  let own4 = wg.x * 32u + thread / 4u;
  let mine = own4 < width / 4u && first4 + thread % 4u < p.rank4;
  let to = place + own4 * 4u * p.rank4 + first4 + thread % 4u;
  let q0 = finish(a00, a01, a02, a03, thread);
  if (mine) { partial[to] = q0; }
  let q1 = finish(a10, a11, a12, a13, thread);
  if (mine) { partial[to + p.rank4] = q1; }
  let q2 = finish(a20, a21, a22, a23, thread);
  if (mine) { partial[to + 2u * p.rank4] = q2; }
  let q3 = finish(a30, a31, a32, a33, thread);
  if (mine) { partial[to + 3u * p.rank4] = q3; }
}
