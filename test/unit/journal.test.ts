// The journal: chained lines, refusals that name file, line and hashes, torn tails, followers, comparable digests.
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import {
  effectiveEntries,
  journalDigestWithoutTimings,
  openJournal,
  readJournal,
  requirePrefix,
} from '../../src/journal.ts';
import { isTimingMetric, type JournalEvent, withoutTimings } from '../../src/journal-events.ts';
import { canonicalJson } from '../../src/lib/canonical-json.ts';
import { sha256Hex } from '../../src/lib/sha256-node.ts';
import { createNodeStorage } from '../../src/lib/storage-node.ts';

const base = mkdtempSync(join(tmpdir(), 'shaderl-journal-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));
let folders = 0;
const PATH = 'journal.jsonl';

function fresh() {
  const root = join(base, String(folders++));
  return { storage: createNodeStorage(root), file: join(root, PATH), root };
}

/** A clock that ticks a second a line from `start`. */
function clock(start: number): () => string {
  let seconds = start;
  return () => new Date(1000 * seconds++).toISOString();
}

function step(number: number, loss: number, seconds: number): JournalEvent {
  return {
    kind: 'step',
    data: {
      step: number,
      metrics: { loss, step_time: seconds },
      adapterSha256: sha256Hex(`adapter ${number} ${loss}`),
      optimizerSha256: sha256Hex(`optimizer ${number} ${loss}`),
      rollouts: { file: `rollouts/${number}`, sha256: sha256Hex(`${seconds}`), evidenceSha256: sha256Hex(`${loss}`) },
      seconds: { rollout: seconds, update: seconds },
    },
  };
}

const start: JournalEvent = {
  kind: 'run-start',
  data: {
    runId: 'a',
    planSha256: sha256Hex('plan'),
    device: { vendor: 'mesa' },
    kernelFamily: 'portable',
    versions: { shaderl: '0.1.0' },
    shaderDigests: { 'matmul.wgsl': sha256Hex('matmul') },
  },
};
const resume = (fromStep: number): JournalEvent => ({
  kind: 'resume',
  data: { fromStep, folder: null, sealSha256: null, skipped: [], overrides: [], device: {}, versions: {} },
});

async function written(events: readonly JournalEvent[], startSecond = 0) {
  const place = fresh();
  const { journal } = await openJournal(place.storage, PATH, clock(startSecond));
  for (const event of events) await journal.append(event);
  return { ...place, journal };
}

const messageOf = (promise: Promise<unknown>) =>
  promise.then(
    () => 'accepted',
    (error: Error & { code: string }) => `${error.code}: ${error.message}`,
  );

describe('a journal', () => {
  test('gives back what was appended, and goes on after it is opened again', async () => {
    const { storage, journal } = await written([start, step(1, 0.5, 3)]);
    const reopened = await openJournal(storage, PATH, clock(9));
    expect(reopened.torn).toBeNull();
    expect(reopened.journal.entries).toEqual(journal.entries);
    await reopened.journal.append(step(2, 0.25, 3));
    const { entries } = await readJournal(storage, PATH);
    expect(entries.map(({ kind, index }) => [index, kind])).toEqual([
      [0, 'run-start'],
      [1, 'step'],
      [2, 'step'],
    ]);
  });

  test('is a chain that anybody can check with sha256 and canonical JSON alone', async () => {
    const { file } = await written([start, step(1, 0.5, 3), step(2, 0.25, 3)]);
    let prev = '0'.repeat(64);
    for (const line of readFileSync(file, 'utf8').trimEnd().split('\n')) {
      const { sha256, ...covered } = JSON.parse(line) as { sha256: string; prev: string };
      expect(covered.prev).toBe(prev);
      expect(sha256Hex(canonicalJson(covered))).toBe(sha256);
      prev = sha256;
    }
  });

  test('keeps the order of calls that were not awaited', async () => {
    const { storage, journal } = await written([start]);
    await Promise.all([1, 2, 3, 4].map((number) => journal.append(step(number, 1 / number, 1))));
    const { entries } = await readJournal(storage, PATH);
    expect(entries.slice(1).map(({ data }) => ('step' in data ? data.step : -1))).toEqual([1, 2, 3, 4]);
  });

  test('refuses a NaN metric by name, and everything after the gap', async () => {
    const { journal, storage, root } = await written([start]);
    const message = await messageOf(journal.append(step(1, Number.NaN, 1)));
    expect(message.replace(root, 'ROOT')).toMatchInlineSnapshot(
      `"journal-shape: appending a step event to ROOT/journal.jsonl: "data.metrics.loss": found NaN (Invalid input: expected number, received NaN); wanted an event of the journal schema. Correct the caller; nothing was written."`,
    );
    expect(await messageOf(journal.append(step(2, 1, 1)))).toBe(message);
    expect((await readJournal(storage, PATH)).entries.length).toBe(1);
  });

  test('refuses to append where another process has written', async () => {
    const { journal, storage } = await written([start]);
    const other = await openJournal(storage, PATH, clock(50));
    await other.journal.append(step(1, 1, 1));
    expect(await messageOf(journal.append(step(1, 1, 1)))).toMatch(
      /^moved-on: appending to .*journal\.jsonl: found \d+/,
    );
  });
});

describe('an altered journal', () => {
  /** Replaces line `number` (1-based) and returns how reading the file is refused, without the folder. */
  async function refusal(number: number, alter: (line: string) => string): Promise<string> {
    const { storage, file, root } = await written([start, step(1, 0.5, 3), step(2, 0.25, 3)]);
    const lines = readFileSync(file, 'utf8').split('\n');
    const altered = alter(lines[number - 1]!);
    expect(altered).not.toBe(lines[number - 1]);
    lines[number - 1] = altered;
    writeFileSync(file, lines.join('\n'));
    const message = await messageOf(openJournal(storage, PATH, clock(0)));
    expect(await messageOf(readJournal(storage, PATH))).toBe(message);
    return message.replace(root, 'ROOT');
  }
  const rehashed = (line: string, change: (value: Record<string, unknown>) => void) => {
    const { sha256: _old, ...covered } = JSON.parse(line) as Record<string, unknown>;
    change(covered);
    return canonicalJson({ ...covered, sha256: sha256Hex(canonicalJson(covered)) });
  };

  test('is refused with file, line, expected and found hash', async () => {
    expect(await refusal(2, (line) => line.replace('"loss":0.5', '"loss":0.6'))).toMatchInlineSnapshot(
      `"journal-hash: reading ROOT/journal.jsonl line 2: found content with sha256 2c0d28fb812a9da4df7ad9dbf6ea97df6106a7db9b29444d3ba398000b153b4a; wanted 9a0d5a90de14041ed27c90b90b84bb61673d45ecab604f09306064df2a2f1d13, as it says. The journal was changed after it was written: restore it, or start a new run; nothing was trained on."`,
    );
  });

  test('is refused in its last line too', async () => {
    expect(await refusal(3, (line) => line.replace('"loss":0.25', '"loss":0.2'))).toMatch(/^journal-hash: .* line 3:/);
  });

  test('is refused at the next line if the altered one was hashed anew', async () => {
    const message = await refusal(2, (line) =>
      rehashed(line, (value) => {
        value['time'] = '2030-01-01T00:00:00Z';
      }),
    );
    expect(message).toMatch(
      /^journal-chain: reading ROOT\/journal\.jsonl line 3: found prev [0-9a-f]{64}; wanted [0-9a-f]{64}/,
    );
  });

  test('is refused if a line is missing, repeated, re-spelt or not JSON', async () => {
    expect(await refusal(2, () => '')).toMatch(/^journal-syntax: .* line 2/);
    expect(await refusal(2, (line) => `${line}\n${line}`)).toMatch(/^journal-chain: .* line 3/);
    expect(await refusal(2, (line) => line.replace(',', ', '))).toMatch(/^journal-syntax: .* line 2.*another spelling/);
    expect(await refusal(1, (line) => line.slice(5))).toMatch(/^journal-syntax: .* line 1/);
  });

  test('is refused if a well-hashed line is no known event', async () => {
    const message = await refusal(3, (line) =>
      rehashed(line, (value) => {
        value['kind'] = 'stepp';
      }),
    );
    expect(message).toMatch(/^journal-shape: .* line 3/);
  });
});

describe('a torn last line', () => {
  test('is moved to recovery byte for byte, reported and journaled, at every length', async () => {
    const { file, storage: whole } = await written([start, step(1, 0.5, 3)]);
    const bytes = readFileSync(file);
    const firstEnd = bytes.indexOf(10) + 1;
    expect((await readJournal(whole, PATH)).tail.length).toBe(0);
    for (let cut = firstEnd + 1; cut < bytes.length; cut += 37) {
      const { storage } = fresh();
      await storage.write(PATH, bytes.subarray(0, cut));
      const { journal, torn } = await openJournal(storage, PATH, clock(7));
      expect(torn?.to).toBe('recovery/journal.jsonl.1');
      expect(Buffer.from(await storage.read(torn!.to))).toEqual(bytes.subarray(firstEnd, cut));
      expect(journal.entries.map(({ kind }) => kind)).toEqual(['run-start', 'recovery']);
      await journal.append(step(1, 0.5, 3));
      expect((await readJournal(storage, PATH)).entries.length).toBe(3);
    }
  });

  test('is left alone by a reader, which may be looking at a line that is being written', async () => {
    const { storage, file } = await written([start]);
    const before = readFileSync(file);
    appendFileSync(file, '{"data":');
    const { entries, tail } = await readJournal(storage, PATH);
    expect([entries.length, Buffer.from(tail).toString()]).toEqual([1, '{"data":']);
    expect(readFileSync(file).length).toBe(before.length + 8);
  });
});

describe('a follower', () => {
  test('reads on from its position and sees each line once', async () => {
    const { storage, journal } = await written([start]);
    const first = await readJournal(storage, PATH);
    expect((await readJournal(storage, PATH, first.position)).entries).toEqual([]);
    await journal.append(step(1, 0.5, 3));
    await journal.append(step(2, 0.5, 3));
    const second = await readJournal(storage, PATH, first.position);
    expect(second.entries.map(({ index }) => index)).toEqual([1, 2]);
    expect(second.position).toEqual((await readJournal(storage, PATH)).position);
  });

  test('notices a journal that was cut or replaced behind it', async () => {
    const { storage, journal } = await written([start, step(1, 0.5, 3)]);
    const { position } = await readJournal(storage, PATH);
    await storage.write(PATH, (await storage.read(PATH)).slice(0, 100));
    expect(await messageOf(readJournal(storage, PATH, position))).toMatch(/^journal-shrunk/);
    const other = await written([start, step(1, 0.5, 3), step(2, 0.25, 3)], 1000);
    expect(await messageOf(readJournal(other.storage, PATH, position))).toMatch(/^journal-chain: .* line 3/);
    expect(journal.entries.length).toBe(2);
  });
});

describe('comparing two runs', () => {
  const whole = [start, step(1, 0.5, 3), step(2, 0.25, 3), step(3, 0.125, 3)];
  const digest = async (events: readonly JournalEvent[], at = 0) =>
    journalDigestWithoutTimings((await written(events, at)).journal.entries);

  test('the digest does not depend on times, seconds or the run name', async () => {
    const other = { ...start, data: { ...start.data, runId: 'b' } } as JournalEvent;
    const again = [other, step(1, 0.5, 4), step(2, 0.25, 5), step(3, 0.125, 6)];
    expect(await digest(again, 100)).toBe(await digest(whole));
  });

  test('the digest depends on a metric, on the weights and on the order', async () => {
    const reference = await digest(whole);
    expect(await digest([...whole.slice(0, 3), step(3, 0.1250001, 3)])).not.toBe(reference);
    expect(await digest(whole.slice(0, 3))).not.toBe(reference);
    expect(await digest([whole[0]!, whole[2]!, whole[1]!, whole[3]!])).not.toBe(reference);
  });

  test('a run that was stopped and resumed behind its last step has the digest of the whole run', async () => {
    const { storage, journal } = await written(whole.slice(0, 3));
    await journal.append(resume(1));
    await journal.append(step(2, 0.25, 8));
    await journal.append(step(3, 0.125, 9));
    const { entries } = await readJournal(storage, PATH);
    const steps = effectiveEntries(entries).filter(({ kind }) => kind === 'step');
    expect(steps.map(({ index }) => index)).toEqual([1, 4, 5]);
    expect(entries.length).toBe(6);
    expect(await journalDigestWithoutTimings(entries)).toBe(await digest(whole));
  });

  test('a resumed run that did something else has another digest', async () => {
    expect(await digest([...whole.slice(0, 3), resume(1), step(2, 0.26, 8), step(3, 0.125, 9)])).not.toBe(
      await digest(whole),
    );
  });

  test('timing metrics are known by their names', () => {
    const names = [
      'step_time',
      'timing/rollout_seconds',
      'tokens_per_second',
      'profiling/time',
      'completions/dropped_tokens',
    ];
    expect(names.filter(isTimingMetric)).toEqual(names);
    expect(['loss', 'timestep', 'completions/mean_length', 'kl'].filter(isTimingMetric)).toEqual([]);
    expect(withoutTimings([{ seconds: 1, a: { seconds: { b: 1 }, c: 2 } }])).toEqual([{ a: { c: 2 } }]);
  });
});

test('a journal that does not begin with what a checkpoint sealed is refused', async () => {
  const { journal } = await written([start, step(1, 0.5, 3)]);
  const prefix = journal.prefix();
  await journal.append(step(2, 0.25, 3));
  expect(() => requirePrefix(journal.entries, prefix, 'journal.jsonl')).not.toThrow();
  expect(() => requirePrefix(journal.entries, { lines: 0, sha256: '0'.repeat(64) }, 'journal.jsonl')).not.toThrow();
  const other = (await written([start, step(1, 0.5, 3), step(2, 0.25, 3)], 500)).journal.entries;
  expect(() => requirePrefix(other, prefix, 'journal.jsonl')).toThrow(/found sha256 [0-9a-f]{64} at line 2; the/);
  expect(() => requirePrefix(other.slice(0, 1), prefix, 'journal.jsonl')).toThrow(
    /found 1 lines; the checkpoint sealed 2/,
  );
});
