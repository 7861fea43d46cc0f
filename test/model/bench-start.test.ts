// The start that the bench times: a process of its own that opens a checkpoint folder and samples one token.
import { expect, test } from 'vitest';
import { measureStart, withFolder } from '../../bench/start.ts';
import { memorySource } from '../../src/model/file-source.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import { goldenPath } from '../support/golden.ts';

const folder = goldenPath('tiny-qwen3-tied');

test('a child process tells when each stage of its start was over, the token last', async () => {
  const { marks, loadSeconds, firstTokenSeconds, pipelines } = await measureStart({
    folder,
    family: 'portable',
    robustness: true,
    promptTokens: 5,
    positions: 16,
  });
  const names = marks.map(({ name }) => name);
  expect([...names].sort()).toEqual(['device', 'files', 'pipelines', 'program', 'token', 'weights']);
  expect(names.slice(0, 3)).toEqual(['program', 'device', 'files']);
  const seconds = marks.map((mark) => mark.seconds);
  expect(seconds).toEqual([...seconds].sort((a, b) => a - b));
  expect(firstTokenSeconds).toBe(seconds.at(-1));
  expect(loadSeconds).toBeGreaterThan(0);
  expect(pipelines).toBeGreaterThan(8);
});

test('a child that fails is an error with its own last words', async () => {
  const order = { family: 'portable', robustness: true, promptTokens: 5, positions: 16 } as const;
  await expect(measureStart({ ...order, folder: '/nowhere' })).rejects.toThrow(/nowhere/);
});

test('files that are made as they are read become a folder for the time of the work', async () => {
  const source = memorySource('made', {
    'config.json': new Uint8Array([1, 2]),
    'model.safetensors': new Uint8Array(3),
  });
  const seen = await withFolder(source, null, async (made) => {
    const written = folderSource(made);
    return { made, names: await written.list(), config: [...(await written.read('config.json', 0, 2))] };
  });
  expect(seen).toMatchObject({ names: ['config.json', 'model.safetensors'], config: [1, 2] });
  expect(() => folderSource(seen.made)).toThrow(/found nothing/);
});
