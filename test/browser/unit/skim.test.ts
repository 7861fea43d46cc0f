// Rows of a rollouts file: what a line gives, in chunks of any cut, and what is said of a line that cannot be read.
import { describe, expect, it } from 'vitest';
import type { ByteFile } from '../../../src/inspect/byte-file.ts';
import { filterDefaults, passesFilter } from '../../../src/inspect/filter-rollouts.ts';
import { indexRollouts } from '../../../src/inspect/line-index.ts';
import { readEpisode } from '../../../src/inspect/read-episode.ts';
import { searchRollouts } from '../../../src/inspect/search-text.ts';
import { skimLine } from '../../../src/inspect/skim.ts';
import type { Episode } from '../../../src/rollout/episode.ts';

const bytes = (text: string) => new TextEncoder().encode(text);

/** Token ids are bytes here. */
const idsOf = (text: string) => [...bytes(text)];

function episode(text: string, changes: Partial<Episode> = {}): Episode {
  const ids = idsOf(text);
  return {
    schema: 'shaderl.episode/1',
    // Every key that the skimming looks for, inside a string.
    taskId: 'a "ids":[ and "turns":[ in a name',
    sessionId: 's#1',
    step: 3,
    group: 1,
    member: 2,
    seed: 7,
    policy: 'base',
    temperature: 0.6,
    promptLength: 2,
    ids,
    sources: ids.map((_, i) => (i < 2 ? 'prompt' : 'sampled')),
    mask: ids.map((_, i) => (i < 2 ? 0 : 1)),
    logprobs: ids.map((_, i) => (i < 2 ? null : -0.5)),
    truncatedLogprobs: ids.map((_, i) => (i < 2 ? null : -0.25)),
    turns: [{ span: [2, ids.length], stop: 'length', calls: [] }],
    capped: true,
    discardedTokens: 0,
    verdict: null,
    infrastructure: '"turns":[ is no key here',
    seconds: 1,
    ...changes,
  };
}

function fileOf(content: Uint8Array): ByteFile & { reads: number[] } {
  const reads: number[] = [];
  return {
    label: 'rollouts.jsonl',
    reads,
    size: async () => content.length,
    async read(offset, length) {
      reads.push(length);
      return content.subarray(offset, offset + length);
    },
  };
}

describe('skimming a line', () => {
  it('gives the facts of the record without parsing its arrays', () => {
    const line = JSON.stringify(episode('abcdef'));
    const row = skimLine(bytes(line), 4, 100);
    expect(row).toEqual({
      kind: 'episode',
      line: 4,
      offset: 100,
      bytes: line.length,
      taskId: 'a "ids":[ and "turns":[ in a name',
      step: 3,
      group: 1,
      member: 2,
      seed: 7,
      policy: 'base',
      tokens: 6,
      sampledTokens: 4,
      turns: 1,
      calls: 0,
      failedCalls: 0,
      malformed: false,
      capped: true,
      strict: null,
      reward: null,
      answer: null,
      infrastructure: '"turns":[ is no key here',
    });
  });

  it('reads a record whose keys stand in another order', () => {
    const { ids, ...rest } = episode('abcdef');
    const row = skimLine(bytes(JSON.stringify({ ...rest, ids })), 1, 0);
    expect(row).toMatchObject({ kind: 'episode', tokens: 6, sampledTokens: 4 });
  });

  it.each([
    ['{"schema":', 'wanted one rollout as JSON'],
    ['null', 'found no object'],
    ['{"schema":"shaderl.episode/2"}', 'found schema "shaderl.episode/2"'],
    ['{"schema":"shaderl.episode/1"}', 'wanted one rollout as JSON'],
  ])('says what is wrong with %s', (line, words) => {
    const row = skimLine(bytes(line), 1, 0);
    expect(row).toMatchObject({ kind: 'broken' });
    expect(row.kind === 'broken' && row.fault).toContain(words);
  });
});

describe('indexing a file', () => {
  it('finds every line by its offset when lines span chunks', async () => {
    const lines = Array.from({ length: 40 }, (_, i) => JSON.stringify(episode('x'.repeat(20_000), { member: i })));
    const content = bytes(`${lines.join('\n')}\n`);
    const file = fileOf(content);
    const rows = await indexRollouts(file);
    expect(content.length).toBeGreaterThan(2 * Math.max(...file.reads));
    expect(rows.map((row) => row.kind === 'episode' && row.member)).toEqual(lines.map((_, i) => i));
    for (const [i, row] of rows.entries()) {
      expect(new TextDecoder().decode(content.subarray(row.offset, row.offset + row.bytes))).toBe(lines[i]);
    }
  });

  it('keeps the good lines around a broken one and a torn last one', async () => {
    const good = JSON.stringify(episode('abc'));
    const rows = await indexRollouts(fileOf(bytes(`${good}\nnonsense\n\n${good}\n${good.slice(0, 50)}`)));
    expect(rows.map((row) => row.kind)).toEqual(['episode', 'broken', 'broken', 'episode', 'broken']);
    expect(rows[4]!.kind === 'broken' && rows[4]!.fault).toContain('cut off');
  });
});

describe('reading a record', () => {
  it('names the field of a record that does not fit', () => {
    const line = JSON.stringify({ ...episode('abc'), temperature: 'warm' });
    expect(() => readEpisode(line, 'r.jsonl', 9)).toThrow(
      /reading r.jsonl line 9: .*temperature.*wanted a shaderl.episode\/1/s,
    );
  });
});

describe('searching text', () => {
  it('finds text in either case across tokens, after the prompt first', async () => {
    const lines = [episode('??Käse und Brot'), episode('käKÄSE'), episode('??nichts')];
    const content = bytes(lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
    const matches = await searchRollouts(fileOf(content), 'KÄSE', (id) => Uint8Array.of(id));
    expect(matches).toEqual([
      { line: 1, token: 2 },
      { line: 2, token: 3 },
    ]);
  });
});

describe('filters', () => {
  const row = (changes: Partial<Episode>) => skimLine(bytes(JSON.stringify(episode('abc', changes))), 1, 0);
  it('shows a rollout only if every chosen condition holds', () => {
    const capped = row({ capped: true });
    expect(passesFilter(capped, 3, filterDefaults)).toBe(true);
    expect(passesFilter(capped, 3, { ...filterDefaults, step: 4 })).toBe(false);
    expect(passesFilter(capped, 3, { ...filterDefaults, capped: true })).toBe(true);
    expect(passesFilter(row({ capped: false }), 3, { ...filterDefaults, capped: true })).toBe(false);
    expect(passesFilter(capped, 3, { ...filterDefaults, minReward: 0.1 })).toBe(false);
    expect(passesFilter(capped, 3, { ...filterDefaults, failed: true })).toBe(true);
    expect(passesFilter(skimLine(bytes('x'), 1, 0), 3, { ...filterDefaults, capped: true })).toBe(false);
  });
});
