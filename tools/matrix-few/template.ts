// The text of the products of few rows by subgroup matrices: one shader for each tile, from one template, because WGSL
// can neither include nor unroll. The tiles differ in what they load at a time and in who multiplies, never in the order
// of a sum. Output: shaders/matrix-few-*.wgsl.
import type { FewTile } from '../../src/kernels/matrix-few-tiles.ts';

/** Quads of 8 halves in a staged row, with 8 halves of padding: neighbouring rows start in other banks. */
const strideOf = (tile: FewTile) => tile.panel / 8 + 1;

/** Rows and columns of what the subgroup matrices hold: a tile may fill a part of them. */
const tallOf = (tile: FewTile) => Math.max(tile.rows, 16);
const wideOf = (tile: FewTile) => Math.max(tile.columns, 16);

function header(tile: FewTile): string {
  const { threads, columns, rows, panel, ahead, buffers, turns } = tile;
  const order = tile.panels
    ? `
// w stands in panels (matrix-panels): the ${panel} terms of ${columns} rows next to each other.`
    : '';
  const part =
    rows < 16 || columns < 16
      ? `
// The matrices are 16 x 16: their further rows and columns are whatever stands in the workgroup memory, and are not stored.`
      : '';
  const loads =
    turns > 1
      ? `groups of ${threads / turns} lanes load panels in turn, each ${turns} ahead`
      : `all lanes load, ${ahead} panel${ahead > 1 ? 's' : ''} ahead`;
  return `// Written by tools/matrix-few; change the template, not this file.
// out[m, n] = (mode 2: out[m, n] +) s[m] * sum_k x[m, k] * w[n, k] + loraScale * sum_r z[m, t(n) * rank + r] * b[r, n]
// for at most ${rows} rows. Operands, order and bits as in matrix-matmul, epilogue as in matrix-matmul-lora. A workgroup
// owns ${rows} x ${columns} outputs and streams its rows of w once: ${panel} of k at a time; ${loads},
// ${buffers === 2 ? 'into two buffers, so that one barrier a panel is enough' : 'into one buffer'}. LoRA's term and what stands in out are fetched first, while the weights are on
// their way. Offsets into workgroup memory are literals where they can be, so that their bounds cost nothing.${order}${part}
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
`;
}

function declarations(tile: FewTile): string {
  const { columns, rows, panel, ahead, buffers, turns } = tile;
  const stride = strideOf(tile);
  const round = turns > 1 ? turns : ahead;
  const staged = (buffers * (columns + rows) + tallOf(tile) - rows) * stride;
  return `
alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Sum = subgroup_matrix_result<f32, 16, 16>;

struct Params {
  rows: u32,
  columns: u32,
  xStride8: u32,
  xOffset8: u32,
  outStride4: u32,
  outOffset4: u32,
  mode: u32,
  weightScale: f32,
  zStride4: u32,
  bStride4: u32,
  bOffset4: u32,
  split1: u32,
  split2: u32,
  loraScale: f32,
}

override ROUNDS: u32 = 1u;  // k / ${panel * round}
override RANK4: u32 = 0u;  // quads of a target's rank; 0: no LoRA

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;  // [rows, xStride8] x 8 f16, from xOffset8
@group(0) @binding(2) var<storage, read> scales: array<f32>;  // [rows]
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;  // ${tile.panels ? `[columns / ${columns}, ROUNDS * ${round}, ${columns}, ${panel / 8}]` : `[columns, ROUNDS * ${(panel / 8) * round}]`} x 8 bf16
@group(0) @binding(4) var<storage, read> z: array<vec4<f32>>;  // [rows, zStride4]: RANK4 quads a target
@group(0) @binding(5) var<storage, read> b: array<vec4<f32>>;  // [4 RANK4, bStride4] from bOffset4: B transposed
@group(0) @binding(6) var<storage, read_write> out: array<vec4<f32>>;  // [rows, outStride4] from outOffset4

var<workgroup> tile: array<vec4<u32>, ${Math.max(staged, tallOf(tile) * (wideOf(tile) / 4))}>;

// 1 / x of a power of two, exactly.
fn inverse(power: f32) -> f32 {
  return bitcast<f32>(0x7f000000u - bitcast<u32>(power));
}

fn half2(word: u32) -> u32 {
  let low = bitcast<f32>(word << 16u) * p.weightScale;
  let high = bitcast<f32>(word & 0xffff0000u) * p.weightScale;
  return pack2x16float(vec2<f32>(low, high));
}

fn halves(v: vec4<u32>) -> vec4<u32> {
  return vec4<u32>(half2(v.x), half2(v.y), half2(v.z), half2(v.w));
}

// Eight elements of a row of x; rows past the last are zero and cost no load.
fn activations(m: u32, at: u32) -> vec4<u32> {
  if (m >= p.rows) {
    return vec4<u32>(0u);
  }
  return x[p.xOffset8 + m * p.xStride8 + at];
}

fn weights(n: u32, at: u32) -> vec4<u32> {
  ${weightAt(tile)}
}

// LoRA's sum for four columns of a row, r ascending.
fn loraOf(m: u32, n: u32) -> vec4<f32> {
  let first = select(0u, RANK4, n >= p.split1) + select(0u, RANK4, n >= p.split2);
  let column = p.bOffset4 + n / 4u;
  var delta = vec4<f32>(0.0);
  for (var r = 0u; r < RANK4; r++) {
    let left = z[m * p.zStride4 + first + r];
    delta = fma(vec4<f32>(left.x), b[4u * r * p.bStride4 + column], delta);
    delta = fma(vec4<f32>(left.y), b[(4u * r + 1u) * p.bStride4 + column], delta);
    delta = fma(vec4<f32>(left.z), b[(4u * r + 2u) * p.bStride4 + column], delta);
    delta = fma(vec4<f32>(left.w), b[(4u * r + 3u) * p.bStride4 + column], delta);
  }
  return delta;
}

// What stands in four outputs.
fn standing(m: u32, n: u32) -> vec4<f32> {
  return out[p.outOffset4 + m * p.outStride4 + n / 4u];
}

// Four outputs from a sum: at counts quads of the workgroup's outputs, row by row.
fn finish(at: u32, firstN: u32, before: vec4<f32>, delta: vec4<f32>) {
  let m = at / ${columns / 4}u;
  let n = firstN + (at % ${columns / 4}u) * 4u;
  if (m >= min(p.rows, ${rows}u) || n >= p.columns) {
    return;
  }
  let to = p.outOffset4 + m * p.outStride4 + n / 4u;
  var value = (bitcast<vec4<f32>>(tile[${columns < 16 ? `at / ${columns / 4}u * 4u + at % ${columns / 4}u` : 'at'}]) * scales[m]) * inverse(p.weightScale);
  if (p.mode == 2u) {
    value = value + before;
  }
  if (RANK4 > 0u) {
    value = fma(vec4<f32>(p.loraScale), delta, value);
  }
  if (n + 4u > p.columns) {
    value = select(out[to], value, vec4<u32>(n) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(p.columns));
  }
  out[to] = value;
}
`;
}

