// The bench's work on an adapter that is not here: what it would run is known without computing anything.
import { expect, test } from 'vitest';
import { openShape } from '../../bench/models.ts';
import { rehearsalOf } from '../../bench/rehearsal.ts';
import { settingsFor } from '../../bench/settings.ts';
import { defaultLora } from '../../src/doctor.ts';
import type { KernelFamily } from '../../src/gpu/device.ts';
import { familyKernels } from '../../src/kernels/matrix-index.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { pipelinesOfWork } from '../../src/model/warm-up.ts';
import { distant } from '../support/distant-gpu.ts';
import { useGpu } from '../support/gpu.ts';

const gpu = useGpu();
const uses = async (family: KernelFamily) => {
  const files = await openModelFiles(openShape('qwen3-1.7b').source);
  const settings = settingsFor(1.7e9, false);
  return pipelinesOfWork(distant(gpu()), files, family, 768, rehearsalOf(family, defaultLora(16), settings));
};

test.each(['portable', 'matrix'] as const)(
  'family %s: decoding and training use kernels of its registry',
  async (family) => {
    const known = new Set(familyKernels(family).map(({ name }) => name));
    const found = await uses(family);
    expect(found.map(({ kernel }) => kernel.name).filter((name) => !known.has(name))).toEqual([]);
    const keys = found.map(({ kernel, constants }) => `${kernel.name} ${JSON.stringify(constants)}`);
    expect(new Set(keys).size).toBe(keys.length);
    for (const part of ['embed', 'adamw', 'grpo-gradient'])
      expect(found.some(({ kernel }) => kernel.name === part)).toBe(true);
    expect(found.some(({ kernel }) => kernel.name.startsWith('matrix-'))).toBe(family === 'matrix');
  },
);
