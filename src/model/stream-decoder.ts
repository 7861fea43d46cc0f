// Text of a token stream as it grows, for display and for parsing: a character appears when its last byte has come.
// Not a way back to ids. Invariant: the texts of all pushes and of the end, joined, are decode() of the ids shown.
import type { Text } from './text.ts';

export interface StreamDecoder {
  /** The text that `id` completes; '' while a character is unfinished. Throws ModelFileError for an unknown id. */
  push(id: number): string;
  /** The rest: one U+FFFD if a character was left unfinished. The decoder is empty afterwards. */
  end(): string;
  /** Whether some bytes so far were not UTF-8 and became U+FFFD (a U+FFFD that was sampled as such is no damage). */
  damaged(): boolean;
}

/** A decoder for one stream. `hiddenIds` (stop tokens, say) end a character that is unfinished but show no text. */
export function createStreamDecoder(
  text: Pick<Text, 'bytesOf'>,
  options: { hiddenIds?: readonly number[] } = {},
): StreamDecoder {
  const hidden = new Set(options.hiddenIds);
  const lenient = new TextDecoder('utf-8', { ignoreBOM: true });
  // A second decoder tells damage from a genuine U+FFFD: it throws where the lenient one replaces.
  let strict = new TextDecoder('utf-8', { ignoreBOM: true, fatal: true });
  let isDamaged = false;

  function feed(bytes: Uint8Array, stream: boolean): string {
    try {
      strict.decode(bytes, { stream });
    } catch {
      isDamaged = true;
      strict = new TextDecoder('utf-8', { ignoreBOM: true, fatal: true });
    }
    return lenient.decode(bytes, { stream });
  }

  const end = () => feed(new Uint8Array(0), false);
  return {
    push(id) {
      const bytes = text.bytesOf(id);
      return hidden.has(id) ? end() : feed(bytes, true);
    },
    end,
    damaged: () => isDamaged,
  };
}
