// SHA-256 by node:crypto, at once. The twin for any host is sha256.ts, which must await.
// Invariant: text is hashed as its UTF-8 bytes.
import { createHash } from 'node:crypto';

/** SHA-256 of bytes, or of text as UTF-8, as 64 lower-case hex digits. */
export function sha256Hex(data: Uint8Array | string): string {
  return createHash('sha256').update(data).digest('hex');
}
