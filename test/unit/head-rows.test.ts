// How many rows the head takes at a time, and how a count is cut into chunks.
import { describe, expect, test } from 'vitest';
import type { Gpu } from '../../src/gpu/device.ts';
import { evenChunks, headRows } from '../../src/model/head-rows.ts';

/** A device as far as the choice looks at it. */
const device = (software: boolean, maxStorageBufferBindingSize: number) =>
  ({ identity: { software, limits: { maxStorageBufferBindingSize } } }) as Gpu;

describe('the rows of a chunk of logits', () => {
  test('are whole tiles within 320 MiB on a GPU, and never more than the caller may name', () => {
    const gpu = device(false, 2 ** 31 - 4);
    expect(headRows(gpu, 151_936, 8192)).toBe(512);
    expect(headRows(gpu, 151_936, 64)).toBe(64);
    expect(headRows(gpu, 32_768, 100_000)).toBe(2560);
    expect(headRows(gpu, 151_936, 8192, 200 * 151_936 * 4)).toBe(128);
  });

  test('stay within the binding limit, and at 256 on software adapters', () => {
    expect(headRows(device(false, 128 * 2 ** 20), 151_936, 8192)).toBe(128);
    expect(headRows(device(true, 128 * 2 ** 20), 320, 8192)).toBe(256);
    expect(headRows(device(true, 128 * 2 ** 20), 320, 120, 320 * 4 * 50)).toBe(50);
    expect(headRows(device(false, 1024), 151_936, 8192)).toBe(1);
  });
});

describe('the chunks of a count of rows', () => {
  test.each([
    [2048, 1024, [1024, 1024]],
    [1500, 1024, [768, 732]],
    [1024, 1024, [1024]],
    [1025, 1024, [640, 385]],
    [120, 50, [50, 50, 20]],
    [1, 256, [1]],
    [0, 256, []],
  ])('%i rows of at most %i follow each other and are nearly even', (count, most, sizes) => {
    const chunks = evenChunks(count, most);
    expect(chunks.map(({ rows }) => rows)).toEqual(sizes);
    let next = 0;
    for (const { first, rows } of chunks) {
      expect(first).toBe(next);
      next += rows;
    }
    expect(next).toBe(count);
  });
});
