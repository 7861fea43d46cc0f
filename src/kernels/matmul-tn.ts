// out[i, j] = sum_m a[m, i] * b[m, j]: the gradients of LoRA's A and B over the tokens of a micro-batch.
// Invariant: one accumulator an output, tokens in batch order.

import type { View } from '../gpu/buffers.ts';
import { ceilDiv, type KernelCase, padded, type QualifiedKernel } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { testValues, withStride } from './case-data.ts';
import { matmulMode, matmulReference } from './matmul.ts';

/** Grid of `matmul-tn`: a thread owns 4 x 4 outputs; 64 threads of four j in x, four i in y. */
export function matmulTnGrid(iCount: number, jCount: number): [number, number, number] {
  return [ceilDiv(jCount, 256), ceilDiv(iCount, 4), 1];
}

function makeCase(rows: number, iCount: number, jCount: number, mode: number): KernelCase {
  const a = testValues(rows * iCount, 61);
  const b = testValues(rows * jCount, 62);
  const left = new Float32Array(iCount * rows);
  const right = new Float32Array(jCount * rows);
  for (let m = 0; m < rows; m++) {
    for (let i = 0; i < iCount; i++) left[i * rows + m] = a[m * iCount + i]!;
    for (let j = 0; j < jCount; j++) right[j * rows + m] = b[m * jCount + j]!;
  }
  const initial = mode === matmulMode.overwrite ? null : testValues(iCount * jCount, 63);
  const shape = { rows: iCount, columns: jCount, k: rows, mode, scale: 1.5 };
  return {
    name: `${iCount}x${jCount} over ${rows} mode ${mode}`,
    params: {
      rows,
      iCount,
      jCount,
      aStride4: padded(iCount) / 4,
      aOffset4: 0,
      bStride4: padded(jCount) / 4,
      bOffset4: 0,
      outStride: jCount,
      outOffset: 0,
      mode,
      scale: 1.5,
    },
    grid: matmulTnGrid(iCount, jCount),
    inputs: {
      a: withStride(a, rows, iCount, padded(iCount)),
      b: withStride(b, rows, jCount, padded(jCount)),
      ...(initial ? { out: initial } : {}),
    },
    expected: { out: matmulReference(left, right, initial, shape) },
  };
}

export const matmulTn: QualifiedKernel = {
  name: 'matmul-tn',
  bindings: [
    { name: 'a', access: 'read' },
    { name: 'b', access: 'read' },
    { name: 'out', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['iCount', 'u32'],
    ['jCount', 'u32'],
    ['aStride4', 'u32'],
    ['aOffset4', 'u32'],
    ['bStride4', 'u32'],
    ['bOffset4', 'u32'],
    ['outStride', 'u32'],
    ['outOffset', 'u32'],
    ['mode', 'u32'],
    ['scale', 'f32'],
  ],
  cases: () => [makeCase(1, 1, 1, 0), makeCase(65, 16, 63, 0), makeCase(130, 5, 257, 0), makeCase(300, 33, 9, 2)],
};

function lanesGrid(iCount: number, jCount: number): [number, number, number] {
  return [ceilDiv(jCount, 32), ceilDiv(iCount, 8), 1];
}

const overwriting = { MODE: matmulMode.overwrite };
const adding = { MODE: matmulMode.add };

function tiledGrid(iCount: number, jCount: number): [number, number, number] {
  return [ceilDiv(jCount, 64), ceilDiv(iCount, 16), 1];
}

/** A case of `matmul-tn` for another form, as it stands or with the roles of i and j swapped. */
function formCase(run: KernelCase, swapped: boolean, gridOf: typeof lanesGrid): KernelCase {
  const params = stridedParams(run.params as unknown as MatmulTnParams, swapped);
  const { a, b, ...rest } = run.inputs;
  return {
    ...run,
    name: `${run.name}${swapped ? ' swapped' : ''}`,
    params,
    grid: gridOf(params.iCount, params.jCount),
    inputs: { ...rest, a: (swapped ? b : a)!, b: (swapped ? a : b)! },
  };
}

/** Every case of `matmul-tn` in both roles. */
function bothWays(gridOf: typeof lanesGrid): KernelCase[] {
  return matmulTn.cases().flatMap((run) => [formCase(run, false, gridOf), formCase(run, true, gridOf)]);
}

/** The scalars of the forms whose output has a stride for each index. */
const stridedScalars: QualifiedKernel['params'] = [
  ['rows', 'u32'],
  ['iCount', 'u32'],
  ['jCount', 'u32'],
  ['aStride4', 'u32'],
  ['aOffset4', 'u32'],
  ['bStride4', 'u32'],
  ['bOffset4', 'u32'],
  ['iStride', 'u32'],
  ['jStride', 'u32'],
  ['outOffset', 'u32'],
  ['mode', 'u32'],
  ['scale', 'f32'],
];

/** The same product for software adapters: lanes of a subgroup share their loads of a. */
export const matmulTnLanes: QualifiedKernel = {
  ...matmulTn,
  name: 'matmul-tn-lanes',
  params: stridedScalars,
  constants: { MODE: 0 },
  needs: 'subgroups-of-8',
  cases: () =>
    bothWays(lanesGrid).map((run) => ({
      ...run,
      constants: run.params['mode'] === matmulMode.overwrite ? overwriting : adding,
    })),
};

/** The same product for GPUs: tokens a panel at a time through workgroup memory. */
export const matmulTnTiled: QualifiedKernel = {
  ...matmulTn,
  name: 'matmul-tn-tiled',
  params: stridedScalars,
  cases: () => bothWays(tiledGrid),
};

/** The scalars of `matmul-tn`. */
export interface MatmulTnParams {
  rows: number;
  iCount: number;
  jCount: number;
  aStride4: number;
  aOffset4: number;
  bStride4: number;
  bOffset4: number;
  outStride: number;
  outOffset: number;
  mode: number;
  scale: number;
}

function stridedParams(params: MatmulTnParams, swapped: boolean) {
  const { rows, iCount, jCount, aStride4, aOffset4, bStride4, bOffset4, outStride, outOffset, mode, scale } = params;
  const shared = { rows, outOffset, mode, scale };
  if (!swapped) {
    return { ...shared, iCount, jCount, aStride4, aOffset4, bStride4, bOffset4, iStride: outStride, jStride: 1 };
  }
  return {
    ...shared,
    iCount: jCount,
    jCount: iCount,
    aStride4: bStride4,
    aOffset4: bOffset4,
    bStride4: aStride4,
    bOffset4: aOffset4,
    iStride: 1,
    jStride: outStride,
  };
}

/** Records a product in the form that suits the device; the bits are the same in all. views: a, b, out. */
export function recordMatmulTn(
  r: Recorder,
  views: readonly [View, View, View],
  params: MatmulTnParams & Record<string, number>,
): void {
  const { iCount, jCount } = params;
  if (r.variant === 'plain') {
    r.dispatch(matmulTn, views, params, matmulTnGrid(iCount, jCount));
    return;
  }
  // The longer side goes along the lanes.
  const swapped = jCount < iCount;
  const [a, b, out] = views;
  const ordered = swapped ? [b, a, out] : views;
  const strided = stridedParams(params, swapped);
  if (r.variant === 'tiles') {
    r.dispatch(matmulTnTiled, ordered, strided, tiledGrid(strided.iCount, strided.jCount));
    return;
  }
  const constants = params.mode === matmulMode.overwrite ? overwriting : adding;
  r.dispatch(matmulTnLanes, ordered, strided, lanesGrid(strided.iCount, strided.jCount), constants);
}
