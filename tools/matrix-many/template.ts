// The text of the products of many rows by subgroup matrices: matrix-matmul, its form with LoRA, and the wide form of
// that, from one template, because WGSL can neither include nor unroll and the driver keeps arrays of matrices in memory.
// The forms differ in tile and epilogue, never in the order of a sum. Output: shaders/matrix-matmul{,-lora,-lora-wide}.wgsl.
import { each, plus, subgroupMatrices } from '../shader-text.ts';
import { loraEpilogue, plainEpilogue, wideFinish } from './epilogue.ts';
import { formHeader, formNames, type ManyForm } from './header.ts';

const declarations = `${subgroupMatrices}
alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Sum = subgroup_matrix_result<f32, 16, 16>;

`;

function params(form: ManyForm): string {
  const names = ['rows', 'columns', 'xStride8', 'xOffset8', 'outStride4', 'outOffset4', 'mode'];
  const lora = ['zStride4', 'bStride4', 'bOffset4', 'split1', 'split2'];
  const field = (type: string) => (name: string) => `  ${name}: ${type},\n`;
  const u32 = names.map(field('u32')).join('');
  const rest = form === 'plain' ? field('f32')('scale') : lora.map(field('u32')).join('') + field('f32')('loraScale');
  return `struct Params {\n${u32}${field('f32')('weightScale')}${rest}}\n\n`;
}

function bindings(form: ManyForm): string {
  const wide = form === 'wide';
  const [subgroups, panel] = wide ? [8, 64] : [4, 32];
  const lora = form !== 'plain';
  const rank = lora ? "override RANK4: u32 = 0u;  // quads of a target's rank; 0: no LoRA\n" : '';
  const xRows = wide ? 'rows' : 'rows to a multiple of 128';
  const operands = lora
    ? `@group(0) @binding(4) var<storage, read> z: array<vec4<f32>>;  // [rows, zStride4]: RANK4 quads a target
@group(0) @binding(5) var<storage, read> b: array<vec4<f32>>;  // [RANK4 * 4, bStride4] from bOffset4
`
    : '';
  const memory = wide
    ? `// Rows of x by the subgroups that multiply them, and rows of w; after, the subgroups' sums: 16 rows of 32 columns each.
var<workgroup> tileX: array<array<vec4<u32>, 432>, 4>;
var<workgroup> tileW: array<array<vec4<u32>, 576>, 2>;
`
    : `// Two halves of the rows of x, two of the rows of w; before and after, a subgroup's sums each.
var<workgroup> tile: array<array<vec4<u32>, 320>, 4>;
`;
  return `override SUBS: u32 = ${subgroups}u;  // subgroups that multiply: all
override PANELS: u32 = 1u;  // k / ${panel}
${rank}
const STRIDE8 = ${panel / 8 + 1}u;  // of a staged row of x and w: ${panel} elements and 8 of padding

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;  // [${xRows}, xStride8] from xOffset8
@group(0) @binding(2) var<storage, read> scales: array<f32>;  // [rows]
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;  // [columns, PANELS * ${panel / 8}] x 8 bf16
${operands}@group(0) @binding(${lora ? 6 : 4}) var<storage, read_write> out: array<vec4<f32>>;  // [rows, outStride4] from outOffset4

${memory}
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

`;
}

/** A step of 16 along k: `down` matrices of x's rows by four of w's. `at`: quads from a row's start; `s` goes into names. */
function step(down: number, apart: number, at: number, [x, w]: [string, string], s: string, indent: string): string {
  const load = (type: string, order: string, from: string, i: number) =>
    `subgroupMatrixLoad<${type}, ${order}>(&${from}, ${i * apart + at}u, STRIDE8)`;
  const left = each(down, (i) => `${indent}let a${s}${i} = ${load('Left', 'row_major', x, i)};`);
  const right = each(4, (j) => {
    const products = each(down, (i) => {
      const sum = `acc${4 * i + j}`;
      return `${indent}${sum} = subgroupMatrixMultiplyAccumulate(a${s}${i}, b${s}${j}, ${sum});`;
    });
    return `${indent}let b${s}${j} = ${load('Right', 'col_major', w, j)};\n${products}`;
  });
  return `${left}\n${right}\n`;
}

