// What the inspector's server and its page say to each other: paths under the start's token, and their JSON.
// Not the page's own data (its sources also read dropped files). Invariant: everything here is read-only.
import type { JournalEntry } from '../journal-events.ts';
import type { RolloutRow } from './skim.ts';

/** GET api/runs. */
export interface RunListing {
  runs: { name: string; label: string }[];
  /** Files of the policy that comes with shaderl, with sizes; empty if it is not there. */
  embedded: { name: string; bytes: number }[];
  /** Tree hash of the program's source, for qualification.json. */
  sourceSha256: string;
}

/** GET api/<run>/overview. */
export interface RunOverview {
  name: string;
  /** run-config.json as it stands; null where there is none. */
  config: unknown;
  rolloutFiles: string[];
  evaluations: string[];
  /** Folders under checkpoints/ with an adapter in them. */
  checkpoints: string[];
  /** The model's tokenizer files that can be had from api/<run>/tokenizer/<name>. */
  tokenizerFiles: string[];
  /** Null for a run that is no experiment. */
  experiment: ExperimentOverview | null;
}

/** An experiment's plan in a few facts, and what its stages decided; null where they have not yet. */
export interface ExperimentFile {
  planSha256: string;
  recipe: string;
  arm: string;
  /** Training steps, the steps that DEV looks at, seconds of the budget. */
  steps: number;
  devSteps: number[];
  wallSeconds: number;
  selection: {
    rule: string;
    points: { step: number; eligible: boolean; reasons: string[]; rank: number | null }[];
    selected: number | null;
    assessed: number;
  } | null;
  recommendation: { recommended: string; step: number | null; reason: string } | null;
  /** Files that cannot be read. */
  faults: string[];
}

/** The same with its journal, of whose heartbeats only the last of each attempt is sent. */
export interface ExperimentOverview extends ExperimentFile {
  entries: JournalEntry[];
}

/** GET api/<run>/journal, and what the live link sends when a run has moved on. */
export interface JournalState {
  entries: JournalEntry[];
  fault: string | null;
}

/** One line of GET api/<run>/rollouts?file=...&file=... (all files where none is named). */
export interface RolloutFileRows {
  file: string;
  rows: RolloutRow[];
}

/** One line of GET api/<run>/search?text=.... */
export interface RolloutFileMatches {
  file: string;
  matches: { line: number; token: number }[];
}

/** A message of the live link (WebSocket `live`). */
export type LiveMessage =
  | { kind: 'journal'; run: number; from: number; entries: JournalEntry[]; fault: string | null }
  | { kind: 'experiment'; run: number; experiment: ExperimentOverview }
  | { kind: 'files'; run: number; rolloutFiles: string[]; evaluations: string[]; checkpoints: string[] };

/** Tokenizer files of a model folder, the only ones that are served from outside a run. */
export const tokenizerFileNames = [
  'tokenizer.json',
  'tokenizer_config.json',
  'chat_template.jinja',
  'generation_config.json',
  'config.json',
] as const;
