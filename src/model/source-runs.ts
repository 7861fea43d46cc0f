// Encodes text that comes from two hands, a template's scaffold and observations, and says whose each token is.
// Not a concatenation of encodings: pieces may merge across a seam as they do in the whole text ("\n" + "\n4").
// Invariant: added tokens count in template runs only; a token with any byte of an observation is an observation's.
import type { Span } from './forged-content.ts';
import type { Tokenizer } from './tokenizer.ts';

/** Who wrote a stretch of text, and hence a token. */
export type Hand = 'template' | 'observation';

/** Stretches of text in order; `forged` spans of a template's stretch spell added tokens but are ordinary text. */
export type Runs = { text: string; source: Hand; forged?: readonly Span[] }[];

/** Token ids with the source of each. */
export interface SourcedIds {
  ids: number[];
  sources: Hand[];
}

/** Ids and sources of the runs, in order. */
export function encodeRuns(tokenizer: Tokenizer, runs: Runs): SourcedIds {
  const result: SourcedIds = { ids: [], sources: [] };
  let pending: Runs = [];
  const flush = () => {
    const { ids, sources } = encodeOrdinaryRuns(tokenizer, pending);
    result.ids.push(...ids);
    result.sources.push(...sources);
    pending = [];
  };
  for (const run of runs) {
    if (run.source === 'observation') {
      pending.push(run);
      continue;
    }
    const forged = new Set(run.forged?.map((span) => span.start));
    for (const part of tokenizer.matcher.split(run.text, (found) => !forged.has(found.start))) {
      if ('text' in part) {
        pending.push({ text: part.text, source: 'template' });
        continue;
      }
      flush();
      result.ids.push(part.token.id);
      result.sources.push('template');
    }
  }
  flush();
  return result;
}

/** Runs without added tokens, encoded as one text; sources by the bytes that each token covers. */
function encodeOrdinaryRuns(tokenizer: Tokenizer, runs: Runs): SourcedIds {
  const ids = tokenizer.encodeOrdinary(runs.map((run) => run.text).join(''));
  const utf8 = new TextEncoder();
  const observed: boolean[] = [];
  for (const { text, source } of runs) {
    const { length } = utf8.encode(tokenizer.normalise(text));
    for (let i = 0; i < length; i++) observed.push(source === 'observation');
  }
  const lengths = ids.map((id) => tokenizer.bytesOf(id).length);
  // If normalisation reached across a seam, the bytes of the runs do not add up: then the whole stretch is observation.
  const exact = lengths.reduce((sum, length) => sum + length, 0) === observed.length;
  let at = 0;
  const sources = lengths.map((length): Hand => {
    const covers = !exact || observed.slice(at, at + length).includes(true);
    at += length;
    return covers ? 'observation' : 'template';
  });
  return { ids, sources };
}
