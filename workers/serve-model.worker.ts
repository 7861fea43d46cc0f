// The policy behind the model endpoint: its own device, model, adapter, and the loop that batches requests.
// Not the HTTP server, whose event loop stays free while this thread records passes. Invariant: as engine.ts.
import { openGpu } from '../src/gpu/device.ts';
import { sha256Hex } from '../src/lib/sha256-node.ts';
import { encodeAdapter, loadAdapter } from '../src/model/adapter-files.ts';
import { loadGpuAdapter } from '../src/model/adapter-gpu.ts';
import { openBase } from '../src/model/base-node.ts';
import { canaryPositions } from '../src/model/canary.ts';
import { canarySettingOf, checkLoadedAdapter } from '../src/model/canary-measure.ts';
import { folderSource } from '../src/model/file-source-node.ts';
import { loadFamilyWeights } from '../src/model/matrix-load.ts';
import { createSampler } from '../src/rollout/sampler.ts';
import { createEngine } from '../src/serve/engine.ts';
import { requireSealedBase } from '../src/train-state.ts';
import { shadersSha256 } from './run-identity.ts';
import { serve } from './serve.ts';
import type { PolicyAbout, PolicyOptions, PolicyService } from './serve-model/api.ts';

/** Tokens of one pass: long prompts go in pieces, so that the others need not wait for all of one. */
const passRows = 512;

await serve<PolicyService>(async (data) => {
  const { model: folder, adapter: adapterFolder, family, slots, context } = data as PolicyOptions;
  const base = await openBase(folder);
  const arch = base.files.architecture;
  const adapter = adapterFolder === null ? null : await loadAdapter(folderSource(adapterFolder), arch);
  if (adapterFolder !== null) await requireSealedBase(folderSource(adapterFolder), base.hashes);
  const gpu = await openGpu();
  const { model } = await loadFamilyWeights(gpu, base.files, family, {
    positions: Math.max(context, canaryPositions),
  });
  const onDevice = adapter && loadGpuAdapter(gpu, arch, adapter);
  const setting = canarySettingOf(gpu, family, shadersSha256());
  const canary = onDevice && (await checkLoadedAdapter(gpu, model, adapter, onDevice, base.vocabulary, setting));
  const settings = { temperature: 1, topK: 0, topP: 1, minP: 0 };
  const shape = { slots, cacheLength: context, rows: passRows };
  const sampler = createSampler(gpu, model, shape, settings, base.vocabulary, onDevice?.layout ?? null);
  sampler.use(onDevice);
  const engine = createEngine(sampler, settings, base.vocabulary);
  const about: PolicyAbout = {
    device: gpu.identity.description || gpu.identity.device,
    family,
    modelSha256: base.hashes.baseModel,
    adapterSha256: adapter && sha256Hex(encodeAdapter(adapter)['adapter_model.safetensors']),
    canary,
    slots,
    context,
  };
  return {
    service: {
      about: async () => about,
      submit: async (job) => engine.submit(job),
      take: (id, wait) => engine.take(id, wait),
      cancel: async (id) => engine.cancel(id),
      stats: async () => engine.stats(),
    },
    async dispose() {
      await engine.close();
      gpu.destroy();
    },
  };
});
