// Names the place of a difference by what `prepare` kept beside the plan (keep-node.ts).
// Not a verdict: a file differs by its SHA-256 alone, whatever lies here. Invariant: a copy counts only if its bytes have
// the frozen SHA-256, digests only if the plan sealed their file; what is missing or damaged is as if it had not been kept.
import { open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import { z } from 'zod';
import { sha256Hex } from '../lib/sha256-node.ts';
import { BLOCK_BYTES, BLOCKS_SCHEMA, COPIES_FILE, prefixHash } from './keep-node.ts';
import { firstDifference, type Place } from './place.ts';
import { type FrozenFile, PLAN_FILE, type Plan } from './plan.ts';

const copyLine = z.union([
  z.strictObject({ path: z.string(), sha256: z.string(), text: z.string() }),
  z.strictObject({ path: z.string(), sha256: z.string(), base64: z.base64() }),
]);
type CopyLine = z.infer<typeof copyLine>;

const blocksFile = z.strictObject({
  schema: z.literal(BLOCKS_SCHEMA),
  blockBytes: z.literal(BLOCK_BYTES),
  files: z.record(z.string(), z.strictObject({ bytes: z.int(), prefixes: z.string() })),
});

const READ_BYTES = 128 * BLOCK_BYTES;

const bytesOf = (line: CopyLine): Uint8Array =>
  'text' in line ? new TextEncoder().encode(line.text) : Buffer.from(line.base64, 'base64');

/** The lines of the copies that can be read; none where there are none. */
async function readCopies(folder: string): Promise<CopyLine[]> {
  try {
    const text = (await promisify(gunzip)(await readFile(join(folder, COPIES_FILE)))).toString('utf8');
    return text.split('\n').flatMap((line) => (line === '' ? [] : [copyLine.parse(JSON.parse(line))]));
  } catch {
    return [];
  }
}

/** Bytes with that SHA-256, or null. */
function copyWith(lines: readonly CopyLine[], sha256: string): Uint8Array | null {
  const line = lines.find((one) => one.sha256 === sha256);
  const bytes = line && bytesOf(line);
  return bytes && sha256Hex(bytes) === sha256 ? bytes : null;
}

/** The plan as `prepare` wrote it, by the copy's own word for its hash; null if there is none. */
export async function planCopy(folder: string): Promise<Uint8Array | null> {
  const lines = await readCopies(folder);
  const line = lines.find(({ path }) => path === PLAN_FILE);
  return line ? copyWith(lines, line.sha256) : null;
}

/** Tells the place of the first difference of a file, read from `at`, which is known to differ from what was frozen. */
export type Locate = (frozen: FrozenFile, at: string) => Promise<Place>;

/** Opens what was kept in a plan's folder. Nothing is read before the first difference. */
export function openKept(plan: Plan, folder: string): Locate {
  let lines: Promise<CopyLine[]> | null = null;
  let blocks: Promise<z.infer<typeof blocksFile>['files']> | null = null;
  return async (frozen, at) => {
    lines ??= readCopies(folder);
    const copy = copyWith(await lines, frozen.sha256);
    if (copy) return firstDifference(copy, await readFile(at)) ?? unknown(frozen, frozen.bytes);
    blocks ??= readBlocks(plan, folder);
    const kept = (await blocks)[frozen.sha256];
    return placeByPrefixes(frozen, kept?.prefixes.match(/.{16}/g) ?? null, at);
  };
}

async function readBlocks({ blocks }: Plan, folder: string): Promise<z.infer<typeof blocksFile>['files']> {
  try {
    const bytes = await readFile(join(folder, blocks!.path));
    return sha256Hex(bytes) === blocks!.sha256 ? blocksFile.parse(JSON.parse(bytes.toString('utf8'))).files : {};
  } catch {
    return {};
  }
}

const unknown = ({ bytes }: FrozenFile, foundBytes: number): Place => ({
  kind: 'unknown',
  frozenBytes: bytes,
  foundBytes,
});

/** The first block whose end no longer has the frozen digest. Reads up to it, and no more than the frozen size. */
async function placeByPrefixes(frozen: FrozenFile, prefixes: readonly string[] | null, at: string): Promise<Place> {
  const { bytes: frozenBytes, sha256 } = frozen;
  const file = await open(at, 'r');
  try {
    const { size: foundBytes } = await file.stat();
    if (!prefixes) return unknown(frozen, foundBytes);
    const common = Math.min(frozenBytes, foundBytes);
    const hash = prefixHash();
    const chunk = new Uint8Array(READ_BYTES);
    let same = 0;
    for (let read = 0; read < common; ) {
      const { bytesRead } = await file.read(chunk, 0, Math.min(READ_BYTES, common - read), read);
      if (bytesRead === 0) break;
      hash.update(chunk.subarray(0, bytesRead));
      read += bytesRead;
      while (same < hash.prefixes.length && hash.prefixes[same] === prefixes[same]) same += 1;
      if (same < hash.prefixes.length) break;
    }
    const from = same * BLOCK_BYTES;
    const grew = foundBytes > frozenBytes && same === hash.prefixes.length && hash.hex() === sha256;
    if (grew || from === foundBytes) return { kind: 'end', offset: common, frozenBytes, foundBytes };
    return { kind: 'block', from, to: Math.min(from + BLOCK_BYTES, frozenBytes), frozenBytes, foundBytes };
  } finally {
    await file.close();
  }
}
