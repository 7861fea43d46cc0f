// One run as the views see it, wherever its files come from: a server, or files that were dropped on the page.
// Not a cache of rollouts: lines are read when they are opened. Invariant: a fault of one file leaves the rest usable.
import type { ExperimentOverview, RolloutFileMatches, RolloutFileRows } from '../src/inspect/api.ts';
import type { RolloutRow } from '../src/inspect/skim.ts';
import type { JournalEntry } from '../src/journal-events.ts';
import type { FileSource } from '../src/model/file-source.ts';
import type { Text } from '../src/model/text.ts';
import type { RunConfig } from '../src/run-config.ts';
import type { Emitter } from './dom.ts';

export interface RunSource {
  readonly name: string;
  readonly label: string;
  config: RunConfig | null;
  journal: JournalEntry[];
  /** The experiment that the run is the training of; null for a run of its own. */
  experiment: ExperimentOverview | null;
  /** What is wrong with the run's own files, for the banner; empty if nothing is. */
  faults: string[];
  evaluations: string[];
  checkpoints: string[];
  /** Rows of each rollouts file that has been read, in the run's order. */
  files: Map<string, RolloutRow[]>;
  /** Still reading rollouts. */
  loading: boolean;
  text: Text | null;
  /** Where the tokenizer comes from, or why there is none. */
  textNote: string;
  readonly changed: Emitter;
  /** The text of one line. */
  readLine(file: string, row: RolloutRow): Promise<string>;
  readEvaluation(path: string): Promise<string>;
  search(text: string): AsyncGenerator<RolloutFileMatches>;
  /** A sealed adapter's folder. */
  adapterFiles(folder: string): FileSource | null;
}

/** `textNote` while the tokenizer is on its way. */
export const readingText = 'reading the tokenizer';

/** Adds rows of a file in the run's order: steps, then evaluations. */
export function addRows(source: RunSource, { file, rows }: RolloutFileRows): void {
  source.files.set(file, rows);
  const rank = (name: string) => (name.startsWith('evaluations/') ? 1 : 0);
  const names = [...source.files.keys()];
  const last = names.at(-2);
  if (last === undefined || rank(last) < rank(file) || (rank(last) === rank(file) && last < file)) return;
  const sorted = [...source.files].sort(([a], [b]) => rank(a) - rank(b) || (a < b ? -1 : a > b ? 1 : 0));
  source.files.clear();
  for (const [name, list] of sorted) source.files.set(name, list);
}

/** The row of a file's line, or null. */
export function rowAt(source: RunSource, file: string, line: number): RolloutRow | null {
  return source.files.get(file)?.find((row) => row.line === line) ?? null;
}

/** A short name for a rollouts file: `step 12`, `before`. */
export function fileTitle(file: string): string {
  const step = /step-0*(\d+)\.jsonl$/.exec(file)?.[1];
  if (step !== undefined) return `step ${step}`;
  return file.replace(/^evaluations\//, '').replace(/(\.rollouts)?\.jsonl$/, '');
}
