// A training run's pipelines, known before its weights are read: on an adapter that is not here, for both families.
import { expect, test } from 'vitest';
import { openShape } from '../../bench/models.ts';
import { familyKernels } from '../../src/kernels/matrix-index.ts';
import { resolveTargets } from '../../src/model/lora.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { pipelinesOfWork } from '../../src/model/warm-up.ts';
import { runConfigSchema } from '../../src/run-config.ts';
import { trainingRehearsal } from '../../workers/run-rehearsal.ts';
import { distant } from '../support/distant-gpu.ts';
import { useGpu } from '../support/gpu.ts';

const gpu = useGpu();
const lora = { rank: 16, alpha: 32, useRslora: false, targets: resolveTargets('all-linear') };

test.each(['portable', 'matrix'] as const)('family %s: rollouts and the training step are in it', async (family) => {
  const files = await openModelFiles(openShape('qwen3-0.6b').source);
  const config = runConfigSchema.parse({ model: 'm', output: 'o', kernels: { family } });
  const rehearsal = trainingRehearsal(config, lora, 1024, 151_900);
  const found = await pipelinesOfWork(distant(gpu()), files, family, 1024, rehearsal);
  const names = new Set(found.map(({ kernel }) => kernel.name));
  const known = new Set(familyKernels(family).map(({ name }) => name));
  expect([...names].filter((name) => !known.has(name))).toEqual([]);
  const fused = ['advance', 'cache-fork', 'matrix-matmul-lora', 'attention-partial', 'attention-flash-dkv', 'lora-dz'];
  const parts = ['embed', 'sample-wide', 'logprobs-wide', 'grpo-gradient', 'adamw'];
  expect([...parts, ...(family === 'matrix' ? fused : ['matmul-tn-tiled'])].filter((name) => !names.has(name))).toEqual(
    [],
  );
  expect([...names].some((name) => name.startsWith('matrix-few-'))).toBe(family === 'matrix');
});
