// A file that is read in ranges: on disk, picked in a browser, or in memory.
// Not a cache. Invariant: a read never goes past the size that `size` gave, and never holds the whole of a large file.

export interface ByteFile {
  /** The name shown in messages. */
  readonly label: string;
  /** Bytes. */
  size(): Promise<number>;
  /** Bytes [offset, offset + length). */
  read(offset: number, length: number): Promise<Uint8Array>;
}

/** A file that a person picked or dropped; bytes are read as they are needed. */
export function blobFile(label: string, blob: Blob): ByteFile {
  return {
    label,
    size: async () => blob.size,
    read: async (offset, length) => new Uint8Array(await blob.slice(offset, offset + length).arrayBuffer()),
  };
}
