import { describe, expect, test } from 'vitest';
import { readF32 } from '../../src/gpu/buffers.ts';
import { createRecorder } from '../../src/gpu/recorder.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import { recordForward, sequencesBatch } from '../../src/model/forward.ts';
import { chooseRows, createHead, headChunks, recordLogits } from '../../src/model/head.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { loadWeights } from '../../src/model/weights.ts';
import { createWorkspace } from '../../src/model/workspace.ts';
import { goldenPath, readGolden } from '../support/golden.ts';
import { useGpu } from '../support/gpu.ts';

const gpu = useGpu();

describe.each(['qwen3-tied', 'qwen3-untied', 'llama-tied'])('forward pass of tiny-%s', (name) => {
  test('gives logits within 2e-4 of the f64 golden for every position', async () => {
    const golden = readGolden(`forward-${name}.safetensors`);
    const files = await openModelFiles(folderSource(goldenPath(`tiny-${name}`)));
    const arch = files.architecture;
    const model = await loadWeights(gpu(), files, { positions: 64 });
    const ids = golden.tensors.get('input_ids')!.data;
    const sequences = [0, 1, 2].map((s) => Array.from(ids.subarray(s * 40, (s + 1) * 40)));
    const batch = sequencesBatch(sequences);
    const workspace = createWorkspace(gpu(), arch, null, { rows: 120, slots: 3, cacheLength: 40, training: false });
    const head = createHead(gpu(), arch, 120, arch.vocabSize, 320 * 4 * 50);
    const recorder = createRecorder(gpu());
    recordForward(gpu(), recorder, model, workspace, null, batch);
    chooseRows(
      gpu(),
      recorder,
      head,
      Uint32Array.from({ length: 120 }, (_, i) => i),
    );
    const expected = golden.tensors.get('logits.f64')!.data;
    let worst = 0;
    expect(headChunks(head, 120).length).toBe(3);
    for (const chunk of headChunks(head, 120)) {
      recordLogits(recorder, model, workspace, head, chunk);
      recorder.submit();
      const logits = await readF32(gpu(), head.logits.view, chunk.rows * 320);
      for (let i = 0; i < logits.length; i++)
        worst = Math.max(worst, Math.abs(logits[i]! - expected[chunk.first * 320 + i]!));
    }
    expect(worst).toBeLessThan(2e-4);
  });
});
