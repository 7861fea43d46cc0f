// dz[slice, m, t * rank + r] = scale * sum_n dOut[m, start[t] + n] * b[r, start[t] + n], n in slice `slice` of target
// t's columns: the gradient of LoRA's z = A x over a fused layer of up to three targets, in f32. Panels of 64 columns
// stand in workgroup memory, the next is on its way in registers. Of every panel each of sixteen parts takes four
// columns: its sum runs over them ascending, panel by panel; then the sixteen sums are added in order: the bits depend
// on a row of dOut and on b alone. A slice past the target's end is zero, so that the slices can be added
// (ordered-sum). A thread owns eight rows by eight of the rank for one part.
struct Params {
  rows: u32,
  outStride4: u32,
  zStride4: u32,
  start0: u32,
  start1: u32,
  start2: u32,
  width0: u32,
  width1: u32,
  width2: u32,
  bStride4: u32,
  bOffset4: u32,
  slice: u32,
  rank4: u32,
  scale: f32,
}


const ROWS = 32u;  // of a workgroup
const STRIDE4 = 17u;  // of a staged row: 16 quads and one of padding
const HALF4 = 137u;  // eight rows and one more of padding
const ZERO = vec4<f32>(0.0);

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> dOut: array<vec4<f32>>;  // [rows, outStride4]
@group(0) @binding(2) var<storage, read> b: array<vec4<f32>>;  // [rank, bStride4] from bOffset4: B transposed
@group(0) @binding(3) var<storage, read_write> dz: array<vec4<f32>>;  // [slices, rows, zStride4]

var<workgroup> left: array<vec4<f32>, 544>;  // [ROWS, STRIDE4]; at the end [16 parts, 8 rows, 4 quads]
var<workgroup> right: array<vec4<f32>, 273>;  // [16 of the rank, STRIDE4], the second eight from HALF4 on

// Four columns of a row of dOut from quad `quad` of the target; zero past `end`.
fn leftAt(m: u32, start4: u32, quad: u32, end4: u32) -> vec4<f32> {
  let found = dOut[min(m, p.rows - 1u) * p.outStride4 + start4 + min(quad, end4 - 1u)];
  return select(ZERO, found, quad < end4);
}

// Four columns of row `r` of b; zero past `end` and past the rank.
fn rightAt(r: u32, start4: u32, quad: u32, end4: u32) -> vec4<f32> {
  let found = b[min(r, p.rank4 * 4u - 1u) * p.bStride4 + p.bOffset4 + start4 + min(quad, end4 - 1u)];
  return select(ZERO, found, quad < end4 && r < p.rank4 * 4u);
}

