// A product of few rows without subgroup matrices: its shader's own text, with the matrices rewritten as sums of f32 that
// 32 lanes hold between them, so that staging, clamped rows, epilogue and guards can be tried on any adapter.
// Not the bits of the hardware, whose units add sixteen products at once, and slow to compile: every product is written
// out. Invariant: only matrix types and calls, the subgroup's number, and where the staged tile lies are changed.
import type { KernelCase, QualifiedKernel } from '../../src/gpu/kernel.ts';
import { loadWgsl } from '../../src/gpu/wgsl-node.ts';

/** Lanes of a subgroup on the devices that the shaders are for. */
const lanes = 32;

/** What takes the place of the matrices. A lane holds quads of outputs, four columns of w each: `lane`, `lane + 32`, ... */
function helpers(columns: number): string {
  const quads = (columns * 16) / 4 / lanes;
  return `struct Matrix {
  base: u32,
  stride: u32,
}
alias Sum = array<vec4<f32>, ${quads}>;
var<private> laneOf32: u32;
var<private> terms: u32;

fn element(held: Matrix, row: u32, k: u32) -> f32 {
  let word = tile[held.base + row * held.stride + k / 8u][k % 8u / 2u];
  return unpack2x16float(word)[k % 2u];
}

fn four(held: Matrix, row: u32, k: u32) -> vec4<f32> {
  return vec4<f32>(
    element(held, row, k),
    element(held, row + 1u, k),
    element(held, row + 2u, k),
    element(held, row + 3u, k));
}

fn product(left: Matrix, right: Matrix, before: Sum) -> Sum {
  var sum = before;
  for (var j = 0u; j < ${quads}u; j++) {
    let q = laneOf32 + ${lanes}u * j;
    for (var k = 0u; k < terms; k++) {
      sum[j] = fma(four(left, q % 4u * 4u, k), vec4<f32>(element(right, q / 4u, k)), sum[j]);
    }
  }
  return sum;
}

fn store(to: u32, sum: Sum, stride: u32) {
  for (var j = 0u; j < ${quads}u; j++) {
    let q = laneOf32 + ${lanes}u * j;
    tile[to + q / 4u * stride + q % 4u] = bitcast<vec4<u32>>(sum[j]);
  }
}
`;
}

/** The shader's text without subgroup matrices. */
function rewritten(text: string): string {
  const columns = Number(/alias Sum = subgroup_matrix_result<f32, (\d+), 16>/.exec(text)![1]);
  return text
    .replace(/^enable .*\n/gm, '')
    .replace(/^diagnostic\(off, chromium.*\n/gm, '')
    .replace(/^alias (?:Left|Right) = .*\n/gm, '')
    .replace(/^alias Sum = .*\n/m, helpers(columns))
    .replace(/ *@builtin\(subgroup_id\) subgroup: u32,\n/, '')
    .replace(/(fn main\([^{]*\) \{\n)/, (main) =>
      [
        main,
        `  laneOf32 = index % ${lanes}u;\n  let subgroup = index / ${lanes}u;\n`,
        // A number that compilers do not know, so that a product's terms stay a loop.
        '  terms = select(16u, 0u, p.rows == 0xffffffffu);\n',
      ].join(''),
    )
    .replace(/subgroupMatrixLoad<(?:Left, row|Right, col)_major>\(&tile, /g, 'Matrix(')
    .replaceAll('subgroupMatrixStore<col_major>(&tile, ', 'store(')
    .replaceAll('subgroupMatrixMultiplyAccumulate(', 'product(');
}

/** The same with its tile in a storage buffer: a part for each workgroup of a one-dimensional grid. */
function inMemory(text: string, quads: number, binding: number): string {
  return text
    .replaceAll('tile[', 'tile[tileFrom + ')
    .replace(
      /var<workgroup> tile: array<vec4<u32>, \d+>;/,
      `@group(0) @binding(${binding}) var<storage, read_write> tile: array<vec4<u32>>;\nvar<private> tileFrom: u32;`,
    )
    .replaceAll('workgroupBarrier();', 'storageBarrier();\n  workgroupBarrier();')
    .replace('laneOf32 = ', `tileFrom = wg.x * ${quads}u;\n  laneOf32 = `);
}

/**
 * A kernel of `matrixFew` under the rewritten text. Where its tile is larger than `workgroupBytes`, it lies in a storage
 * buffer, which every case then brings.
 */
export function emulatedFew(kernel: QualifiedKernel, workgroupBytes: number): QualifiedKernel {
  const text = loadWgsl(`${kernel.name}.wgsl`);
  const quads = Number(/var<workgroup> tile: array<vec4<u32>, (\d+)>/.exec(text)![1]);
  const source = rewritten(text);
  const name = `${kernel.name} emulated`;
  if (quads * 16 + 16 <= workgroupBytes) return { ...kernel, name, source };
  const bindings = [...kernel.bindings, { name: 'tile', access: 'read_write' as const }];
  const withTile = (run: KernelCase): KernelCase => {
    const tile = new Uint32Array(run.grid[0] * quads * 4);
    return { ...run, inputs: { ...run.inputs, tile } };
  };
  return {
    ...kernel,
    name: `${name} in memory`,
    bindings,
    source: inMemory(source, quads, bindings.length),
    cases: () => kernel.cases().map(withTile),
  };
}
