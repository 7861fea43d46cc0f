// What is kept beside a plan so that a later difference can be named to the byte: copies of files, and of large ones
// digests of their beginnings. Taken while the files are hashed: no byte is read or hashed twice.
// Not evidence by itself. Invariant: everything is kept under the SHA-256 of the whole file, so that a copy vouches for
// itself against the plan; the digests, which cannot, are sealed by the plan.
import { createHash } from 'node:crypto';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { canonicalBytes, canonicalJson } from '../lib/canonical-json.ts';
import type { Sha256 } from '../model/tree-hash.ts';
import type { FrozenFile } from './plan.ts';

/** One canonical JSON value a line: path, sha256, and the bytes as `text` (UTF-8) or `base64`. The plan is the first. */
export const COPIES_FILE = 'frozen/copies.jsonl.gz';
export const BLOCKS_FILE = 'frozen/blocks.json';
export const BLOCKS_SCHEMA = 'shaderl.blocks/1';

/** Files up to this size are kept whole: sources, tokenizers, task files, small checkpoints. */
const MAX_COPY_BYTES = 16 * 2 ** 20;
export const BLOCK_BYTES = 2 ** 16;

/** Digits of a prefix's digest: they find a block, the whole file's SHA-256 has decided that it differs. */
const DIGEST_DIGITS = 16;

export interface PrefixHash extends Sha256 {
  /** SHA-256, cut to 16 hex digits, of the first 1, 2, ... blocks of what was taken so far. */
  prefixes: string[];
}

/**
 * A SHA-256 that tells its value after every whole block. The digest of a prefix costs one compression of the hash
 * that is running anyway, where a digest of each block would hash every byte again.
 */
export function prefixHash(): PrefixHash {
  const hash = createHash('sha256');
  const prefixes: string[] = [];
  let size = 0;
  return {
    prefixes,
    update(bytes) {
      for (let at = 0; at < bytes.length; ) {
        const take = Math.min(BLOCK_BYTES - (size % BLOCK_BYTES), bytes.length - at);
        hash.update(bytes.subarray(at, at + take));
        at += take;
        size += take;
        if (size % BLOCK_BYTES === 0) prefixes.push(hash.copy().digest('hex').slice(0, DIGEST_DIGITS));
      }
    },
    hex: () => hash.digest('hex'),
  };
}

export interface Keeper {
  /** A hash of one file that keeps what it is given. */
  newSha256(): Sha256;
  /** Keeps bytes that are at hand; their SHA-256. */
  add(bytes: Uint8Array): string;
  /** Bytes of COPIES_FILE: what was kept of these files, each content once. */
  copies(files: readonly Pick<FrozenFile, 'path' | 'sha256'>[]): Promise<Uint8Array>;
  /** Bytes of BLOCKS_FILE for those of these files that are too large for a copy; null if none is. */
  blocks(files: readonly FrozenFile[]): Uint8Array | null;
}

/** A keeper of what is hashed through it. */
export function createKeeper(): Keeper {
  const copies = new Map<string, Uint8Array>();
  const digests = new Map<string, string>();

  function newSha256(): Sha256 {
    const hash = prefixHash();
    let parts: Uint8Array[] = [];
    let size = 0;
    return {
      update(bytes) {
        hash.update(bytes);
        size += bytes.length;
        if (size <= MAX_COPY_BYTES) parts.push(bytes);
        else parts = [];
      },
      hex() {
        const sha256 = hash.hex();
        if (size <= MAX_COPY_BYTES) copies.set(sha256, Buffer.concat(parts));
        else digests.set(sha256, hash.prefixes.join(''));
        return sha256;
      },
    };
  }

  return {
    newSha256,
    add(bytes) {
      const hash = newSha256();
      hash.update(bytes);
      return hash.hex();
    },
    async copies(files) {
      const lines: string[] = [];
      const written = new Set<string>();
      for (const { path, sha256 } of files) {
        const bytes = copies.get(sha256);
        if (!bytes || written.has(sha256)) continue;
        written.add(sha256);
        lines.push(`${canonicalJson({ path, sha256, ...asJson(bytes) })}\n`);
      }
      return promisify(gzip)(lines.join(''));
    },
    blocks(files) {
      const large = files.filter(({ sha256 }) => digests.has(sha256));
      if (large.length === 0) return null;
      const entries = large.map(({ sha256, bytes }) => [sha256, { bytes, prefixes: digests.get(sha256)! }]);
      return canonicalBytes({ schema: BLOCKS_SCHEMA, blockBytes: BLOCK_BYTES, files: Object.fromEntries(entries) });
    },
  };
}

/** Text where the bytes are UTF-8, which packs better and can be read; else base64. */
function asJson(bytes: Uint8Array): { text: string } | { base64: string } {
  try {
    return { text: new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes) };
  } catch {
    return { base64: Buffer.from(bytes).toString('base64') };
  }
}
