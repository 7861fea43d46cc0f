// Draws and log-probs with several workgroups a row, against the kernels that take one: the same bits are wanted.
// Not accuracy: that is each kernel's own qualification. Invariant: ids, truncated log-probs, log-probs and entropy are
// compared to the last bit, for every filter, for lists that fit and that do not, and for rows that are broken or idle.
import { allocate, readBytes, release, upload, type View } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import { createRecorder, type Recorder } from '../gpu/recorder.ts';
import { testValues, withStride } from './case-data.ts';
import { type RowCut, rowCut } from './row-cut.ts';
import { type DrawSettings, keyRow, keyWords } from './sample.ts';
import { createRowWork, recordRowDraw, recordRowLogprobs } from './vocabulary-row.ts';

export interface RowFormCase {
  rows: number;
  vocabulary: number;
  settings: DrawSettings;
  /** `model`: a few large, many small; `flat`: all within a tenth; `tied`: few different values. */
  kind: 'model' | 'flat' | 'tied' | 'equal' | 'broken' | 'idle';
  cut: RowCut;
}

const small: RowCut = { SLICE: 1024, STRIPE: 8, CAPACITY: 512, LONGEST: 300 };
const settingsList: readonly DrawSettings[] = [
  { temperature: 1, topK: 0, topP: 1, minP: 0 },
  { temperature: 0.8, topK: 20, topP: 0.95, minP: 0 },
  { temperature: 1, topK: 0, topP: 0.95, minP: 0 },
  { temperature: 0.7, topK: 100, topP: 1, minP: 0.02 },
  { temperature: 1, topK: 0, topP: 0.3, minP: 0.1 },
  { temperature: 1.3, topK: 0, topP: 1, minP: 0.05 },
  { temperature: 0, topK: 20, topP: 0.95, minP: 0 },
];

/** What is compared: small vocabularies in small pieces with every setting, and a large one as programs cut it. */
export const rowFormCases: readonly RowFormCase[] = [
  ...settingsList.flatMap((settings, i): RowFormCase[] =>
    (['model', 'flat', 'tied', 'equal', 'broken', 'idle'] as const).map((kind, k) => {
      const cut = {
        ...small,
        STRIPE: [8, 32][k % 2]!,
        CAPACITY: (i + k) % 4 === 3 ? 16 : 512,
        LONGEST: i % 2 === 0 ? 300 : 30,
      };
      return { rows: 5, vocabulary: [1000, 1025, 2047][(i + k) % 3]!, settings, kind, cut };
    }),
  ),
  ...settingsList.slice(0, 3).map((settings): RowFormCase => {
    return { rows: 2, vocabulary: 151_936, settings, kind: 'model', cut: rowCut };
  }),
  { rows: 1, vocabulary: 151_936, settings: settingsList[2]!, kind: 'flat', cut: { ...rowCut, STRIPE: 32 } },
];

const recorders = new WeakMap<GPUDevice, Recorder>();

function recorderOf(gpu: Gpu): Recorder {
  let recorder = recorders.get(gpu.device);
  if (!recorder) recorders.set(gpu.device, (recorder = createRecorder(gpu)));
  return recorder;
}

/** Logits [rows, stride] of a case, with large values past the vocabulary. */
function logitsOf({ rows, vocabulary, kind }: RowFormCase, stride: number): Float32Array<ArrayBuffer> {
  const noise = testValues(rows * vocabulary, 17 + vocabulary);
  const logits = noise.map((value, i) => {
    if (kind === 'equal') return -2.5;
    if (kind === 'flat') return Math.fround(value * 0.1);
    if (kind === 'tied') return Math.round(value * 3) / 2;
    // The sum of the two is roughly bell-shaped; one id in a thousand stands out.
    const spread = value + noise[(i * 7 + 3) % noise.length]!;
    return Math.fround(Math.max(-9, Math.min(9, spread * 3)) + (i % 997 === 5 ? 6 : 0));
  });
  if (kind === 'broken') logits[vocabulary + 7] = Number.NaN;
  return withStride(logits, rows, vocabulary, stride, 1e30);
}

/** Words of everything that one form gives: per row id, truncated log-prob, stats of the draw, stats of given targets. */
async function wordsOf(gpu: Gpu, run: RowFormCase, cut: RowCut | null): Promise<Uint32Array> {
  const { rows, vocabulary, settings, kind } = run;
  const stride = Math.ceil(vocabulary / 4) * 4 + 4;
  const rowOffset = 1;
  const all = rows + rowOffset;
  const recorder = recorderOf(gpu);
  const work = createRowWork(gpu, rows, vocabulary, cut);
  const views: View[] = [];
  const take = (data: Float32Array<ArrayBuffer> | Uint32Array<ArrayBuffer>) => {
    const view = allocate(gpu, 'row forms', data.byteLength);
    upload(gpu, view, data);
    views.push(view);
    return view;
  };
  const keys = new Uint32Array(all * keyWords);
  for (let r = 0; r < rows; r++) {
    const key = { seed: 5, step: 1, group: 2, member: r, position: 31 * r };
    keys.set(keyRow(key, kind !== 'idle' || r % 2 === 0), (rowOffset + r) * keyWords);
  }
  try {
    const logits = take(logitsOf(run, stride));
    const [ids, truncated] = [take(new Uint32Array(all).fill(3)), take(new Uint32Array(all).fill(9))];
    const [stats, given] = [take(new Uint32Array(all * 4).fill(9)), take(new Uint32Array(all * 4).fill(9))];
    const targets = take(Uint32Array.from({ length: all }, (_, r) => (r * 7919) % vocabulary));
    const chunk = { logits, stride, rowOffset, rows };
    recordRowDraw(recorder, work, chunk, { keys: take(keys), ids, truncated, stats }, settings);
    recordRowLogprobs(recorder, work, chunk, targets, given, 1 / (settings.temperature || 1));
    recorder.submit();
    const parts: number[] = [];
    for (const [view, words] of [
      [ids, all],
      [truncated, all],
      [stats, all * 4],
      [given, all * 4],
    ] as const) {
      parts.push(...new Uint32Array(await readBytes(gpu, view, words * 4)));
    }
    return Uint32Array.from(parts);
  } finally {
    for (const view of views) release(gpu, view);
    work.destroy();
  }
}

/** Compares both forms on a case; null where they agree, else what differs. */
export async function compareRowForm(gpu: Gpu, run: RowFormCase): Promise<string | null> {
  const wanted = await wordsOf(gpu, run, null);
  const found = await wordsOf(gpu, run, run.cut);
  const at = wanted.findIndex((word, i) => word !== found[i]);
  if (at < 0) return null;
  const { temperature, topK, topP, minP } = run.settings;
  return (
    `${run.rows} rows of ${run.vocabulary} ids, ${run.kind}, T ${temperature} k ${topK} p ${topP} min ${minP}: word ${at} ` +
    `is ${found[at]!.toString(16)}, wanted ${wanted[at]!.toString(16)}`
  );
}

/** One result for all cases, as `compareForms` gives them. */
export async function compareRowForms(gpu: Gpu): Promise<{ name: string; passed: boolean; detail: string }> {
  const name = 'sample-wide and logprobs-wide against sample and logprobs';
  for (const run of rowFormCases) {
    const difference = await compareRowForm(gpu, run);
    if (difference) return { name, passed: false, detail: difference };
  }
  return { name, passed: true, detail: `${rowFormCases.length} cases, equal bits` };
}
