// The epilogues of the products of many rows: what a sum comes to, and its way to out.
// Not the sums. Invariant: the operations on an output are those of matrix-matmul and matrix-matmul-lora, as their heads
// have them, whatever the tile.
import { each, plus } from '../shader-text.ts';

const put = (lora: boolean) => `// Four sums to out. Columns past the last stay as they are.
fn put(m: u32, n: u32, sum: vec4<u32>${lora ? ', delta: vec4<f32>' : ''}) {
  if (m >= p.rows || n >= p.columns) {
    return;
  }
  let at = p.outOffset4 + m * p.outStride4 + n / 4u;
  var value = result(at, sum, scales[m]${lora ? ', delta' : ''});
  if (n + 4u > p.columns) {
    value = select(out[at], value, vec4<u32>(n) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(p.columns));
  }
  out[at] = value;
}

`;

const loraResult = `// What a sum comes to.
fn result(at: u32, sum: vec4<u32>, scale: f32, delta: vec4<f32>) -> vec4<f32> {
  var value = (bitcast<vec4<f32>>(sum) * scale) * inverse(p.weightScale);
  if (p.mode == 2u) {
    value = value + out[at];
  }
  if (RANK4 > 0u) {
    value = fma(vec4<f32>(p.loraScale), delta, value);
  }
  return value;
}

`;

const add4 = `// Four of the rank, ascending, for four columns.
fn add4(left: vec4<f32>, b0: vec4<f32>, b1: vec4<f32>, b2: vec4<f32>, b3: vec4<f32>, sum: vec4<f32>) -> vec4<f32> {
  var delta = fma(vec4<f32>(left.x), b0, sum);
  delta = fma(vec4<f32>(left.y), b1, delta);
  delta = fma(vec4<f32>(left.z), b2, delta);
  return fma(vec4<f32>(left.w), b3, delta);
}

`;

/** The LoRA terms of `rows` quads of a thread, `apart` rows apart. */
const deltas = (rows: number, apart: number) => `  let last = p.rows - 1u;
  let column = p.bOffset4 + min(n, p.columns - 1u) / 4u;
  let z4 = select(0u, RANK4, n >= p.split1) + select(0u, RANK4, n >= p.split2);
  for (var quad = 0u; quad < RANK4; quad++) {
    let b0 = b[quad * 4u * p.bStride4 + column];
${each(3, (i) => `    let b${i + 1} = b[(quad * 4u + ${i + 1}u) * p.bStride4 + column];`)}
${each(rows, (i) => {
  const z = `z[min(${plus('m', apart * i)}, last) * p.zStride4 + z4 + quad]`;
  return `    delta${i} = add4(${z}, b0, b1, b2, b3, delta${i});`;
})}
  }
`;

/** A thread's quads of sums, and their way to out, with every condition or with none. */
function quads(rows: number, apart: number, memory: string, lora: boolean) {
  const sum = (i: number) => `${memory}${i === 0 ? '' : ` + ${32 * i}u`}]`;
  const at = (i: number) => (i === 0 ? 'at' : `at + ${apart * i}u * p.outStride4`);
  const more = (i: number) => (lora ? `, delta${i}` : '');
  return {
    put: (indent: string) => each(rows, (i) => `${indent}put(${plus('m', apart * i)}, n, ${sum(i)}${more(i)});`),
    scale: (i: number) => `let s${i} = scales[${plus('m', apart * i)}];`,
    whole: (indent: string) => `${indent}let at = p.outOffset4 + m * p.outStride4 + n / 4u;
${each(rows, (i) => `${indent}let r${i} = result(${at(i)}, ${sum(i)}, s${i}${more(i)});`)}
${each(rows, (i) => `${indent}out[${at(i)}] = r${i};`)}
`,
  };
}

/** Sixteen rows by 64 columns of a subgroup in the 128 x 128 forms. */
function tallFinish(lora: boolean): string {
  const own = quads(8, 2, 'tile[own][lane', lora);
  const zero = each(8, (i) => `  var delta${i} = vec4<f32>(0.0);`);
  const conditions = lora
    ? own.put('    ')
    : `    for (var e = 0u; e < 8u; e++) {
      put(m + e * 2u, n, tile[own][e * 32u + lane]);
    }`;
  const about = lora
    ? `// Sixteen rows by 64 columns of a subgroup, from its part of the workgroup memory: eight rows' quads a thread. \`whole\`:
// all of the tile is outputs, and no condition stands between the loads of the rows' scales.
fn finish(firstM: u32, n: u32, own: u32, lane: u32, whole: bool) {
  let m = firstM + lane / 16u;
${zero}
${deltas(8, 2)}`
    : `// Sixteen rows by 64 columns of a subgroup, from its part of the workgroup memory. \`whole\`: all of the tile is outputs,
// and no condition stands between the loads of the rows' scales.
fn finish(firstM: u32, firstN: u32, own: u32, lane: u32, whole: bool) {
  let m = firstM + lane / 16u;
  let n = firstN + (lane % 16u) * 4u;
`;
  return `${about}  if (!whole) {
${conditions}
    return;
  }
${each(8, (i) => `  ${own.scale(i)}`)}
${own.whole('  ')}}

`;
}

export function plainEpilogue(): string {
  return `// Mode 1: four outputs as they stand, in the accumulator's units; zero outside.
fn start(m: u32, n: u32) -> vec4<u32> {
  if (m >= p.rows || n >= p.columns) {
    return vec4<u32>(0u);
  }
  let found = out[p.outOffset4 + m * p.outStride4 + n / 4u] * p.weightScale;
  return bitcast<vec4<u32>>(found * inverse(scales[m]));
}

// What a sum comes to, by the mode.
fn result(at: u32, sum: vec4<u32>, scale: f32) -> vec4<f32> {
  let value = (bitcast<vec4<f32>>(sum) * scale) * inverse(p.weightScale);
  if (p.mode == 0u) {
    return p.scale * value;
  }
  if (p.mode == 2u) {
    return fma(vec4<f32>(p.scale), value, out[at]);
  }
  return value;
}

${put(false)}${tallFinish(false)}`;
}

export function loraEpilogue(): string {
  return loraResult + put(true) + add4 + tallFinish(true);
}

/** Sixteen rows by 32 columns of a subgroup in the wide form. */
export function wideFinish(): string {
  const own = quads(4, 4, 'tileX[part][base + lane', true);
  const pairs = (line: (i: number) => string, indent: string) =>
    each(2, (i) => `${indent}${line(2 * i)} ${line(2 * i + 1)}`);
  return `${loraResult}${put(true)}${add4}// Eight halves of a row of x to the part of the subgroups that multiply the row.
fn stage(row: u32, column: u32, value: vec4<u32>) {
  tileX[row / 48u][(row % 48u) * STRIDE8 + column] = value;
}

// Sixteen rows by 32 columns of a subgroup, from its part of the workgroup memory: four rows' quads a thread.
fn finish(firstM: u32, firstN: u32, part: u32, base: u32, lane: u32) {
  let m = firstM + lane / 8u;
  let n = firstN + (lane % 8u) * 4u;
${pairs((i) => `var delta${i} = vec4<f32>(0.0);`, '  ')}
${deltas(4, 4)}  if (firstM + 16u <= p.rows && firstN + 32u <= p.columns) {
${pairs(own.scale, '    ')}
${own.whole('    ')}    return;
  }
${own.put('  ')}
}

`;
}
