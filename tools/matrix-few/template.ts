// The text of the products of few rows by subgroup matrices: one shader for each tile, from one template, because WGSL
// can neither include nor unroll. The tiles differ in what they load at a time and in who multiplies, never in the order
// of a sum. Output: shaders/matrix-few-*.wgsl.
import { type FewTile, stagesOf } from '../../src/kernels/matrix-few-tiles.ts';
import { plus, subgroupMatrices } from '../shader-text.ts';

/** Columns of W that one matrix holds. */
const block = 16;

/** What a tile's numbers come to. */
function numbersOf(tile: FewTile) {
  const { subgroups, rows, columns, panel, down } = tile;
  const lanes = subgroups * 32;
  const quads = panel / 8;
  /** Rows that all lanes load at a time, eight terms a lane. */
  const atOnce = lanes / quads;
  /** Rows of x that one matrix holds. */
  const side = Math.min(rows, 16);
  const across = columns / block;
  return {
    lanes,
    quads,
    atOnce,
    side,
    across,
    /** Subgroups that multiply. */
    workers: (across * rows) / (side * down),
    /** Quads of a staged row, with eight halves of padding: neighbouring rows start in other banks. */
    stride: quads + 1,
    /** Loads of a lane for a stage: of w and of x. */
    w: columns / atOnce,
    x: Math.ceil(rows / atOnce),
    /** Whether the last load of x reaches past the rows. */
    ragged: rows % atOnce !== 0,
    /** Stages in the text of a round: as many as are loaded ahead, an even number for the two buffers. */
    stages: stagesOf(tile),
    /** Quads of outputs, and how many of them a lane finishes. */
    outputs: (rows * columns) / 4,
    each: Math.ceil((rows * columns) / 4 / lanes),
    /** Subgroups that finish outputs. */
    finishers: Math.min(subgroups, Math.ceil((rows * columns) / 128)),
  };
}

function header(tile: FewTile): string {
  const { rows, columns, panel, ahead } = tile;
  return `// Written by tools/matrix-few; change the template, not this file.
// out[m, n] = (mode 2: out[m, n] +) s[m] * sum_k x[m, k] * w[n, k] + loraScale * sum_r z[m, t(n) * rank + r] * b[r, n]
// for at most ${rows} rows. Operands, order and bits as in matrix-matmul, epilogue as in matrix-matmul-lora. A workgroup
// owns ${rows} x ${columns} outputs and streams its rows of w once, ${panel} of k a stage: all lanes stage, the first subgroups
// multiply. w is the left matrix, so that few rows of x need a narrow right one.
// What keeps loads in flight on NVIDIA's compiler (read from its output): they have no condition, or their results are
// copied, and waited for, at once; so indices are clamped, a row past the last repeats it, and the last round, which
// loads nothing, is written out. The conversion reads its factor from workgroup memory, or it is moved up before the
// barrier and waits there for the stage after this one. Loads for ${ahead} stage${ahead > 1 ? 's are' : ' is'} on the way while as many are multiplied.
// LoRA's term and what stands in out are fetched before the weights, or (LATE) beside them by the subgroups that finish
// alone: which is faster depends on the shape.
${subgroupMatrices}`;
}