/** The load of eight weights of a row. */
function weightAt({ columns, panel, ahead, turns, panels }: FewTile): string {
  const round = turns > 1 ? turns : ahead;
  const quads = panel / 8;
  if (!panels) return `return w[min(n, p.columns - 1u) * (ROUNDS * ${quads * round}u) + at];`;
  return `let panel = n / ${columns}u * (ROUNDS * ${round}u) + at / ${quads}u;
  return w[(panel * ${columns}u + n % ${columns}u) * ${quads}u + at % ${quads}u];`;
}

/** Registers that one lane loads of a panel: of w and of x. */
function lanesOf(tile: FewTile) {
  const group = tile.threads / tile.turns;
  const quads = tile.panel / 8;
  const perPass = group / quads;
  return {
    group,
    quads,
    perPass,
    w: tile.columns / perPass,
    x: Math.ceil(tile.rows / perPass),
    /** Whether the last pass over the rows of x reaches past them. */
    ragged: tile.rows % perPass !== 0,
  };
}

function loads(tile: FewTile, set: number, panel: string, indent: string, declare = false): string {
  const lanes = lanesOf(tile);
  const word = declare ? 'var ' : '';
  const row = (i: number) => (i === 0 ? 'row' : `row + ${i * lanes.perPass}u`);
  const at = panel === '0u' ? 'column' : `${panel} * ${lanes.quads}u + column`;
  return [
    ...Array.from({ length: lanes.w }, (_, i) => `${indent}${word}w${set}_${i} = weights(firstN + ${row(i)}, ${at});`),
    ...Array.from({ length: lanes.x }, (_, i) => `${indent}${word}x${set}_${i} = activations(${row(i)}, ${at});`),
  ].join('\n');
}

function stores(tile: FewTile, set: number, buffer: number, indent: string): string {
  const lanes = lanesOf(tile);
  const stride = strideOf(tile);
  const { wBase, xBase } = bases(tile, buffer);
  const at = (base: number, i: number) =>
    `${base}u + (row + ${i * lanes.perPass}u) * ${stride}u + column`.replace(/ \+ 0u|^0u \+ /g, '');
  const lines: string[] = [];
  for (let i = 0; i < lanes.w; i++) lines.push(`${indent}tile[${at(wBase, i)}] = halves(w${set}_${i});`);
  for (let i = 0; i < lanes.x; i++) {
    const line = `tile[${at(xBase, i)}] = x${set}_${i};`;
    if (lanes.ragged && i === lanes.x - 1) {
      lines.push(
        `${indent}if (row + ${i * lanes.perPass}u < ${tile.rows}u) {`.replace(' + 0u', ''),
        `${indent}  ${line}`,
        `${indent}}`,
      );
    } else lines.push(indent + line);
  }
  return lines.join('\n');
}

function bases(tile: FewTile, buffer: number) {
  const stride = strideOf(tile);
  return { wBase: buffer * tile.columns * stride, xBase: (tile.buffers * tile.columns + buffer * tile.rows) * stride };
}