const entry = (threads: number) => `@compute @workgroup_size(${threads})
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
  @builtin(subgroup_id) subgroup: u32,
  @builtin(subgroup_invocation_id) lane: u32,
) {
`;

/** 128 x 128: four subgroups of 4 x 4 matrices, 32 of k a panel, the next one's loads between the panel's two steps. */
function tallMain(form: ManyForm): string {
  const lora = form === 'lora';
  const fetch = (column: string, word: string, indent: string) =>
    `${each(4, (i) => `${indent}${word}x${i} = x[p.xOffset8 + (firstM + ${plus('row', 32 * i)}) * p.xStride8 + ${column}];`)}
${each(4, (i) => `${indent}${word}w${i} = w[min(firstN + ${plus('row', 32 * i)}, p.columns - 1u) * (PANELS * 4u) + ${column}];`)}
`;
  const place = (i: number) => (i % 2 === 0 ? 'row * STRIDE8' : '(row + 32u) * STRIDE8');
  const stage = `${each(4, (i) => `    tile[${i >> 1}u][${place(i)} + column] = x${i};`)}
${each(4, (i) => `    tile[${2 + (i >> 1)}u][${place(i)} + column] = halves(w${i});`)}
    workgroupBarrier();
`;
  const operands: [string, string] = ['tile[left]', 'tile[right]'];
  const braced = (at: number) => `      {\n${step(4, 80, at, operands, '', '        ')}      }\n`;
  const multiply = (...ats: number[]) => `    if (multiplies) {\n${ats.map(braced).join('')}    }\n`;
  const column = lora ? '  let n = firstN + subN + (lane % 16u) * 4u;\n' : '';
  const begin = lora
    ? ''
    : `  if (p.mode == 1u) {
${each(4, (i) => {
  const rows = plus('firstM + subM', 16 * i);
  const between = i === 0 ? '' : '    workgroupBarrier();\n';
  const loads = each(4, (j) => `    acc${4 * i + j} = subgroupMatrixLoad<Sum, row_major>(&tile[own], ${4 * j}u, 16u);`);
  return `${between}    for (var e = 0u; e < 8u; e++) {
      let at = e * 32u + lane;
      tile[own][at] = start(${rows} + at / 16u, firstN + subN + (at % 16u) * 4u);
    }
    workgroupBarrier();
${loads}`;
})}
    workgroupBarrier();
  }
`;
  const end = each(4, (i) => {
    const stores = each(4, (j) => `  subgroupMatrixStore<row_major>(&tile[own], ${4 * j}u, acc${4 * i + j}, 16u);`);
    const rows = plus('firstM + subM', 16 * i);
    const finish = `  finish(${rows}, ${lora ? 'n' : 'firstN + subN'}, own, lane, whole);`;
    return `${i === 0 ? '' : '  workgroupBarrier();\n'}${stores}\n  workgroupBarrier();\n${finish}`;
  });
  return `${entry(128)}  let firstM = wg.y * 128u;
  let firstN = wg.x * 128u;
  let own = subgroup & 3u;
  let left = own / 2u;
  let right = 2u + own % 2u;
  let subM = left * 64u;
  let subN = (own % 2u) * 64u;
${column}  let multiplies = subgroup < SUBS;
${each(16, (i) => `  var acc${i}: Sum;`)}
${begin}  // A store of eight lanes holds two rows: four apart, or they would meet in a bank.
  let quad = thread / 4u;
  let row = (quad & 24u) + (quad & 1u) * 4u + (quad >> 1u) % 4u;
  let column = thread % 4u;
${fetch('column', 'var ', '  ')}  for (var panel = 0u; panel + 1u < PANELS; panel++) {
${stage}${multiply(0)}    let ahead = (panel + 1u) * 4u + column;
${fetch('ahead', '', '    ')}${multiply(2)}    workgroupBarrier();
  }
  {
${stage}${multiply(0, 2)}    workgroupBarrier();
  }
  let whole = firstM + 128u <= p.rows && firstN + 128u <= p.columns;
${end}
}
`;
}

