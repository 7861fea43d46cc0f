// A sequence of dispatches recorded once and run many times: bind groups, pipelines and scalars are fixed, so running it
// again costs the host three calls a dispatch.
// Not a graph and no copies: what changes from run to run is read from buffers that the kernels themselves write.
// Invariant: a run does exactly what the recorder would have done with the same calls.
import { KernelError } from '../lib/errors.ts';
import { allocate, release, upload, type View } from './buffers.ts';
import type { Gpu } from './device.ts';
import { type Compiled, compile } from './pipeline.ts';
import { bindGroupOf, type Recorder, writeScalars } from './recorder.ts';
import { passTimer } from './timing.ts';
import { kernelVariant } from './variant.ts';

interface Command {
  compiled: Compiled;
  views: readonly View[];
  /** Of its scalars, as a bind group takes it. */
  offsets: number[];
  grid: readonly [number, number, number];
  group: GPUBindGroup | null;
}

export interface Program {
  /** Records into the program; `copy`, `clear` and `submit` are refused. */
  readonly recorder: Recorder;
  /** Dispatches of a run. */
  readonly length: number;
  /** Adds the whole sequence to a pass. */
  encode(pass: GPUComputePassEncoder): void;
  /** Sends the whole sequence to the queue once. */
  run(): void;
  destroy(): void;
}

/** An empty program. Its scalars are uploaded at the first run, after which nothing more may be recorded. */
export function createProgram(gpu: Gpu, label: string): Program {
  const { device } = gpu;
  const stride = Math.max(64, gpu.identity.limits.minUniformBufferOffsetAlignment);
  const commands: Command[] = [];
  const scalars: Uint32Array<ArrayBuffer>[] = [];
  let uniform: View | null = null;

  const refuse = (what: string) => (): never => {
    throw new KernelError('program', `recording ${label}: ${what} in a program; a program holds dispatches alone.`);
  };

  function seal(): void {
    const words = new Uint32Array((commands.length * stride) / 4);
    for (const [i, block] of scalars.entries()) words.set(block, (i * stride) / 4);
    uniform = allocate(gpu, `${label} scalars`, words.byteLength, GPUBufferUsage.UNIFORM);
    upload(gpu, uniform, words);
    for (const command of commands) command.group = bindGroupOf(gpu, command.compiled, uniform, command.views);
  }

  const recorder: Recorder = {
    variant: kernelVariant(gpu.identity),
    workgroupBytes: gpu.identity.limits.maxComputeWorkgroupStorageSize,
    dispatch(kernel, views, params, grid, constants) {
      if (uniform) refuse(`a dispatch of ${kernel.name} after the first run`)();
      const block = new Uint32Array(stride / 4);
      writeScalars(kernel, params, block, new Float32Array(block.buffer), 0, block.length);
      commands.push({
        compiled: compile(gpu, kernel, constants),
        views,
        offsets: [commands.length * stride],
        grid,
        group: null,
      });
      scalars.push(block);
    },
    copy: refuse('a copy'),
    clear: refuse('a clear'),
    submit: refuse('a submit'),
  };

  function dispatch(pass: GPUComputePassEncoder, { compiled, group, offsets, grid }: Command): void {
    pass.setPipeline(compiled.pipeline);
    pass.setBindGroup(0, group!, offsets);
    pass.dispatchWorkgroups(grid[0], grid[1], grid[2]);
  }

  function encode(pass: GPUComputePassEncoder): void {
    if (!uniform) seal();
    for (const command of commands) dispatch(pass, command);
  }

  return {
    recorder,
    get length() {
      return commands.length;
    },
    encode,
    run() {
      if (!uniform) seal();
      const encoder = device.createCommandEncoder();
      const timer = passTimer(gpu);
      if (timer) {
        for (const command of commands) {
          const timestampWrites = timer.next(command.compiled.kernel.name, command.grid);
          const pass = encoder.beginComputePass(timestampWrites ? { timestampWrites } : {});
          dispatch(pass, command);
          pass.end();
        }
        timer.resolve(encoder);
      } else {
        const pass = encoder.beginComputePass();
        encode(pass);
        pass.end();
      }
      device.queue.submit([encoder.finish()]);
      timer?.submitted();
      gpu.check();
    },
    destroy() {
      if (uniform) release(gpu, uniform);
    },
  };
}
