// The second opinion: kernels of this program and operations of tfjs on one adapter, over the qualification's cases.
// Fetched only when it is asked for, as a file of its own: tfjs is larger than the page. Not the qualification.
// Invariant: both programs see the same inputs, and each element is compared only where a case says what it must be.
import * as tf from '@tensorflow/tfjs-core';
import '@tensorflow/tfjs-backend-webgpu';
import { expose } from 'comlink';
import { type Gpu, openGpu } from '../src/gpu/device.ts';
import type { Expected, KernelCase, QualifiedKernel } from '../src/gpu/kernel.ts';
import { supports } from '../src/gpu/variant.ts';
import { kernels } from '../src/kernels/index.ts';
import { errorRatio, runOnce } from '../src/kernels/qualify.ts';
import { DeviceError } from '../src/lib/errors.ts';
import type { Opinion, OpinionRow, OpinionService } from './second-opinion.ts';
import {
  type TfjsOperation,
  type TfjsValues,
  tfjsLogprobs,
  tfjsMatmul,
  tfjsRmsnorm,
  tfjsSoftmax,
} from './tfjs-operations.ts';

const compared: readonly [pattern: RegExp, operations: string, run: TfjsOperation][] = [
  [/^matmul(-lanes|-tiled|-skinny)?$/, 'matMul, mul, add', tfjsMatmul],
  [/^rmsnorm(-rows)?$/, 'square, mean, rsqrt, mul', tfjsRmsnorm],
  [/^attention-softmax(-wide)?$/, 'softmax', tfjsSoftmax],
  [/^logprobs$/, 'logSoftmax at the target', tfjsLogprobs],
];

/** Takes one case's outputs into the row. */
function addCase(
  row: OpinionRow,
  run: KernelCase,
  words: Uint32Array<ArrayBuffer>,
  { output, at, values }: TfjsValues,
) {
  const expected = run.expected[output] as Expected;
  const ours = new Float32Array(words.buffer);
  row.cases += 1;
  row.values += values.length;
  for (const [n, i] of at.entries()) {
    const [wanted, bound] = [expected.values[i]!, expected.bounds[i]!];
    row.kernelWorst = Math.max(row.kernelWorst, errorRatio(ours[i]!, words[i]!, wanted, bound));
    row.tfjsWorst = Math.max(row.tfjsWorst, errorRatio(values[n]!, 0, wanted, bound));
    // errorRatio takes a NaN that is wanted for an element to leave alone; here it is a difference without bound.
    const apart = Number.isNaN(values[n]!)
      ? Number.POSITIVE_INFINITY
      : errorRatio(ours[i]!, words[i]!, values[n]!, bound);
    if (!(apart <= row.apart)) {
      row.apart = apart;
      row.at = `${run.name}, ${output}[${i}]: ${ours[i]} here, ${values[n]} by tfjs`;
    }
  }
}

/** MatMulProgramType.MatMulPackedProgram of tfjs-backend-webgpu's webgpu_util. */
const tiledProduct = 3;

interface TfjsBackend {
  device: GPUDevice;
}

/** tfjs on the adapter that it asks for, which is the one that openGpu asks for: the high-performance one. */
async function openTfjs(): Promise<string> {
  // Its tiled product. Left to itself it takes a split sum for long rows, whose parts are added by atomics in no fixed
  // order, and which on SwiftShader is off by twenty thousand bounds (9 x 2048 by 2048 x 16).
  tf.env().set('WEBGPU_MATMUL_PROGRAM_TYPE', tiledProduct);
  if (!(await tf.setBackend('webgpu'))) {
    throw new DeviceError(
      'no-tfjs',
      'opening tfjs: found that its WebGPU backend does not start here; wanted it. Use a browser with WebGPU in workers.',
    );
  }
  await tf.ready();
  const { device } = tf.backend() as unknown as TfjsBackend;
  // A refused command would leave values that nothing wrote.
  device.addEventListener('uncapturederror', ({ error }) => {
    refused ??= `running tfjs: found ${error.message}; wanted commands that the adapter takes. Its opinion is void.`;
  });
  const { vendor, architecture, device: name, description } = device.adapterInfo;
  return [vendor, architecture, name, description].filter(Boolean).join(' ');
}

let refused: string | null = null;

async function compareKernel(gpu: Gpu, kernel: QualifiedKernel, operations: string, operation: TfjsOperation) {
  const row = { kernel: kernel.name, operations, cases: 0, values: 0, kernelWorst: 0, tfjsWorst: 0, apart: 0, at: '' };
  for (const run of kernel.cases()) {
    const other = await operation(run, { ...kernel.constants, ...run.constants });
    addCase(row, run, (await runOnce(gpu, kernel, run))[other.output]!, other);
    if (refused !== null) throw new DeviceError('tfjs-refused', refused);
  }
  return row;
}

const service: OpinionService = {
  async compare(progress) {
    const gpu = await openGpu();
    const tfjsAdapter = await openTfjs();
    const chosen = kernels.flatMap((kernel) => {
      const found = compared.find(([pattern]) => pattern.test(kernel.name));
      return found && supports(gpu, kernel) ? [[kernel, found[1], found[2]] as const] : [];
    });
    const rows: OpinionRow[] = [];
    for (const [done, [kernel, operations, operation]] of chosen.entries()) {
      progress(done, chosen.length, kernel.name);
      rows.push(await compareKernel(gpu, kernel, operations, operation));
    }
    const { vendor, architecture, device, description } = gpu.identity;
    const ourAdapter = [vendor, architecture, device, description].filter(Boolean).join(' ');
    gpu.destroy();
    return { tfjsAdapter, tfjsVersion: tf.version_core, ourAdapter, rows } satisfies Opinion;
  },
};
expose(service);
