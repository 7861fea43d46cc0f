// SHA-256 by Web Crypto, for code that runs in Node and in a browser alike.
// Not streaming: Web Crypto takes a whole buffer, below 2 GiB; model files are hashed elsewhere.
// Invariant: equal to sha256Hex of sha256-node.ts on the same data.

/** SHA-256 of bytes, or of text as UTF-8, as 64 lower-case hex digits. */
export async function sha256HexAsync(data: Uint8Array | string): Promise<string> {
  const bytes = typeof data === 'string' ? new TextEncoder().encode(data) : data;
  const digest = await globalThis.crypto.subtle.digest('SHA-256', bytes as Uint8Array<ArrayBuffer>);
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('');
}
