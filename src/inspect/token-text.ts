// Token ids as pieces of text for display: one piece a token, with bytes that are part of a character shown as such.
// Not a way back to ids. Invariant: the pieces' texts and loose bytes, in order, are exactly the bytes of the ids.

export interface TokenPiece {
  /** Characters that begin or end in this token and are complete with it. */
  text: string;
  /** Bytes at the token's end whose character goes on in the next tokens. */
  opens: number[];
  /** The character that this token completes, begun in an earlier one; it is the first of `text`. */
  closes: string | null;
  /** Bytes that are no UTF-8, at any place. */
  invalid: number[];
  /** A control token (<|im_end|>, <think>), shown as such. */
  control: boolean;
}

/** Length of the character that a byte begins; 0 for a continuation, -1 for a byte that no UTF-8 has. */
function characterLength(byte: number): number {
  if (byte < 0x80) return 1;
  if (byte < 0xc0) return 0;
  if (byte >= 0xc2 && byte < 0xe0) return 2;
  if (byte >= 0xe0 && byte < 0xf0) return 3;
  return byte >= 0xf0 && byte < 0xf5 ? 4 : -1;
}

function decodeCharacter(bytes: readonly number[]): string | null {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(bytes));
  } catch {
    return null;
  }
}

/** Pieces of a stream. `bytesOf` gives a token's bytes, or null for an id that it does not know. */
export function tokenPieces(
  ids: readonly number[],
  bytesOf: (id: number) => Uint8Array | null,
  isControl: (id: number) => boolean,
): TokenPiece[] {
  const pieces: TokenPiece[] = [];
  // The bytes of the unfinished character, and the piece that each of them stands in.
  let pending: { byte: number; piece: TokenPiece }[] = [];
  let wanted = 0;

  const spoil = () => {
    for (const { byte, piece } of pending) {
      piece.invalid.push(byte);
      piece.opens = [];
    }
    pending = [];
  };

  for (const id of ids) {
    const bytes = bytesOf(id);
    const control = isControl(id);
    const piece: TokenPiece = { text: '', opens: [], closes: null, invalid: [], control };
    pieces.push(piece);
    if (bytes === null) {
      spoil();
      piece.text = `⟨id ${id}⟩`;
      piece.control = true;
      continue;
    }
    if (control) {
      spoil();
      piece.text = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
      continue;
    }
    for (const byte of bytes) {
      const length = characterLength(byte);
      if (pending.length > 0 && length !== 0) spoil();
      if (length === 1) {
        piece.text += String.fromCharCode(byte);
        continue;
      }
      if (length < 0 || (length === 0 && pending.length === 0)) {
        piece.invalid.push(byte);
        continue;
      }
      if (length > 1) wanted = length;
      pending.push({ byte, piece });
      if (pending.length < wanted) continue;
      const character = decodeCharacter(pending.map((part) => part.byte));
      if (character === null) {
        spoil();
        continue;
      }
      if (pending[0]!.piece !== piece) piece.closes = character;
      piece.text += character;
      pending = [];
    }
    piece.opens = pending.filter((part) => part.piece === piece).map((part) => part.byte);
  }
  spoil();
  return pieces;
}

/** A byte for display: ⟨C3⟩. */
export const byteMark = (byte: number) => `⟨${byte.toString(16).toUpperCase().padStart(2, '0')}⟩`;

/** The whole stream as text, and the token that each UTF-16 unit ends in; for searching. */
export function streamText(
  ids: readonly number[],
  bytesOf: (id: number) => Uint8Array | null,
): { text: string; tokenAt: (unit: number) => number } {
  const ends: number[] = [];
  let text = '';
  for (const piece of tokenPieces(ids, bytesOf, () => false)) {
    text += piece.text;
    ends.push(text.length);
  }
  return { text, tokenAt: (unit) => ends.findIndex((end) => end > unit) };
}
