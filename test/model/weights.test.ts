// Loading: the bytes on the device do not depend on how the files are read, and a file that ends early is an error.
import { copyFileSync, mkdtempSync, readFileSync, rmSync, truncateSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { memoryInUse, readBytes, type View } from '../../src/gpu/buffers.ts';
import { type FileSource, memorySource } from '../../src/model/file-source.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { type GpuModel, groupNames, loadWeights } from '../../src/model/weights.ts';
import { goldenPath } from '../support/golden.ts';
import { useGpu } from '../support/gpu.ts';

const gpu = useGpu();
const names = ['config.json', 'model.safetensors'] as const;
const folder = goldenPath('tiny-qwen3-untied');

function viewsOf(model: GpuModel): View[] {
  const { embedding, head, layers, finalNorm } = model;
  const matrices = [embedding, head, ...layers.flatMap(({ groups }) => groupNames.map((name) => groups[name].weight))];
  const vectors = layers.flatMap(({ inputNorm, postNorm, qkGain }) => [inputNorm, postNorm, qkGain]);
  return [...matrices.flatMap(({ parts }) => parts.map(({ view }) => view)), ...vectors, finalNorm];
}

async function load(source: FileSource) {
  const seen: number[] = [];
  const files = await openModelFiles(source);
  const model = await loadWeights(gpu(), files, { positions: 8, onProgress: (done, all) => seen.push(done / all) });
  const bytes = await Promise.all(viewsOf(model).map(async (view) => Buffer.from(await readBytes(gpu(), view))));
  model.destroy();
  return { bytes, seen };
}

test('a folder, read straight into mapped memory, and files in memory leave the same bytes on the device', async () => {
  const held = Object.fromEntries(names.map((name) => [name, new Uint8Array(readFileSync(join(folder, name)))]));
  const [straight, copied] = [await load(folderSource(folder)), await load(memorySource('held', held))];
  expect(straight.bytes.length).toBe(copied.bytes.length);
  for (const [i, bytes] of straight.bytes.entries()) expect(bytes.equals(copied.bytes[i]!), `view ${i}`).toBe(true);
  expect(straight.bytes.some((bytes) => bytes.some((byte) => byte !== 0))).toBe(true);
  for (const { seen } of [straight, copied]) {
    expect(seen).toEqual([...seen].sort((a, b) => a - b));
    expect(seen.at(-1)).toBe(1);
  }
});

test('a file that is cut off while it is read is an error that names it, and nothing stays allocated', async () => {
  const copy = mkdtempSync(join(tmpdir(), 'shaderl-weights-'));
  try {
    for (const name of names) copyFileSync(join(folder, name), join(copy, name));
    const files = await openModelFiles(folderSource(copy));
    truncateSync(join(copy, 'model.safetensors'), 9000);
    const before = memoryInUse(gpu());
    await expect(loadWeights(gpu(), files, { positions: 8 })).rejects.toThrow(/model\.safetensors.*truncated/);
    expect(memoryInUse(gpu())).toBe(before);
    // The device is as good as before.
    expect((await load(folderSource(folder))).bytes.length).toBeGreaterThan(0);
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
});
