// The WebGPU entry point in Node: Dawn, through the npm package `webgpu`.
import { create, globals } from 'webgpu';

/** Makes a GPU object with Dawn toggles; the caller must hold it for as long as any device lives. */
export function createGpuObject(flags: string[]): GPU {
  Object.assign(globalThis, globals);
  return create(flags);
}

export const dawnVersion: string = 'webgpu 0.6.2';

const cell = new Int32Array(new SharedArrayBuffer(4));
const NAP_MS = 0.2;

/**
 * Keeps this thread asleep for most of the time until `work` settles. Dawn polls in every turn of the event loop while
 * something is pending, which takes a whole core: one of those that a software adapter computes on.
 */
export function napUntil(work: Promise<unknown>): void {
  let settled = false;
  const end = () => {
    settled = true;
  };
  work.then(end, end);
  const nap = () => {
    if (settled) return;
    Atomics.wait(cell, 0, 0, NAP_MS);
    setImmediate(nap);
  };
  setImmediate(nap);
}
