// Compares two runs of one plan byte for byte: adapter, AdamW moments, schedule and RNG state, rollout evidence.
// Not a tolerance. Invariant: equal means every compared byte is equal; the first difference of each file is named with
// tensor, index and both values. What differs between equal runs by nature (times, the run's name) has no part in it.
import { type CheckpointState, comparableState } from '../checkpoint-state.ts';
import { withoutTimings } from '../journal-events.ts';
import { memorySource } from '../model/file-source.ts';
import { elementCount, openSafetensors, readTensor } from '../model/safetensors.ts';

/** What a branch of the qualification leaves behind. */
export interface Branch {
  name: string;
  files: {
    'adapter_model.safetensors': Uint8Array;
    'optimizer.safetensors': Uint8Array;
    'adapter_config.json': Uint8Array;
  };
  state: CheckpointState;
  /** Path -> the episodes of a step, as they were written. */
  rollouts: Map<string, unknown[]>;
  /** The comparable parts of the journal's effective entries: metrics, digests, audits. */
  journal: unknown[];
}

export interface Difference {
  file: string;
  /** Tensor, or path in a JSON file. */
  tensor: string;
  /** Element of the tensor, or of the innermost list; null where there is none. */
  index: number | null;
  left: string;
  right: string;
}

/** A difference in one sentence. */
export function differenceText(
  { file, tensor, index, left, right }: Difference,
  names: readonly [string, string],
): string {
  const place = index === null ? tensor : `${tensor}, index ${index}`;
  return `${file}, ${place}: ${left} in ${names[0]}, ${right} in ${names[1]}`;
}

const shown = (value: unknown) =>
  value === undefined ? 'nothing' : (JSON.stringify(value)?.slice(0, 60) ?? String(value));

/** The first place where two plain values differ, or null. Keys are compared in sorted order. */
export function jsonDifference(
  file: string,
  left: unknown,
  right: unknown,
  path = '',
  index: number | null = null,
): Difference | null {
  if (Object.is(left, right)) return null;
  const both = [left, right];
  if (both.every(Array.isArray)) {
    const [a, b] = both as unknown[][];
    for (let i = 0; i < Math.max(a!.length, b!.length); i++) {
      const found = jsonDifference(file, a![i], b![i], `${path}[${i}]`, i);
      if (found) return found;
    }
    return null;
  }
  const isObject = (value: unknown) => value !== null && typeof value === 'object' && !Array.isArray(value);
  if (both.every(isObject)) {
    const [a, b] = both as Record<string, unknown>[];
    for (const key of [...new Set([...Object.keys(a!), ...Object.keys(b!)])].sort()) {
      const found = jsonDifference(file, a![key], b![key], path === '' ? key : `${path}.${key}`, index);
      if (found) return found;
    }
    return null;
  }
  return { file, tensor: path === '' ? 'the whole value' : path, index, left: shown(left), right: shown(right) };
}

/** A f32 with its bits, so that values that print alike can be told apart. */
function float(bytes: Uint8Array, index: number): string {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const bits = view
    .getUint32(index * 4, true)
    .toString(16)
    .padStart(8, '0');
  return `${view.getFloat32(index * 4, true)} (0x${bits})`;
}

/** The first difference of two safetensors files of f32 tensors, or null if all bytes are equal. */
async function tensorDifference(file: string, left: Uint8Array, right: Uint8Array): Promise<Difference | null> {
  if (left.length === right.length && left.every((byte, i) => byte === right[i])) return null;
  const sources = [memorySource('left', { [file]: left }), memorySource('right', { [file]: right })] as const;
  const [a, b] = [await openSafetensors(sources[0], file), await openSafetensors(sources[1], file)];
  for (const [name, ref] of a.tensors) {
    const other = b.tensors.get(name);
    const shape = (of: typeof ref | undefined) => (of ? `${of.dtype} [${of.shape.join(', ')}]` : 'no such tensor');
    if (!other || shape(other) !== shape(ref)) {
      return { file, tensor: name, index: null, left: shape(ref), right: shape(other) };
    }
    const [x, y] = [await readTensor(sources[0], ref), await readTensor(sources[1], other)];
    for (let i = 0; i < elementCount(ref); i++) {
      const at = i * 4;
      if (x[at] === y[at] && x[at + 1] === y[at + 1] && x[at + 2] === y[at + 2] && x[at + 3] === y[at + 3]) continue;
      return { file, tensor: name, index: i, left: float(x, i), right: float(y, i) };
    }
  }
  const extra = [...b.tensors.keys()].find((name) => !a.tensors.has(name));
  if (extra !== undefined) return { file, tensor: extra, index: null, left: 'no such tensor', right: 'a tensor' };
  // Equal tensors and other bytes: the header or its padding.
  const at = left.findIndex((byte, i) => byte !== right[i]);
  return { file, tensor: 'the header', index: at, left: shown(left[at]), right: shown(right[at]) };
}

/**
 * The first difference of each file of two branches, in this order: adapter, its configuration, moments, state (with
 * schedule and RNG), rollouts by step, journal. Empty if all is equal.
 */
export async function compareBranches(left: Branch, right: Branch): Promise<Difference[]> {
  const differences: (Difference | null)[] = [];
  for (const file of ['adapter_model.safetensors', 'optimizer.safetensors'] as const) {
    differences.push(await tensorDifference(file, left.files[file], right.files[file]));
  }
  const text = (branch: Branch) => new TextDecoder().decode(branch.files['adapter_config.json']);
  differences.push(jsonDifference('adapter_config.json', text(left), text(right)));
  differences.push(jsonDifference('state.json', comparableState(left.state), comparableState(right.state)));
  for (const file of [...new Set([...left.rollouts.keys(), ...right.rollouts.keys()])].sort()) {
    const [a, b] = [left.rollouts.get(file), right.rollouts.get(file)];
    differences.push(jsonDifference(file, withoutTimings(a), withoutTimings(b)));
  }
  differences.push(jsonDifference('journal.jsonl', left.journal, right.journal));
  return differences.filter((difference) => difference !== null);
}

/** Whether the comparison sees one flipped bit in a branch: the lowest bit of the last byte of its adapter. */
export async function seesFlippedBit(branch: Branch): Promise<Difference | null> {
  const flipped = branch.files['adapter_model.safetensors'].slice();
  flipped[flipped.length - 1]! ^= 1;
  const files = { ...branch.files, 'adapter_model.safetensors': flipped };
  return (await compareBranches(branch, { ...branch, files }))[0] ?? null;
}