function declarations(tile: FewTile): string {
  const { rows, columns, panel } = tile;
  const { quads, side, stride, stages } = numbersOf(tile);
  return `
alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, ${side}, 16>;
alias Sum = subgroup_matrix_result<f32, ${side}, 16>;

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

override ROUNDS: u32 = 1u;  // k / ${panel * stages}
override RANK4: u32 = 0u;  // quads of a target's rank; 0: no LoRA
override LATE: bool = false;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;  // [rows, xStride8] x 8 f16, from xOffset8
@group(0) @binding(2) var<storage, read> scales: array<f32>;  // [rows]
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;  // [columns, ROUNDS * ${quads * stages}] x 8 bf16
@group(0) @binding(4) var<storage, read> z: array<vec4<f32>>;  // [rows, zStride4]: RANK4 quads a target
@group(0) @binding(5) var<storage, read> b: array<vec4<f32>>;  // [4 RANK4, bStride4] from bOffset4: B transposed
@group(0) @binding(6) var<storage, read_write> out: array<vec4<f32>>;  // [rows, outStride4] from outOffset4

var<workgroup> tile: array<vec4<u32>, ${Math.max(2 * (columns + rows) * stride, (rows * columns) / 4)}>;
var<workgroup> factor: f32;

// 1 / x of a power of two, exactly.
fn inverse(power: f32) -> f32 {
  return bitcast<f32>(0x7f000000u - bitcast<u32>(power));
}

fn half2(word: u32, scale: f32) -> u32 {
  let low = bitcast<f32>(word << 16u) * scale;
  let high = bitcast<f32>(word & 0xffff0000u) * scale;
  return pack2x16float(vec2<f32>(low, high));
}

fn halves(v: vec4<u32>, scale: f32) -> vec4<u32> {
  return vec4<u32>(half2(v.x, scale), half2(v.y, scale), half2(v.z, scale), half2(v.w, scale));
}

fn activations(m: u32, at: u32) -> vec4<u32> {
  return x[p.xOffset8 + min(m, p.rows - 1u) * p.xStride8 + at];
}

fn weights(n: u32, at: u32) -> vec4<u32> {
  return w[min(n, p.columns - 1u) * (ROUNDS * ${quads * stages}u) + at];
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

// Quad \`at\` of the workgroup's outputs, row by row: whether it is there.
fn isOutput(at: u32, firstN: u32) -> bool {
  return at / ${columns / 4}u < min(p.rows, ${rows}u) && firstN + at % ${columns / 4}u * 4u < p.columns;
}

// Four outputs from a sum.
fn finish(at: u32, firstN: u32, before: vec4<f32>, delta: vec4<f32>) {
  if (!isOutput(at, firstN)) {
    return;
  }
  let m = at / ${columns / 4}u;
  let n = firstN + (at % ${columns / 4}u) * 4u;
  let to = p.outOffset4 + m * p.outStride4 + n / 4u;
  var value = (bitcast<vec4<f32>>(tile[at]) * scales[m]) * inverse(p.weightScale);
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

/** Where a stage's buffer holds w and x. */
function bases(tile: FewTile, buffer: number) {
  const { stride } = numbersOf(tile);
  return { w: buffer * tile.columns * stride, x: (2 * tile.columns + buffer * tile.rows) * stride };
}

function loads(tile: FewTile, set: number, stage: string, indent: string, word = ''): string[] {
  const { w, x, atOnce, quads } = numbersOf(tile);
  const at = stage === '0u' ? 'column' : `${stage} * ${quads}u + column`;
  const line = (name: string, of: string, i: number) =>
    `${indent}${word}${name}${set}_${i} = ${of}${plus('row', i * atOnce)}, ${at});`;
  return [
    ...Array.from({ length: w }, (_, i) => line('w', 'weights(firstN + ', i)),
    ...Array.from({ length: x }, (_, i) => line('x', 'activations(', i)),
  ];
}

function stores(tile: FewTile, stage: number, indent: string): string[] {
  const set = stage % tile.ahead;
  const { w, x, atOnce, stride, ragged } = numbersOf(tile);
  const base = bases(tile, stage % 2);
  const place = (from: number, i: number) => plus(`(${plus('row', i * atOnce)}) * ${stride}u + column`, from);
  const lines = Array.from(
    { length: w },
    (_, i) => `${indent}tile[${place(base.w, i)}] = halves(w${set}_${i}, scale${stage});`,
  );
  for (let i = 0; i < x; i++) {
    const line = `tile[${place(base.x, i)}] = x${set}_${i};`;
    if (ragged && i === x - 1) {
      lines.push(`${indent}if (${plus('row', i * atOnce)} < ${tile.rows}u) {`, `${indent}  ${line}`, `${indent}}`);
    } else lines.push(indent + line);
  }
  return lines;
}

function multiply(tile: FewTile, buffer: number, indent: string): string[] {
  const { stride, side, across, workers } = numbersOf(tile);
  const base = bases(tile, buffer);
  const [wFrom, xFrom] = [across > 1 ? 'wFrom' : '', workers > across ? 'xFrom' : ''];
  const lines = [`${indent}if (multiplies) {`];
  for (let step = 0; step < tile.panel / 16; step++) {
    const left = `subgroupMatrixLoad<Left, row_major>(&tile, ${plus(wFrom, base.w + 2 * step)}, ${stride}u)`;
    lines.push(`${indent}  let w${step} = ${left};`);
    for (let a = 0; a < tile.down; a++) {
      const from = plus(xFrom, base.x + 2 * step + a * side * stride);
      const right = `subgroupMatrixLoad<Right, col_major>(&tile, ${from}, ${stride}u)`;
      lines.push(`${indent}  acc${a} = subgroupMatrixMultiplyAccumulate(w${step}, ${right}, acc${a});`);
    }
  }
  return [...lines, `${indent}}`];
}

/** The stages of a round; `last`: nothing is loaded that no stage of this round takes. */
function round(tile: FewTile, name: string, last: boolean, indent: string): string[] {
  const { stages } = numbersOf(tile);
  const lines: string[] = [];
  for (let i = 0; i < stages; i++) {
    lines.push(`${indent}let scale${i} = factor;`, ...stores(tile, i, indent), `${indent}workgroupBarrier();`);
    if (!last || i + tile.ahead < stages) {
      lines.push(...loads(tile, i % tile.ahead, `(${name} * ${stages}u + ${i + tile.ahead}u)`, indent));
    }
    lines.push(...multiply(tile, i % 2, indent));
  }
  return lines;
}

function body(tile: FewTile): string {
  const { subgroups, columns, ahead, down } = tile;
  const { lanes, quads, side, across, workers, stride, each, finishers } = numbersOf(tile);
  const place = (i: number) => plus('place', i * lanes);
  const where = [
    across > 1 ? `  let blockN = subgroup % ${across}u;\n  let wFrom = blockN * ${block * stride}u;\n` : '',
    workers > across ? `  let blockM = subgroup / ${across}u;\n  let xFrom = blockM * ${side * down * stride}u;\n` : '',
  ].join('');
  const o: string[] = [];
  o.push(`
