// What a kernel is: a shader, its bindings and scalars, and the cases that qualify it against an f64 reference.
// Not a pipeline: compiling is pipeline.ts. Invariant: the reference is the definition; the shader answers to it.

/** A scalar of the uniform block, in struct order. Every scalar takes four bytes, so no padding is needed. */
export type ScalarType = 'u32' | 'f32';

export interface KernelBinding {
  readonly name: string;
  readonly access: 'read' | 'read_write';
}

/**
 * A compute shader. `@group(0) @binding(0)` is `var<uniform> p: Params`, at a dynamic offset; the storage bindings follow
 * from 1 in the order given. The entry point is `main`.
 */
export interface Kernel {
  /** The stem of shaders/<name>.wgsl. */
  readonly name: string;
  /** WGSL to compile in place of that file. Pipelines are found by name, so a text of its own has a name of its own. */
  readonly source?: string;
  readonly bindings: readonly KernelBinding[];
  readonly params: readonly (readonly [name: string, type: ScalarType])[];
  /** Pipeline-overridable constants, with the values used where a dispatch gives none. */
  readonly constants?: Readonly<Record<string, number>>;
  /** What a device must offer beyond WebGPU core; see variant.ts. */
  readonly needs?: 'subgroups-of-8';
}

export type KernelArray = Float32Array<ArrayBuffer> | Uint32Array<ArrayBuffer>;

/** An expected output: values in f64 and the largest error allowed for each. A NaN value means: must stay untouched. */
export interface Expected {
  readonly values: Float64Array;
  readonly bounds: Float64Array;
  /** The output holds two f16 a word, the lower half first: values of an even number. */
  readonly halves?: true;
}

/** One qualification case of a kernel: inputs, grid, and what the f64 reference says. */
export interface KernelCase {
  readonly name: string;
  readonly constants?: Readonly<Record<string, number>>;
  readonly params: Readonly<Record<string, number>>;
  readonly grid: readonly [number, number, number];
  /** Contents of the read bindings, and of read_write bindings that are updated in place. */
  readonly inputs: Readonly<Record<string, KernelArray>>;
  /** Outputs by binding name. f32 outputs that are no input start as NaN; u32 ones as 0xffffffff. */
  readonly expected: Readonly<Record<string, Expected | Uint32Array>>;
}

/** A kernel with its cases, as the registry holds it. */
export interface QualifiedKernel extends Kernel {
  /** Makes the cases; deterministic. */
  readonly cases: () => KernelCase[];
}

/** ceil(n / d). */
export function ceilDiv(n: number, d: number): number {
  return Math.floor((n + d - 1) / d);
}

/** Row stride of a matrix in elements: rows start at a multiple of four, so that kernels can load vec4. */
export function padded(columns: number): number {
  return ceilDiv(columns, 4) * 4;
}

/**
 * Pipeline constants made once a key. Pipelines are found by the identity of their constants first, so a kernel that is
 * dispatched often gives the same object each time.
 */
export function constantsOnce<K extends string | number>() {
  const known = new Map<K, Readonly<Record<string, number>>>();
  return (key: K, make: () => Record<string, number>): Readonly<Record<string, number>> => {
    let constants = known.get(key);
    if (!constants) known.set(key, (constants = make()));
    return constants;
  };
}

const maxGroupsX = 32768;

/**
 * A grid for `groups` workgroups in a row, folded into two dimensions where one would pass 65,535.
 * Shaders recover the index as `wg.y * num_workgroups.x + wg.x` and drop what is past the end.
 */
export function foldedGrid(groups: number): [number, number, number] {
  return groups <= maxGroupsX ? [Math.max(groups, 1), 1, 1] : [maxGroupsX, ceilDiv(groups, maxGroupsX), 1];
}