function multiply(tile: FewTile, buffer: number, indent: string): string {
  const stride = strideOf(tile);
  const { wBase, xBase } = bases(tile, buffer);
  const lines = [`${indent}if (multiplies) {`];
  for (let step = 0; step < tile.panel / 16; step++) {
    const right = `subgroupMatrixLoad<Right, col_major>(&tile, ${wBase + 2 * step}u + wFrom, ${stride}u)`;
    lines.push(`${indent}  let w${step} = ${right};`);
    for (let a = 0; a < tile.blocks; a++) {
      const from = `${xBase + 2 * step + 16 * a * stride}u + xFrom`;
      const left = `subgroupMatrixLoad<Left, row_major>(&tile, ${from}, ${stride}u)`;
      lines.push(`${indent}  acc${a} = subgroupMatrixMultiplyAccumulate(${left}, w${step}, acc${a});`);
    }
  }
  return [...lines, `${indent}}`].join('\n');
}

function body(tile: FewTile): string {
  const { threads, columns, rows, ahead, buffers, turns, blocks } = tile;
  const lanes = lanesOf(tile);
  const stride = strideOf(tile);
  const acrossN = wideOf(tile) / 16;
  const acrossM = tallOf(tile) / 16 / blocks;
  const workers = acrossN * acrossM;
  const quads = rows * (columns / 4);
  const outStride = wideOf(tile) / 4;
  const o: string[] = [];
  o.push(`
@compute @workgroup_size(${threads})
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
  @builtin(subgroup_id) subgroup: u32,
) {
  // Who multiplies changes from workgroup to workgroup, so that neighbours use different parts of a processor.
  let turn = (subgroup + wg.x * ${workers}u) & ${threads / 32 - 1}u;
  let multiplies = turn < ${workers}u;
  let blockN = turn % ${acrossN}u;
  let blockM = turn / ${acrossN}u % ${acrossM}u * ${blocks}u;
  let wFrom = blockN * ${16 * stride}u;
  let xFrom = blockM * ${16 * stride}u;
  let firstN = wg.x * ${columns}u;`);
  if (turns > 1) o.push(`  let group = index / ${lanes.group}u;\n  let thread = index % ${lanes.group}u;`);
  else o.push('  let thread = index;');
  o.push(`  let row = thread / ${lanes.quads}u;\n  let column = thread % ${lanes.quads}u;`);
  for (let a = 0; a < blocks; a++) o.push(`  var acc${a}: Sum;`);
  const sets = turns > 1 ? 1 : ahead;
  for (let s = 0; s < sets; s++) o.push(loads(tile, s, turns > 1 ? 'group' : `${s}u`, '  ', true));
  const each = Math.ceil(quads / threads);
  const place = (i: number) => (i === 0 ? 'index' : `index + ${i * threads}u`);
  for (let i = 0; i < each; i++) {
    const m = `(${place(i)}) / ${columns / 4}u`.replace(/^\(index\)/, 'index');
    const n = `firstN + (${place(i)}) % ${columns / 4}u * 4u`.replace('(index)', 'index');
    o.push(`  var before${i} = vec4<f32>(0.0);
  var delta${i} = vec4<f32>(0.0);
  if (${m} < min(p.rows, ${rows}u) && ${n} < p.columns) {
    if (RANK4 > 0u) {
      delta${i} = loraOf(${m}, ${n});
    }
    if (p.mode == 2u) {
      before${i} = standing(${m}, ${n});
    }
  }`);
  }
  o.push('  for (var round = 0u; round < ROUNDS; round++) {');
  const inRound = turns > 1 ? turns : ahead;
  for (let i = 0; i < inRound; i++) {
    const buffer = i % buffers;
    const next = (indent: string, set: number) =>
      `${indent}if (round + 1u < ROUNDS) {\n${loads(tile, set, `(round * ${inRound}u + ${inRound + i}u)`, `${indent}  `)}\n${indent}}`;
    if (turns > 1) {
      o.push(
        `    if (group == ${i}u) {\n${stores(tile, 0, buffer, '      ')}\n${next('      ', 0)}\n    }`,
        '    workgroupBarrier();',
      );
    } else {
      if (buffers === 1) o.push('    workgroupBarrier();');
      o.push(stores(tile, i, buffer, '    '), '    workgroupBarrier();', next('    ', i));
    }
    o.push(multiply(tile, buffer, '    '));
  }
  o.push('  }', '  workgroupBarrier();', '  if (multiplies) {');
  for (let a = 0; a < blocks; a++) {
    const offset = `(blockM + ${a}u) * ${16 * outStride}u + blockN * 4u`.replace(' + 0u)', ')');
    o.push(`    subgroupMatrixStore<row_major>(&tile, ${offset}, acc${a}, ${outStride}u);`);
  }
  o.push('  }\n  workgroupBarrier();');
  for (let i = 0; i < each; i++) o.push(`  finish(${place(i)}, firstN, before${i}, delta${i});`);
  o.push('}\n');
  return o.join('\n');
}

/** The shader of a tile. */
export function fewShader(tile: FewTile): string {
  return header(tile) + declarations(tile) + body(tile);
}
