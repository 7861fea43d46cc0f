// Draws and log-probs of rows that several workgroups share, and the end of a decode step on the device.
import { describe, expect, test } from 'vitest';
import { allocate, readBytes, release, upload } from '../../src/gpu/buffers.ts';
import { createRecorder } from '../../src/gpu/recorder.ts';
import { advance, readResults, recordAdvance, resultWords } from '../../src/kernels/advance.ts';
import { testValues } from '../../src/kernels/case-data.ts';
import { logprobsWide } from '../../src/kernels/logprobs-wide.ts';
import { cutFits, rowCut } from '../../src/kernels/row-cut.ts';
import { compareRowForm, rowFormCases } from '../../src/kernels/row-forms.ts';
import { rowList } from '../../src/kernels/row-list.ts';
import { rowSums } from '../../src/kernels/row-sums.ts';
import { rowTops } from '../../src/kernels/row-tops.ts';
import { keyRow, keyWords } from '../../src/kernels/sample.ts';
import { sampleWide } from '../../src/kernels/sample-wide.ts';
import { createRowWork, recordRowDraw, sharesRows } from '../../src/kernels/vocabulary-row.ts';
import { useGpu } from '../support/gpu.ts';
import { describeQualification } from './run-kernel.ts';

const gpu = useGpu();

for (const kernel of [rowTops, rowSums, rowList, sampleWide, logprobsWide, advance]) describeQualification(gpu, kernel);

describe('rows that several workgroups share', () => {
  test.each(
    rowFormCases.map((run) => {
      const { temperature, topK, topP, minP } = run.settings;
      const { STRIPE, CAPACITY } = run.cut;
      const name = `${run.vocabulary} ids, ${run.kind}, T ${temperature} k ${topK} p ${topP} min ${minP}`;
      return [`${name}, stripes of ${STRIPE}, lists of ${CAPACITY}`, run] as const;
    }),
  )('give the bits of one workgroup a row: %s', async (_name, run) => {
    expect(await compareRowForm(gpu(), run)).toBeNull();
  });

  test('are chosen by device and vocabulary: large ones on GPUs, up to what the cut holds', () => {
    expect(sharesRows('tiles', 151_936)).toBe(true);
    expect(sharesRows('tiles', 262_144)).toBe(true);
    expect(sharesRows('tiles', 320)).toBe(false);
    expect(sharesRows('lanes', 151_936)).toBe(false);
    expect(sharesRows('tiles', 10_000_000)).toBe(false);
    expect(cutFits(262_145, rowCut)).toBe(false);
  });
});

test('steps on the device draw what the host would draw step by step', async () => {
  const rows = 3;
  const vocabulary = 300;
  const steps = 5;
  const settings = { temperature: 0.9, topK: 50, topP: 0.9, minP: 0 };
  const logits = testValues(rows * vocabulary, 77, 0.2);
  const recorder = createRecorder(gpu());
  const work = createRowWork(gpu(), rows, vocabulary);
  const key = (member: number, position: number) => ({ seed: 1, step: 2, group: 3, member, position });
  const take = (data: Uint32Array<ArrayBuffer> | Float32Array<ArrayBuffer>) => {
    const view = allocate(gpu(), 'test', data.byteLength);
    upload(gpu(), view, data);
    return view;
  };
  const keysOf = (step: number) => Uint32Array.from([0, 1, 2].flatMap((r) => keyRow(key(r, 10 * r + step), r !== 1)));
  const views = {
    keys: take(keysOf(0)),
    ids: take(new Uint32Array(rows)),
    truncated: take(new Uint32Array(rows)),
    stats: take(new Uint32Array(rows * 4)),
    tokens: take(Uint32Array.of(7, 8, 9)),
    meta: take(Uint32Array.of(0, 10, 1, 20, 2, 30)),
    results: take(new Uint32Array(steps * rows * resultWords)),
    steps: take(new Uint32Array(1)),
  };
  const chunk = { logits: take(logits), stride: vocabulary, rowOffset: 0, rows };
  try {
    const words = async (view: (typeof views)['ids'], count: number) =>
      new Uint32Array(await readBytes(gpu(), view, count * 4));
    const wanted: Uint32Array[] = [];
    for (let step = 0; step < steps; step++) {
      upload(gpu(), views.keys, keysOf(step));
      recordRowDraw(recorder, work, chunk, views, settings);
      recorder.submit();
      wanted.push(await words(views.ids, rows));
    }
    upload(gpu(), views.keys, keysOf(0));
    for (let step = 0; step < steps; step++) {
      recordRowDraw(recorder, work, chunk, views, settings);
      recordAdvance(recorder, views, rows, steps);
    }
    recorder.submit();
    const ring = await words(views.results, steps * rows * resultWords);
    for (const [step, ids] of wanted.entries()) {
      const found = readResults(ring, step, rows);
      expect(found.map((result) => result?.id ?? null)).toEqual([ids[0], null, ids[2]]);
      expect(found[0]!.logprob).toBeLessThanOrEqual(found[0]!.truncatedLogprob);
      expect(found[0]!.entropy).toBeGreaterThan(0);
    }
    const last = wanted.at(-1)!;
    expect([...(await words(views.tokens, rows))]).toEqual([last[0], 8, last[2]]);
    expect([...(await words(views.meta, rows * 2))]).toEqual([0, 15, 1, 20, 2, 35]);
    expect((await words(views.keys, keyWords))[4]).toBe(steps);
    expect([...(await words(views.steps, 1))]).toEqual([steps]);
  } finally {
    for (const view of [...Object.values(views), chunk.logits]) release(gpu(), view);
    work.destroy();
  }
});