@compute @workgroup_size(${lanes})
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
  @builtin(subgroup_id) subgroup: u32,
) {
  let firstN = wg.x * ${columns}u;
  let multiplies = subgroup < ${workers}u;
${where}  let row = index / ${quads}u;
  let column = index % ${quads}u;
  // Outputs are finished by subgroups that do not multiply, as far as there are any.
  let turn = (subgroup + ${subgroups - (workers % subgroups)}u) % ${subgroups}u;
  let place = turn * 32u + index % 32u;`);
  for (let a = 0; a < down; a++) o.push(`  var acc${a}: Sum;`);
  for (let set = 0; set < ahead; set++) o.push(...loads(tile, set, `${set}u`, '  ', 'var '));
  o.push('  if (index == 0u) {\n    factor = p.weightScale;\n  }\n  workgroupBarrier();');
  const own = finishers < subgroups ? `(!LATE || turn < ${finishers}u) && ` : '';
  for (let i = 0; i < each; i++) {
    const [m, n] = [`(${place(i)}) / ${columns / 4}u`, `firstN + (${place(i)}) % ${columns / 4}u * 4u`];
    o.push(`  var before${i} = vec4<f32>(0.0);
  var delta${i} = vec4<f32>(0.0);
  if (${own}isOutput(${place(i)}, firstN)) {
    if (RANK4 > 0u) {
      delta${i} = loraOf(${m}, ${n});
    }
    if (p.mode == 2u) {
      before${i} = out[p.outOffset4 + ${m} * p.outStride4 + (${n}) / 4u];
    }
  }`);
  }
  o.push('  for (var round = 0u; round + 1u < ROUNDS; round++) {', ...round(tile, 'round', false, '    '), '  }');
  o.push('  {', ...round(tile, '(ROUNDS - 1u)', true, '    '), '  }');
  o.push('  workgroupBarrier();', '  if (multiplies) {');
  for (let a = 0; a < down; a++) {
    const parts = [
      workers > across ? `blockM * ${(side * down * columns) / 4}u` : '',
      across > 1 ? `blockN * ${block / 4}u` : '',
    ];
    const to = plus(parts.filter(Boolean).join(' + '), (a * side * columns) / 4);
    o.push(`    subgroupMatrixStore<col_major>(&tile, ${to}, acc${a}, ${columns / 4}u);`);
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
