// Finds text in the decoded token streams of a rollouts file.
// Not an index: each search walks the file. Invariant: characters split over tokens are found, and upper and lower case
// count as the same.
import type { ByteFile } from './byte-file.ts';
import { walkLines } from './line-index.ts';
import { findBytes } from './skim.ts';
import { streamText } from './token-text.ts';

export interface TextMatch {
  /** 1-based line of the file. */
  line: number;
  /** The first matching token after the prompt, or in it where there is no other. */
  token: number;
}

const idsKey = new TextEncoder().encode('"ids":[');
const promptKey = /"promptLength":(\d+)/;

/** Lines whose text holds `wanted`. Lines that cannot be read are passed over: the list shows them as broken. */
export async function searchRollouts(
  file: ByteFile,
  wanted: string,
  bytesOf: (id: number) => Uint8Array | null,
): Promise<TextMatch[]> {
  const needle = wanted.toLocaleLowerCase('de');
  const matches: TextMatch[] = [];
  if (needle === '') return matches;
  await walkLines(file, (line, number) => {
    if (line === null) return;
    const start = findBytes(line, idsKey) + idsKey.length;
    const end = line.indexOf(93, start);
    if (start < idsKey.length || end < 0) return;
    const ids = new TextDecoder().decode(line.subarray(start, end)).split(',').map(Number);
    const { text, tokenAt } = streamText(ids, bytesOf);
    // Lower case can have another length (İ): then offsets would shift, and such a text is searched as it stands.
    const lower = text.toLocaleLowerCase('de');
    const haystack = lower.length === text.length ? lower : text;
    const head = new TextDecoder().decode(line.subarray(0, start));
    const promptLength = Number(promptKey.exec(head)?.[1] ?? 0);
    let found = -1;
    for (let at = haystack.indexOf(needle); at >= 0; at = haystack.indexOf(needle, at + 1)) {
      found = tokenAt(at);
      if (found >= promptLength) break;
    }
    if (found >= 0) matches.push({ line: number, token: found });
  });
  return matches;
}
