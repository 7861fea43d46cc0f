// One device for a test file. A missing adapter fails the test: set-up installs one (see setup.sh).
import { afterAll, beforeAll } from 'vitest';
import { type Gpu, openGpu } from '../../src/gpu/device.ts';

/** Opens a device before the file's tests and destroys it afterwards; call the result inside a test. */
export function useGpu(): () => Gpu {
  let gpu: Gpu | null = null;
  beforeAll(async () => {
    gpu = await openGpu();
  });
  afterAll(() => {
    gpu?.destroy();
  });
  return () => {
    if (!gpu) throw new Error('the device is opened in beforeAll; call this inside a test');
    return gpu;
  };
}