// Four columns, ascending, for four of the rank: t0 to t3 are their rows of b.
fn add4(d: vec4<f32>, t0: vec4<f32>, t1: vec4<f32>, t2: vec4<f32>, t3: vec4<f32>, sum: vec4<f32>) -> vec4<f32> {
  var next = fma(vec4<f32>(d.x), vec4<f32>(t0.x, t1.x, t2.x, t3.x), sum);
  next = fma(vec4<f32>(d.y), vec4<f32>(t0.y, t1.y, t2.y, t3.y), next);
  next = fma(vec4<f32>(d.z), vec4<f32>(t0.z, t1.z, t2.z, t3.z), next);
  return fma(vec4<f32>(d.w), vec4<f32>(t0.w, t1.w, t2.w, t3.w), next);
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  // Grid: row tiles in x; a target and 16 of its rank in y; slices in z.
  let ranks = (p.rank4 + 3u) / 4u;
  let target_ = wg.y / ranks;
  let first4 = (wg.y % ranks) * 4u;
  let start = select(select(p.start0, p.start1, target_ == 1u), p.start2, target_ == 2u);
  let width = select(select(p.width0, p.width1, target_ == 1u), p.width2, target_ == 2u);
  let first = wg.z * p.slice;
  let end = min(width, first + p.slice);
  let start4 = start / 4u;
  let end4 = end / 4u;
  let firstM = wg.x * ROWS;
  // Loading: a row's quads along the threads.
  let loadRow = thread / 16u;
  let loadQuad = first / 4u + thread % 16u;
  let loadRank = first4 * 4u + thread / 16u;
  var d0 = leftAt(firstM + loadRow, start4, loadQuad, end4);
  var d1 = leftAt(firstM + loadRow + 8u, start4, loadQuad, end4);
  var d2 = leftAt(firstM + loadRow + 16u, start4, loadQuad, end4);
  var d3 = leftAt(firstM + loadRow + 24u, start4, loadQuad, end4);
  var r0 = rightAt(loadRank, start4, loadQuad, end4);
  var r1 = rightAt(loadRank + 8u, start4, loadQuad, end4);
  let part = thread / 8u;
  let row = (thread / 2u) % 4u;
  let half = thread % 2u;
  let to = (thread / 16u) * STRIDE4 + thread % 16u;
  // Row (first digit, every fourth) by quad of the rank (second).
  var a00 = ZERO;
  var a01 = ZERO;
  var a10 = ZERO;
  var a11 = ZERO;
  var a20 = ZERO;
  var a21 = ZERO;
  var a30 = ZERO;
  var a31 = ZERO;
  var a40 = ZERO;
  var a41 = ZERO;
  var a50 = ZERO;
  var a51 = ZERO;
  var a60 = ZERO;
  var a61 = ZERO;
  var a70 = ZERO;
  var a71 = ZERO;
  for (var base = first; base < end; base += 64u) {
    left[to] = d0;
    left[to + 8u * STRIDE4] = d1;
    left[to + 16u * STRIDE4] = d2;
    left[to + 24u * STRIDE4] = d3;
    right[to] = r0;
    right[to + HALF4] = r1;
    workgroupBarrier();
    let next = base - first + 64u;
    if (first + next < end) {
      d0 = leftAt(firstM + loadRow, start4, next / 4u + loadQuad, end4);
      d1 = leftAt(firstM + loadRow + 8u, start4, next / 4u + loadQuad, end4);
      d2 = leftAt(firstM + loadRow + 16u, start4, next / 4u + loadQuad, end4);
      d3 = leftAt(firstM + loadRow + 24u, start4, next / 4u + loadQuad, end4);
      r0 = rightAt(loadRank, start4, next / 4u + loadQuad, end4);
      r1 = rightAt(loadRank + 8u, start4, next / 4u + loadQuad, end4);
    }
    let at = half * HALF4 + part;
    let t0 = right[at];
    let t1 = right[at + 1u * STRIDE4];
    let t2 = right[at + 2u * STRIDE4];
    let t3 = right[at + 3u * STRIDE4];
    let t4 = right[at + 4u * STRIDE4];
    let t5 = right[at + 5u * STRIDE4];
    let t6 = right[at + 6u * STRIDE4];
    let t7 = right[at + 7u * STRIDE4];
    let l0 = left[row * STRIDE4 + part];
    a00 = add4(l0, t0, t1, t2, t3, a00);
    a01 = add4(l0, t4, t5, t6, t7, a01);
    let l1 = left[(row + 4u) * STRIDE4 + part];
    a10 = add4(l1, t0, t1, t2, t3, a10);
    a11 = add4(l1, t4, t5, t6, t7, a11);
    let l2 = left[(row + 8u) * STRIDE4 + part];
    a20 = add4(l2, t0, t1, t2, t3, a20);
    a21 = add4(l2, t4, t5, t6, t7, a21);
    let l3 = left[(row + 12u) * STRIDE4 + part];
    a30 = add4(l3, t0, t1, t2, t3, a30);
    a31 = add4(l3, t4, t5, t6, t7, a31);
    let l4 = left[(row + 16u) * STRIDE4 + part];
    a40 = add4(l4, t0, t1, t2, t3, a40);
    a41 = add4(l4, t4, t5, t6, t7, a41);
    let l5 = left[(row + 20u) * STRIDE4 + part];
    a50 = add4(l5, t0, t1, t2, t3, a50);
    a51 = add4(l5, t4, t5, t6, t7, a51);
    let l6 = left[(row + 24u) * STRIDE4 + part];
    a60 = add4(l6, t0, t1, t2, t3, a60);
    a61 = add4(l6, t4, t5, t6, t7, a61);
    let l7 = left[(row + 28u) * STRIDE4 + part];
    a70 = add4(l7, t0, t1, t2, t3, a70);
    a71 = add4(l7, t4, t5, t6, t7, a71);
    workgroupBarrier();
  }
  // Four rounds of eight rows: the parts' sums, then one thread a quad adds them.
  for (var round = 0u; round < 4u; round++) {
    let slot = part * 32u + row * 4u + half * 2u;
    if (round == 0u) {
      left[slot] = a00;
      left[slot + 1u] = a01;
      left[slot + 16u] = a10;
      left[slot + 17u] = a11;
    } else if (round == 1u) {
      left[slot] = a20;
      left[slot + 1u] = a21;
      left[slot + 16u] = a30;
      left[slot + 17u] = a31;
    } else if (round == 2u) {
      left[slot] = a40;
      left[slot + 1u] = a41;
      left[slot + 16u] = a50;
      left[slot + 17u] = a51;
    } else {
      left[slot] = a60;
      left[slot + 1u] = a61;
      left[slot + 16u] = a70;
      left[slot + 17u] = a71;
    }
    workgroupBarrier();
    let m = firstM + round * 8u + (thread / 16u) * 4u + (thread / 4u) % 4u;
    let own = first4 + thread % 4u;
    if (thread < 32u && m < p.rows && own < p.rank4) {
      var total = left[thread];
      for (var other = 1u; other < 16u; other++) {
        total = total + left[other * 32u + thread];
      }
      dz[(wg.z * p.rows + m) * p.zStride4 + target_ * p.rank4 + own] = p.scale * total;
    }
    workgroupBarrier();
  }
}
