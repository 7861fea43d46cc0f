// The byte alphabet of byte-level BPE: each byte of UTF-8 has one printable character in the vocabulary's spelling.
// Not a tokenizer. Invariant: bytesOfPiece(pieceOfBytes(b)) = b for every byte string b.

/** Character of each byte: printable Latin-1 stands for itself, all other bytes for U+0100 upwards (GPT-2's table). */
const BYTE_TO_CHARACTER: readonly string[] = (() => {
  const printable = (byte: number) =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(printable(byte) ? byte : next++));
})();

const CHARACTER_TO_BYTE = new Map(BYTE_TO_CHARACTER.map((character, byte) => [character, byte]));

/** The bytes that a vocabulary entry stands for, or null if it has a character outside the byte alphabet. */
export function bytesOfPiece(piece: string): Uint8Array | null {
  const bytes = new Uint8Array(piece.length);
  for (let i = 0; i < piece.length; i++) {
    const byte = CHARACTER_TO_BYTE.get(piece[i]!);
    if (byte === undefined) return null;
    bytes[i] = byte;
  }
  return bytes;
}

/** The vocabulary's spelling of bytes. */
export function pieceOfBytes(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => BYTE_TO_CHARACTER[byte]!).join('');
}