/** 192 x 128: eight subgroups of 3 x 4 matrices, 64 of k a panel, the next one's loads before the products. */
function wideMain(): string {
  const at = (name: string, i: number) => `${name}${i}`;
  const all = (line: (name: 'x' | 'w', i: number) => string, indent: string) =>
    `${each(6, (i) => indent + line('x', i))}\n${each(4, (i) => indent + line('w', i))}\n`;
  const from = (name: string, i: number) => `from${name.toUpperCase()}${i}`;
  const stage = `${each(6, (i) => `    stage(${plus('row', 32 * i)}, column, x${i});`)}
${each(4, (i) => `    tileW[${i >> 1}u][${i % 2 === 0 ? 'row' : '(row + 32u)'} * STRIDE8 + column] = halves(w${i});`)}
    workgroupBarrier();
`;
  const steps = Array.from({ length: 4 }, (_, s) =>
    step(3, 144, 2 * s, ['tileX[left]', 'tileW[right]'], `${s}`, '      '),
  );
  const multiply = `    if (multiplies) {\n${steps.join('')}    }\n`;
  const end = each(6, (i) => {
    const rows = plus('subM', 16 * (i >> 1));
    const stores = each(2, (j) => {
      const to = plus('base', 4 * j);
      return `  subgroupMatrixStore<row_major>(&tileX[left], ${to}, acc${2 * i + j}, 8u);`;
    });
    return `  workgroupBarrier();
${stores}
  workgroupBarrier(); finish(${rows}, ${plus('subN', 32 * (i % 2))}, left, base, lane);`;
  });
  return `${entry(256)}  let firstM = wg.y * 192u;
  let firstN = wg.x * 128u;
  let left = (subgroup / 2u) & 3u;
  let right = subgroup & 1u;
  let multiplies = subgroup < SUBS;
${each(3, (i) => `  ${Array.from({ length: 4 }, (_, j) => `var acc${4 * i + j}: Sum;`).join(' ')}`)}
  let row = thread / 8u;
  let column = thread % 8u;
${each(6, (i) => `  let fromX${i} = p.xOffset8 + min(firstM + ${plus('row', 32 * i)}, p.rows - 1u) * p.xStride8 + column;`)}
${each(4, (i) => `  let fromW${i} = min(firstN + ${plus('row', 32 * i)}, p.columns - 1u) * (PANELS * 8u) + column;`)}
${all((name, i) => `var ${at(name, i)} = ${name}[${from(name, i)}];`, '  ')}  for (var panel = 0u; panel + 1u < PANELS; panel++) {
${stage}    let ahead = (panel + 1u) * 8u;
${all((name, i) => `${at(name, i)} = ${name}[${from(name, i)} + ahead];`, '    ')}${multiply}    workgroupBarrier();
  }
  {
${stage}${multiply}  }
  let subM = firstM + left * 48u;
  let subN = firstN + right * 64u;
  let base = right * 128u;
${end}
}
`;
}

/** The shader of a form. */
export function manyShader(form: ManyForm): string {
  const epilogue = form === 'plain' ? plainEpilogue() : form === 'lora' ? loraEpilogue() : wideFinish();
  const main = form === 'wide' ? wideMain() : tallMain(form);
  return formHeader[form] + declarations + params(form) + bindings(form) + epilogue + main;
}

/** The shaders by file name. */
export const manyShaders: ReadonlyMap<string, string> = new Map(
  (Object.keys(formNames) as ManyForm[]).map((form) => [formNames[form], manyShader(form)]),
);
