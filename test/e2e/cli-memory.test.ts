import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { defaultLora, memoryNeed } from '../../src/doctor.ts';
import { memoryInUse } from '../../src/gpu/buffers.ts';
import { adapterLayout } from '../../src/model/adapter-gpu.ts';
import { openBase } from '../../src/model/base-node.ts';
import { createHead } from '../../src/model/head.ts';
import { openPolicy, vocabularyOf } from '../../src/model/open-node.ts';
import { loadWeights } from '../../src/model/weights.ts';
import { createWorkspace } from '../../src/model/workspace.ts';
import { goldenPath } from '../support/golden.ts';
import { useGpu } from '../support/gpu.ts';

const gpu = useGpu();

describe.each(['qwen3-tied', 'qwen3-untied', 'llama-tied'])('the memory that doctor adds up for tiny-%s', (name) => {
  test('is, byte for byte, what weights and workspaces take on the device', async () => {
    const { files } = await openPolicy(goldenPath(`tiny-${name}`), null);
    const arch = files.architecture;
    const [slots, context, lora] = [3, 50, defaultLora(6)];
    const need = memoryNeed(gpu().identity, files, { slots, context, lora });
    const model = await loadWeights(gpu(), files, { positions: context });
    expect(need.weights).toBe(model.bytes);
    const layout = adapterLayout(arch, lora);
    const before = memoryInUse(gpu());
    createWorkspace(gpu(), arch, layout, { rows: slots * context, slots, cacheLength: context, training: true });
    createHead(gpu(), arch, slots * context);
    expect(need.training).toBe(memoryInUse(gpu()) - before);
    expect(need.adapterParameters).toBeLessThanOrEqual(layout.length);
  });
});

describe('opening a policy', () => {
  test('takes a folder without a tokenizer for token ids, and refuses it where text is needed', async () => {
    const model = goldenPath('tiny-qwen3-tied');
    const base = await openPolicy(model, null);
    expect([vocabularyOf(base), base.text, base.adapter]).toEqual([320, null, null]);
    await expect(openBase(model)).rejects.toThrow(/no tokenizer.json in the folder/);
  });

  test('binds a run to the bytes of weights, configuration and tokenizer', async () => {
    const folder = fileURLToPath(new URL('../../fixtures/embedded-policy', import.meta.url));
    const { hashes, vocabulary } = await openBase(folder);
    expect(vocabulary).toBe(646);
    expect(Object.values(hashes).every((hash) => /^[0-9a-f]{64}$/.test(hash))).toBe(true);
    expect(await openBase(folder)).toMatchObject({ hashes });
  });
});
