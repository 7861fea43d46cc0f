// One rollout made ready for the views: checked, decoded to pieces, audited, with its advantage.
// Not a drawing. Invariant: what cannot be had (no tokenizer, an incomplete group) is null with a sentence that says
// why.

import type { AuditContext } from '../src/audit/context.ts';
import type { Finding } from '../src/audit/findings.ts';
import { computeAdvantages } from '../src/grpo/advantages.ts';
import { auditContexts, findingsOf } from '../src/inspect/audit-view.ts';
import { type LossSettings, lossSettings } from '../src/inspect/clip-states.ts';
import { readEpisode } from '../src/inspect/read-episode.ts';
import type { EpisodeSummary, RolloutRow } from '../src/inspect/skim.ts';
import { type TokenPiece, tokenPieces } from '../src/inspect/token-text.ts';
import type { Text } from '../src/model/text.ts';
import type { Episode } from '../src/rollout/episode.ts';
import { embeddedText, fitsText, tokenBytes } from './embedded-text.ts';
import { type RunSource, readingText, rowAt } from './run-source.ts';

export interface OpenedRollout {
  file: string;
  line: number;
  episode: Episode;
  text: Text | null;
  textNote: string;
  pieces: TokenPiece[];
  findings: Finding[];
  scope: string;
  /** Of the whole rollout, in its group; null with a reason. */
  advantage: number | null;
  advantageNote: string;
  /** The run's loss; null where its configuration is not known. */
  loss: LossSettings | null;
}

/** Whether an id is an added token: one whose own text is the token of that id. */
export function controlTokens(text: Text): (id: number) => boolean {
  const known = new Map<number, boolean>();
  const bytesOf = tokenBytes(text);
  return (id) => {
    const found = known.get(id) ?? (bytesOf(id) !== null && text.addedTokenId(text.decode([id])) === id);
    known.set(id, found);
    return found;
  };
}

const contexts = new WeakMap<Text, (episode: Episode) => AuditContext | null>();

function contextOf(source: RunSource, episode: Episode): AuditContext | null {
  if (!source.config || !source.text) return null;
  let make = contexts.get(source.text);
  if (!make) contexts.set(source.text, (make = auditContexts(source.config, source.text)));
  return make(episode);
}

function episodesOf(source: RunSource, file: string): EpisodeSummary[] {
  const rows = (source.files.get(file) ?? []).filter((row) => row.kind === 'episode');
  return rows.sort((a, b) => a.group - b.group || a.member - b.member);
}

function advantageOf(source: RunSource, file: string, episode: Episode): [number | null, string] {
  const rows = episodesOf(source, file);
  const sizes = new Map<number, number>();
  for (const { group } of rows) sizes.set(group, (sizes.get(group) ?? 0) + 1);
  const [size = 0] = sizes.values();
  if (size < 2) return [null, 'no group: the rollout stands alone'];
  if ([...sizes.values()].some((count) => count !== size)) return [null, 'the groups of this file are not complete'];
  const scale = source.config?.grpo.scaleRewards ?? 'group';
  const { advantages } = computeAdvantages(
    rows.map(({ reward }) => [reward]),
    { groupSize: size, scale },
  );
  const at = rows.findIndex((row) => row.group === episode.group && row.member === episode.member);
  return [advantages[at] ?? null, `in its group of ${size}, rewards scaled by ${scale}`];
}

/** Waits until the run has read the file's rows. */
function whenRead(source: RunSource, ready: () => boolean): Promise<void> {
  return new Promise((resolve) => {
    const off = source.changed.on(check);
    function check(): void {
      if (!ready()) return;
      off();
      resolve();
    }
    check();
  });
}

/** How many findings the audit has on a line; a line that cannot be read counts as one. */
export async function countFindings(source: RunSource, file: string, row: RolloutRow): Promise<number> {
  if (row.kind === 'broken') return 1;
  const episode = readEpisode(await source.readLine(file, row), file, row.line);
  return findingsOf(episode, contextOf(source, episode)).findings.length;
}

/** Opens a rollout. Throws AuditError `bad-rollout`, or an error that says which line is not there. */
export async function openRollout(source: RunSource, file: string, line: number): Promise<OpenedRollout> {
  await whenRead(source, () => {
    const hasRow = rowAt(source, file, line) !== null || !source.loading;
    return hasRow && source.textNote !== readingText;
  });
  const row = rowAt(source, file, line);
  if (!row) {
    throw new Error(
      `opening ${file} line ${line}: found no such line in ${source.name}; wanted a rollout of the list.`,
    );
  }
  const episode = readEpisode(await source.readLine(file, row), file, line);
  let { text, textNote } = source;
  if (!text) {
    const embedded = await embeddedText();
    if (fitsText(embedded, episode.ids)) {
      text = embedded;
      textNote = `text by the embedded policy's tokenizer, because ${source.textNote}`;
    } else textNote = `ids only: ${source.textNote}`;
  }
  const pieces = tokenPieces(
    episode.ids,
    text ? tokenBytes(text) : () => null,
    text ? controlTokens(text) : () => false,
  );
  const [advantage, advantageNote] = advantageOf(source, file, episode);
  return {
    file,
    line,
    episode,
    text,
    textNote,
    pieces,
    ...findingsOf(episode, contextOf(source, episode)),
    advantage,
    advantageNote,
    loss: source.config ? lossSettings(source.config) : null,
  };
}

/** The lines of a rollout's group, by member. */
export function groupLines(source: RunSource, file: string, group: number): EpisodeSummary[] {
  return episodesOf(source, file).filter((row) => row.group === group);
}
