// What is done with rows of logits over the whole vocabulary: draws, log-probs and entropy, in the form that suits the
// device and the vocabulary. Not a kernel. Invariant: both forms give the same bits, and which one runs does not depend
// on the number of rows, so sampler and trainer agree on every log-prob; only how a row is cut, which changes no bit,
// follows the number of rows.
import { allocate, release, type View } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { type KernelVariant, kernelVariant } from '../gpu/variant.ts';
import { logprobs, rowGrid } from './logprobs.ts';
import { logprobsWide } from './logprobs-wide.ts';
import { binStride, blocksOf, cutFits, panelsOf, type RowCut, rowCut, slicesOf } from './row-cut.ts';
import { rowList } from './row-list.ts';
import { rowSums } from './row-sums.ts';
import { rowTops } from './row-tops.ts';
import { type DrawSettings, sample, sampleScalars } from './sample.ts';
import { drawsFromList, pickScalars, sampleWide } from './sample-wide.ts';

/** From how many ids on several workgroups share a row. */
const wideVocabulary = 8192;

/** Whether several workgroups share each row: follows from the device and the vocabulary alone. */
export function sharesRows(variant: KernelVariant, vocabulary: number): boolean {
  return variant === 'tiles' && vocabulary >= wideVocabulary && cutFits(vocabulary, rowCut);
}

/** A cut with the constants that it gives the stages: one object each, so that pipelines are found by identity. */
interface CutConstants {
  cut: RowCut;
  tops: { SLICE: number };
  sums: Record<'none' | 'masses' | 'bins' | 'weights', Record<string, number>>;
}

function constantsOf(cut: RowCut): CutConstants {
  const { SLICE, STRIPE } = cut;
  const sums = (MASSES: number, BINS: number, WEIGHTS: number) => ({ STRIPE, MASSES, BINS, WEIGHTS });
  return {
    cut,
    tops: { SLICE },
    sums: { none: sums(0, 0, 0), masses: sums(1, 0, 0), bins: sums(0, 1, 0), weights: sums(0, 1, 1) },
  };
}

/** Few rows take many workgroups each; with many rows, wider stripes read memory in longer runs. */
const cuts = [8, 16, 32].map((STRIPE) => constantsOf({ ...rowCut, STRIPE }));

/** Buffers that the stages of one chunk of rows pass on. */
export interface RowWork {
  /** Ids below it exist. */
  vocabulary: number;
  /** Null where one workgroup does a whole row. */
  shared: {
    forced: CutConstants | null;
    tops: View;
    bins: View;
    partials: View;
    /** What draws need besides; allocated for the first of them. */
    draws(): { masses: View; list: View };
  } | null;
  /** For bindings that are neither read nor written. */
  unused: View;
  destroy(): void;
}

/**
 * Allocates what log-probs of chunks of up to `rows` rows need, and with the first draw what draws need: where rows are
 * shared, 6 KB a row and 300 KB more for draws; else nothing. `cut` is given by comparisons alone: it forces the shared
 * form, or with null the other.
 */
export function createRowWork(gpu: Gpu, rows: number, vocabulary: number, cut?: RowCut | null): RowWork {
  const views: View[] = [];
  const take = (label: string, elements: number) => {
    const view = allocate(gpu, `row.${label}`, elements * 4);
    views.push(view);
    return view;
  };
  const own = cut === undefined ? (sharesRows(kernelVariant(gpu.identity), vocabulary) ? rowCut : null) : cut;
  let draws: { masses: View; list: View } | null = null;
  return {
    vocabulary,
    shared: own && {
      forced: cut ? constantsOf(cut) : null,
      tops: take('tops', rows * slicesOf(vocabulary, own)),
      bins: take('bins', rows * binStride),
      partials: take('partials', rows * 512),
      draws: () =>
        (draws ??= {
          masses: take('masses', (rows * blocksOf(vocabulary, own) * 512) / own.STRIPE),
          list: take('list', rows * own.CAPACITY * 2),
        }),
    },
    unused: take('unused', 4),
    destroy: () => {
      for (const view of views) release(gpu, view);
    },
  };
}

/** A chunk of rows of logits: row i of `logits` [rows, stride] belongs to row `rowOffset` + i of all rows. */
export interface LogitRows {
  logits: View;
  /** Elements from row to row. */
  stride: number;
  rowOffset: number;
  rows: number;
}

/**
 * Records log-prob of the target and entropy of each row of the chunk: `stats` [all rows, 4] = max of logits / T,
 * log-sum-exp, log-prob, entropy in nats, as `logprobs` defines them. `targets` [all rows]; `noTarget` leaves a row.
 */
