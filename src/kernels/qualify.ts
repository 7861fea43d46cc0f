// Runs a kernel's cases on a device and compares them with the f64 reference, element by element.
// Not a benchmark. Invariant: a NaN, an unwritten element, a write past the end or bits that change over repeats all fail.
import { allocate, readBytes, release, upload, type View } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import type { Expected, Kernel, KernelArray, KernelCase } from '../gpu/kernel.ts';
import { createRecorder, type Recorder } from '../gpu/recorder.ts';
import { KernelError } from '../lib/errors.ts';
import { f16ToF32 } from '../lib/half.ts';

export interface CaseResult {
  case: string;
  /** Largest error / bound over all elements of all outputs; passes at 1 or less. Infinity for NaN or unwritten. */
  worst: number;
  /** Where the worst element is. */
  at: string;
  /** The same bits in every repeat. */
  stable: boolean;
  /** Nothing was written past the end of an output. */
  guarded: boolean;
  passed: boolean;
}

const guardWords = 64;
const guardPattern = 0x7fc0beef;
const nanPattern = 0x7fc00000;
const recorders = new WeakMap<GPUDevice, Recorder>();

function recorderOf(gpu: Gpu): Recorder {
  let recorder = recorders.get(gpu.device);
  if (!recorder) recorders.set(gpu.device, (recorder = createRecorder(gpu)));
  return recorder;
}

function outputLength(expected: Expected | Uint32Array): number {
  if (expected instanceof Uint32Array) return expected.length;
  return expected.halves ? expected.values.length / 2 : expected.values.length;
}

/** The bytes that a binding starts with: input data, or a pattern that shows what was not written; then the guard. */
function initialWords(name: string, run: KernelCase): Uint32Array<ArrayBuffer> {
  const input: KernelArray | undefined = run.inputs[name];
  const expected = run.expected[name];
  if (!expected) return input ? new Uint32Array(input.buffer, input.byteOffset, input.length) : new Uint32Array(4);
  const length = outputLength(expected);
  const words = new Uint32Array(length + guardWords).fill(guardPattern);
  if (input) words.set(new Uint32Array(input.buffer, input.byteOffset, length));
  else words.fill(expected instanceof Uint32Array ? 0xffffffff : nanPattern, 0, length);
  return words;
}

/** Error over bound of one element; Infinity where the comparison cannot hold. */
export function errorRatio(actual: number, actualBits: number, wanted: number, bound: number): number {
  if (Number.isNaN(wanted)) return actualBits === nanPattern ? 0 : Number.POSITIVE_INFINITY;
  const error = Math.abs(actual - wanted);
  if (error === 0) return 0;
  const ratio = error / bound;
  return ratio >= 0 ? ratio : Number.POSITIVE_INFINITY;
}

function halfValues(words: Uint32Array<ArrayBuffer>, length: number): Float32Array {
  return Float32Array.from(new Uint16Array(words.buffer, 0, 2 * length), f16ToF32);
}

function compare(
  name: string,
  words: Uint32Array<ArrayBuffer>,
  expected: Expected | Uint32Array,
  into: CaseResult,
): void {
  const length = outputLength(expected);
  for (let i = length; i < words.length; i++) if (words[i] !== guardPattern) into.guarded = false;
  const halves = !(expected instanceof Uint32Array) && expected.halves;
  const floats = halves ? halfValues(words, length) : new Float32Array(words.buffer);
  for (let i = 0; i < (halves ? 2 * length : length); i++) {
    const ratio =
      expected instanceof Uint32Array
        ? words[i] === expected[i]
          ? 0
          : Number.POSITIVE_INFINITY
        : errorRatio(floats[i]!, halves ? 0 : words[i]!, expected.values[i]!, expected.bounds[i]!);
    if (!(ratio <= into.worst)) {
      into.worst = ratio;
      const [found, wanted] =
        expected instanceof Uint32Array ? [words[i], expected[i]] : [floats[i], expected.values[i]];
      into.at = `${name}[${i}]: ${found}, wanted ${wanted}`;
    }
  }
}

/** The words of a case's outputs, each with its guard. */
export async function runOnce(
  gpu: Gpu,
  kernel: Kernel,
  run: KernelCase,
): Promise<Record<string, Uint32Array<ArrayBuffer>>> {
  const views: View[] = kernel.bindings.map((binding) => {
    const words = initialWords(binding.name, run);
    const view = allocate(gpu, `${kernel.name}.${binding.name}`, words.byteLength);
    upload(gpu, view, words);
    return view;
  });
  try {
    const recorder = recorderOf(gpu);
    recorder.dispatch(kernel, views, run.params, run.grid, run.constants);
    recorder.submit();
    const out: Record<string, Uint32Array<ArrayBuffer>> = {};
    for (const [i, binding] of kernel.bindings.entries()) {
      const expected = run.expected[binding.name];
      if (!expected) continue;
      out[binding.name] = new Uint32Array(await readBytes(gpu, views[i]!, (outputLength(expected) + guardWords) * 4));
    }
    return out;
  } finally {
    for (const view of views) release(gpu, view);
  }
}

/** Runs one case `repeats` times. The comparison is with the first run; the others must give its bits. */
export async function runCase(gpu: Gpu, kernel: Kernel, run: KernelCase, repeats = 2): Promise<CaseResult> {
  for (const name of Object.keys(run.expected)) {
    if (!kernel.bindings.some((b) => b.name === name && b.access === 'read_write')) {
      throw new KernelError('bad-case', `qualifying ${kernel.name} (${run.name}): ${name} is no read_write binding.`);
    }
  }
  const result: CaseResult = { case: run.name, worst: 0, at: '', stable: true, guarded: true, passed: false };
  const first = await runOnce(gpu, kernel, run);
  for (const [name, words] of Object.entries(first)) compare(name, words, run.expected[name]!, result);
  for (let i = 1; i < repeats; i++) {
    const again = await runOnce(gpu, kernel, run);
    for (const [name, words] of Object.entries(first)) {
      if (!words.every((word, k) => word === again[name]![k])) result.stable = false;
    }
  }
  result.passed = result.worst <= 1 && result.stable && result.guarded;
  return result;
}
