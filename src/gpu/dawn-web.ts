// The WebGPU entry point in a browser: navigator.gpu. Dawn toggles are the browser's own and cannot be set from here.
import { DeviceError } from '../lib/errors.ts';

export function createGpuObject(_flags: string[]): GPU {
  if (!('gpu' in navigator)) {
    throw new DeviceError(
      'no-webgpu',
      'opening a GPU: this browser has no navigator.gpu; a page needs a secure context and WebGPU. Use a current Chromium, or start it with --enable-unsafe-webgpu.',
    );
  }
  return navigator.gpu;
}

export const dawnVersion: string = 'browser';

/** In a browser nothing polls in this thread. */
export function napUntil(_work: Promise<unknown>): void {}