export function recordRowLogprobs(
  r: Recorder,
  work: RowWork,
  chunk: LogitRows,
  targets: View,
  stats: View,
  inverseTemperature: number,
): void {
  if (work.shared) recordSums(r, work, work.shared, chunk, inverseTemperature, 'none', 0);
  recordStats(r, work, chunk, targets, stats, inverseTemperature);
}

/**
 * Records one draw a row of the chunk, as `sample` defines it, with the log-prob and entropy of what was drawn: `ids`
 * and `truncated` [all rows] and `stats` [all rows, 4], all from `chunk.rowOffset`. `keys`: [all rows, 8], see keyRow.
 * Of rows that are not live, ids and truncated are left as they are. Two dispatches, or four or five where several
 * workgroups share a row. @throws KernelError `sampling-settings`.
 */
export function recordRowDraw(
  r: Recorder,
  work: RowWork,
  chunk: LogitRows,
  views: { keys: View; ids: View; truncated: View; stats: View },
  settings: DrawSettings,
): void {
  const { shared, vocabulary } = work;
  const scalars = sampleScalars(settings);
  const inverseTemperature = scalars['inverseTemperature']!;
  if (shared) recordSharedDraw(r, work, shared, chunk, views, settings, scalars);
  else {
    const { rows, stride, rowOffset } = chunk;
    const bound = [chunk.logits, views.keys, views.ids, views.truncated, work.unused];
    r.dispatch(sample, bound, { rows, vocabulary, stride, rowOffset, ...scalars }, rowGrid(rows));
  }
  recordStats(r, work, chunk, views.ids, views.stats, inverseTemperature);
}

type Shared = NonNullable<RowWork['shared']>;

const cutFor = (shared: Shared, rows: number) => shared.forced ?? cuts[rows <= 8 ? 0 : rows <= 32 ? 1 : 2]!;

function recordSharedDraw(
  r: Recorder,
  work: RowWork,
  shared: Shared,
  chunk: LogitRows,
  views: { keys: View; ids: View; truncated: View },
  settings: DrawSettings,
  scalars: Record<string, number>,
): void {
  const { logits, rows, stride, rowOffset } = chunk;
  const { vocabulary } = work;
  const { tops, bins } = shared;
  const { masses, list } = shared.draws();
  const { cut, tops: listConstants } = cutFor(shared, rows);
  const params = { rows, vocabulary, stride, rowOffset, ...scalars, ...pickScalars(vocabulary, cut) };
  const greedy = settings.temperature === 0;
  const topK = settings.topK < vocabulary ? settings.topK : 0;
  const listed = !greedy && drawsFromList(settings, vocabulary);
  const asked = greedy ? 'none' : topK > 0 ? 'bins' : listed ? 'weights' : 'masses';
  recordSums(r, work, shared, chunk, scalars['inverseTemperature']!, asked, scalars['minLog']!);
  if (listed) {
    const massStride = (blocksOf(vocabulary, cut) * 256) / cut.STRIPE;
    r.dispatch(
      rowList,
      [logits, tops, bins, list, masses],
      { ...params, topK, longest: cut.LONGEST, massStride },
      [slicesOf(vocabulary, cut), rows, 1],
      listConstants,
    );
  }
  const bound = [logits, views.keys, tops, masses, bins, list, views.ids, views.truncated];
  r.dispatch(sampleWide, bound, params, [1, rows, 1]);
}

function recordSums(
  r: Recorder,
  { vocabulary, unused }: RowWork,
  shared: Shared,
  { logits, stride, rows }: LogitRows,
  inverseTemperature: number,
  asked: keyof CutConstants['sums'],
  minLog: number,
): void {
  const constants = cutFor(shared, rows);
  const { cut } = constants;
  const { tops, bins, partials } = shared;
  const masses = asked === 'none' ? unused : shared.draws().masses;
  const slices = slicesOf(vocabulary, cut);
  const params = { rows, vocabulary, stride, slices, panels: panelsOf(vocabulary, cut), inverseTemperature, minLog };
  r.dispatch(rowTops, [logits, tops, bins], params, [slices, rows, 1], constants.tops);
  const bound = [logits, tops, partials, masses, bins];
  r.dispatch(rowSums, bound, params, [256 / cut.STRIPE, rows, 1], constants.sums[asked]);
}

function recordStats(
  r: Recorder,
  { shared, vocabulary }: RowWork,
  { logits, stride, rowOffset, rows }: LogitRows,
  targets: View,
  stats: View,
  inverseTemperature: number,
): void {
  const params = { rows, vocabulary, stride, rowOffset, inverseTemperature };
  if (!shared) {
    r.dispatch(logprobs, [logits, targets, stats], params, rowGrid(rows));
    return;
  }
  const slices = slicesOf(vocabulary, cutFor(shared, rows).cut);
  r.dispatch(logprobsWide, [logits, targets, shared.tops, shared.partials, stats], { ...params, slices }, [1, rows, 1]);
}
