// Qualification cases of three kinds of kernels, computed by tfjs: products, norms, and softmax with its logarithm.
// Not a reference: f32 on the same adapter by other shaders. Invariant: every value comes with the element of the kernel's
// output that it is an opinion on.
import * as tf from '@tensorflow/tfjs-core';
import type { KernelCase } from '../src/gpu/kernel.ts';
import { noTarget, scaledLogits } from '../src/kernels/logprobs.ts';
import { matmulMode } from '../src/kernels/matmul.ts';

export interface TfjsValues {
  /** Name of the kernel's output, and the element of it that each value is of. */
  output: string;
  at: Uint32Array;
  values: Float32Array;
}
export type TfjsOperation = (run: KernelCase, constants: Readonly<Record<string, number>>) => Promise<TfjsValues>;

function unpackBf16(words: Uint32Array): Float32Array {
  const out = new Uint32Array(words.length * 2);
  for (let i = 0; i < words.length; i++) {
    out[2 * i] = (words[i]! << 16) >>> 0;
    out[2 * i + 1] = (words[i]! & 0xffff0000) >>> 0;
  }
  return new Float32Array(out.buffer);
}

const floats = (run: KernelCase, name: string) => run.inputs[name] as Float32Array;
const number = (run: KernelCase, name: string) => run.params[name]!;

/** The values of a tensor that `make` builds; every tensor of it is given back. */
async function valuesOf(make: () => tf.Tensor): Promise<Float32Array> {
  const tensor = tf.tidy(make);
  try {
    return Float32Array.from(await tensor.data());
  } finally {
    tensor.dispose();
  }
}

/** The elements of rows [rows, columns] in a layout of stride `stride` from `first` on. */
function elements(rows: number, columns: number, stride: number, first = 0): Uint32Array {
  return Uint32Array.from(
    { length: rows * columns },
    (_, i) => first + Math.floor(i / columns) * stride + (i % columns),
  );
}

/** The first `columns` of each row of a layout of stride `stride`. */
function dense(values: Float32Array, rows: number, columns: number, stride: number): Float32Array {
  const out = new Float32Array(rows * columns);
  for (let r = 0; r < rows; r++) out.set(values.subarray(r * stride, r * stride + columns), r * columns);
  return out;
}

/** tf.matMul(x, w, transposed), then the case's scale and sum. */
export const tfjsMatmul: TfjsOperation = async (run, constants) => {
  const [rows, columns, mode] = [number(run, 'rows'), number(run, 'columns'), number(run, 'mode')];
  const k = number(run, 'k4') * 4;
  const outStride = number(run, 'outStride');
  const packed = run.inputs['w']!;
  const w = constants['BF16'] === 1 ? unpackBf16(packed as Uint32Array) : (packed as Float32Array);
  const product = await valuesOf(() => {
    const x = tf.tensor2d(floats(run, 'x').subarray(0, rows * k), [rows, k], 'float32');
    const sum = tf.matMul(x, tf.tensor2d(w.subarray(0, columns * k), [columns, k], 'float32'), false, true);
    const scaled = mode === matmulMode.continue ? sum : tf.mul(sum, tf.scalar(number(run, 'scale'), 'float32'));
    if (mode === matmulMode.overwrite) return scaled;
    const before = dense(floats(run, 'out'), rows, columns, outStride);
    return tf.add(scaled, tf.tensor2d(before, [rows, columns], 'float32'));
  });
  return { output: 'out', at: elements(rows, columns, outStride), values: product };
};

/** x * rsqrt(mean(square(x)) + eps) * gain; tfjs has no RMSNorm of its own. */
export const tfjsRmsnorm: TfjsOperation = async (run) => {
  const [rows, columns] = [number(run, 'rows'), number(run, 'columns')];
  const stride = number(run, 'k4') * 4;
  const normed = await valuesOf(() => {
    const x = tf.tensor2d(dense(floats(run, 'x'), rows, columns, stride), [rows, columns], 'float32');
    const gain = tf.tensor1d(floats(run, 'gain').subarray(0, columns), 'float32');
    const mean = tf.mean(tf.square(x), 1, true);
    return tf.mul(tf.mul(x, tf.rsqrt(tf.add(mean, tf.scalar(number(run, 'eps'), 'float32')))), gain);
  });
  return { output: 'out', at: elements(rows, columns, stride), values: normed };
};

/** tf.softmax of each (row, head) over the keys up to the row's position. */
export const tfjsSoftmax: TfjsOperation = async (run) => {
  const [rows, heads, stride] = [number(run, 'rows'), number(run, 'heads'), number(run, 'sStride')];
  const scores = floats(run, 's');
  const at: number[] = [];
  const values: number[] = [];
  for (let r = 0; r < rows; r++) {
    const keys = (run.inputs['meta'] as Uint32Array)[r * 2 + 1]! + 1;
    const first = r * heads * stride;
    const block = dense(scores.subarray(first, first + heads * stride), heads, keys, stride);
    values.push(...(await valuesOf(() => tf.softmax(tf.tensor2d(block, [heads, keys], 'float32')))));
    at.push(...elements(heads, keys, stride, first));
  }
  return { output: 's', at: Uint32Array.from(at), values: Float32Array.from(values) };
};

/** tf.logSoftmax of each row's scaled logits, read at its target: the third of a row's four values. */
export const tfjsLogprobs: TfjsOperation = async (run) => {
  const [rows, vocabulary, stride] = [number(run, 'rows'), number(run, 'vocabulary'), number(run, 'stride')];
  const rowOffset = number(run, 'rowOffset');
  const targets = run.inputs['targets'] as Uint32Array;
  const at: number[] = [];
  const chosen: number[] = [];
  for (let r = 0; r < rows; r++) {
    const target = targets[rowOffset + r]!;
    if (target === noTarget) continue;
    const row = floats(run, 'logits').subarray(r * stride, r * stride + vocabulary);
    const x = scaledLogits(row, number(run, 'inverseTemperature'));
    const values = await valuesOf(() => tf.logSoftmax(tf.tensor2d(x, [1, vocabulary], 'float32')));
    at.push((rowOffset + r) * 4 + 2);
    chosen.push(values[target]!);
  }
  return { output: 'stats', at: Uint32Array.from(at), values: Float32Array.from(chosen) };
};
