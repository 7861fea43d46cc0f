// The WebGPU entry point in Node: Dawn, through the npm package `webgpu`.
import { create, globals } from 'webgpu';

/** Makes a GPU object with Dawn toggles; the caller must hold it for as long as any device lives. */
export function createGpuObject(flags: string[]): GPU {
  Object.assign(globalThis, globals);
  return create(flags);
}

export const dawnVersion: string = 'webgpu 0.6.2';
