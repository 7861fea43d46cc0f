// Seals a checkpoint: adapter, AdamW moments, state. Written to a temporary folder, fsynced, hashed, sealed, renamed.
// Not a cache: nothing is read back without its seal, and the pointer `latest` is for people only.
// Invariant: seal.json is written last, so a folder without it is no checkpoint; an older one goes only after a newer
// one verified; what fails to verify is moved to `recovery/`, never deleted and never trusted.
import { z } from 'zod';
import { type CheckpointState, checkpointState } from './checkpoint-state.ts';
import { type MovedAside, sha256Text } from './journal-events.ts';
import { canonicalBytes } from './lib/canonical-json.ts';
import { CheckpointError } from './lib/errors.ts';
import { sha256HexAsync } from './lib/sha256.ts';
import { moveToRecovery, type Storage } from './lib/storage.ts';
import { issuesText } from './lib/zod-issues.ts';
import { CANARY_FILE } from './model/canary.ts';

export const CHECKPOINTS_FOLDER = 'checkpoints';
const LATEST = `${CHECKPOINTS_FOLDER}/latest`;
const SEAL_FILE = 'seal.json';
const STATE_FILE = 'state.json';

/** The files that the caller gives: PEFT's two, and AdamW's m and v in f32 under the adapter's tensor names. */
export const CONTENT_FILES = ['adapter_config.json', 'adapter_model.safetensors', 'optimizer.safetensors'] as const;
export type ContentFile = (typeof CONTENT_FILES)[number];
const SEALED_FILES = [...CONTENT_FILES, STATE_FILE];
/** Sealed too where it is there: checkpoints older than the canary lack it. */
const OPTIONAL_FILES = [CANARY_FILE];

const seal = z.strictObject({
  schema: z.literal('shaderl.seal/1'),
  files: z.record(z.string(), z.strictObject({ bytes: z.int().min(0), sha256: sha256Text })),
  /** SHA-256 of the canonical JSON of `files`. */
  filesSha256: sha256Text,
});

export interface CheckpointContent {
  files: Record<ContentFile, Uint8Array>;
  state: CheckpointState;
  /** The bytes of canary.json (model/canary.ts); null or absent in a checkpoint without one. */
  canary?: Uint8Array | null;
}

/** A checkpoint whose bytes, held here, are the ones that the seal names. */
export interface VerifiedCheckpoint extends CheckpointContent {
  folder: string;
  /** SHA-256 of seal.json: the checkpoint's identity. */
  sealSha256: string;
  canary: Uint8Array | null;
}

export interface SkippedFolder {
  folder: string;
  reason: string;
}

/** `checkpoints/step-000064` for step 64. */
export function checkpointFolder(step: number): string {
  return `${CHECKPOINTS_FOLDER}/step-${String(step).padStart(6, '0')}`;
}

/** The step in a checkpoint folder's name, or null if the name is not one that `checkpointFolder` gives. */
function stepOfFolder(folder: string): number | null {
  const match = /\/step-(\d{6,15})$/.exec(folder);
  const step = Number(match?.[1]);
  return match !== null && checkpointFolder(step) === folder ? step : null;
}

function unsealed(path: string, code: string, found: string, wanted: string): CheckpointError {
  const remedy = 'Resume from an older checkpoint; this one is not trusted.';
  return new CheckpointError(code, `verifying ${path}: found ${found}; wanted ${wanted}. ${remedy}`);
}

/** Canonical JSON in a file, checked against a schema and its own spelling. */
function parseCanonical<T>(schema: z.ZodType<T>, bytes: Uint8Array, path: string): T {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (error) {
    throw unsealed(path, 'malformed', error instanceof Error ? error.message : String(error), 'JSON');
  }
  const parsed = schema.safeParse(value);
  if (!parsed.success) throw unsealed(path, 'malformed', issuesText(parsed.error, value), 'the documented members');
  const canonical = canonicalBytes(parsed.data);
  if (canonical.length !== bytes.length || canonical.some((byte, i) => byte !== bytes[i])) {
    throw unsealed(path, 'malformed', 'JSON in another spelling', 'canonical JSON (RFC 8785)');
  }
  return parsed.data;
}

/**
 * Reads a checkpoint folder and checks every byte against its seal. With `sealSha256` it must be that very checkpoint.
 * Throws CheckpointError: missing-seal, missing-file, unsealed-file, size-mismatch, digest-mismatch, malformed,
 * wrong-step, wrong-seal.
 */
export async function verifyCheckpoint(
  storage: Storage,
  folder: string,
  sealSha256?: string,
): Promise<VerifiedCheckpoint> {
  const where = `${storage.label}/${folder}`;
  const present = await storage.list(folder);
  if (!present.some((entry) => entry.name === SEAL_FILE && entry.kind === 'file')) {
    throw unsealed(where, 'missing-seal', `no ${SEAL_FILE}`, 'a sealed checkpoint: its save was never finished');
  }
  const sealBytes = await storage.read(`${folder}/${SEAL_FILE}`);
  const sealHash = await sha256HexAsync(sealBytes);
  if (sealSha256 !== undefined && sealHash !== sealSha256) {
    throw unsealed(`${where}/${SEAL_FILE}`, 'wrong-seal', `sha256 ${sealHash}`, sealSha256);
  }
  const { files, filesSha256 } = parseCanonical(seal, sealBytes, `${where}/${SEAL_FILE}`);
  const listHash = await sha256HexAsync(canonicalBytes(files));
  if (listHash !== filesSha256) {
    throw unsealed(`${where}/${SEAL_FILE}`, 'digest-mismatch', `a file list with sha256 ${listHash}`, filesSha256);
  }
  const extra = present.find((entry) => entry.name !== SEAL_FILE && !Object.hasOwn(files, entry.name));
  if (extra) throw unsealed(`${where}/${extra.name}`, 'unsealed-file', 'a file that the seal does not name', 'none');
  const known = [...SEALED_FILES, ...OPTIONAL_FILES];
  const unknown = Object.keys(files).find((name) => !known.includes(name));
  if (unknown !== undefined) throw unsealed(where, 'malformed', `"${unknown}" in the seal`, known.join(', '));

  const bytesOf: Record<string, Uint8Array> = {};
  for (const name of [...SEALED_FILES, ...OPTIONAL_FILES.filter((name) => Object.hasOwn(files, name))]) {
    const path = `${where}/${name}`;
    const want = Object.hasOwn(files, name) ? files[name] : undefined;
    if (!want) throw unsealed(path, 'missing-file', 'no entry in the seal', 'one');
    if (!present.some((entry) => entry.name === name && entry.kind === 'file')) {
      throw unsealed(path, 'missing-file', 'no such file', `${want.bytes} bytes`);
    }
    const bytes = await storage.read(`${folder}/${name}`);
    if (bytes.length !== want.bytes) {
      throw unsealed(path, 'size-mismatch', `${bytes.length} bytes`, `${want.bytes}, as sealed`);
    }
    const hash = await sha256HexAsync(bytes);
    if (hash !== want.sha256) throw unsealed(path, 'digest-mismatch', `sha256 ${hash}`, `${want.sha256}, as sealed`);
    bytesOf[name] = bytes;
  }
  const { [STATE_FILE]: stateBytes, [CANARY_FILE]: canary = null, ...content } = bytesOf;
  const state = parseCanonical(checkpointState, stateBytes!, `${where}/${STATE_FILE}`);
  if (checkpointFolder(state.step) !== folder) {
    throw unsealed(
      where,
      'wrong-step',
      `step ${state.step} in ${STATE_FILE}`,
      'the step that the folder is named after',
    );
  }
  return { folder, sealSha256: sealHash, state, files: content as Record<ContentFile, Uint8Array>, canary };
}

/**
 * Writes a checkpoint into `folder` (`checkpointFolder(state.step)`), reads it back and returns it verified. Left-overs
 * of an earlier attempt go to `recovery/`. Throws CheckpointError `already-sealed` rather than replace a good one.
 */
export async function sealCheckpoint(
  storage: Storage,
  folder: string,
  content: CheckpointContent,
): Promise<VerifiedCheckpoint> {
  const state = checkpointState.safeParse(content.state);
  const names = Object.keys(content.files).sort();
  const problem = !state.success
    ? issuesText(state.error, content.state)
    : folder !== checkpointFolder(state.data.step)
      ? `step ${state.data.step}`
      : names.join() !== CONTENT_FILES.join()
        ? `the files ${names.join(', ')}`
        : null;
  if (problem !== null) {
    throw new CheckpointError(
      'bad-content',
      `sealing ${storage.label}/${folder}: found ${problem}; wanted a whole state of the folder's step and the files ` +
        `${CONTENT_FILES.join(', ')}. Correct the caller; nothing was written.`,
    );
  }
  const temporary = `${folder}.tmp`;
  if (await storage.exists(temporary)) await moveToRecovery(storage, temporary);
  if (await storage.exists(folder)) await setAsideUnlessSealed(storage, folder);

  const all: Record<string, Uint8Array> = { ...content.files, [STATE_FILE]: canonicalBytes(content.state) };
  if (content.canary) all[CANARY_FILE] = content.canary;
  const files: z.infer<typeof seal>['files'] = {};
  for (const [name, bytes] of Object.entries(all)) {
    await storage.write(`${temporary}/${name}`, bytes);
    files[name] = { bytes: bytes.length, sha256: await sha256HexAsync(bytes) };
  }
  const filesSha256 = await sha256HexAsync(canonicalBytes(files));
  const sealBytes = canonicalBytes({ schema: 'shaderl.seal/1', files, filesSha256 } satisfies z.infer<typeof seal>);
  await storage.write(`${temporary}/${SEAL_FILE}`, sealBytes);
  await storage.rename(temporary, folder);
  const verified = await verifyCheckpoint(storage, folder, await sha256HexAsync(sealBytes));
  await storage.write(LATEST, new TextEncoder().encode(`${folder.slice(CHECKPOINTS_FOLDER.length + 1)}\n`));
  return verified;
}

async function setAsideUnlessSealed(storage: Storage, folder: string): Promise<void> {
  if ((await tryVerify(storage, folder)).checkpoint !== null) {
    throw new CheckpointError(
      'already-sealed',
      `sealing ${storage.label}/${folder}: found a checkpoint there that verifies; wanted a free name. ` +
        'Resume from it, or choose another output folder.',
    );
  }
  await moveToRecovery(storage, folder);
}

/** Codes that mean "cannot be read now": they say nothing about the checkpoint, so they are no reason to skip it. */
const NOT_ABOUT_CONTENT = new Set(['permission', 'read-only', 'disk-full', 'io']);

type Trial = { checkpoint: VerifiedCheckpoint } | { checkpoint: null; reason: string };

async function tryVerify(storage: Storage, folder: string): Promise<Trial> {
  try {
    return { checkpoint: await verifyCheckpoint(storage, folder) };
  } catch (error) {
    if (!(error instanceof CheckpointError) || NOT_ABOUT_CONTENT.has(error.code)) throw error;
    return { checkpoint: null, reason: error.message };
  }
}

/** Step folders, newest first, and everything else that lies beside them. */
async function listCheckpoints(storage: Storage): Promise<{ folders: string[]; others: SkippedFolder[] }> {
  const entries = await storage.list(CHECKPOINTS_FOLDER);
  const paths = entries.map((entry) => ({ ...entry, path: `${CHECKPOINTS_FOLDER}/${entry.name}` }));
  const isCheckpoint = (entry: { kind: string; path: string }) =>
    entry.kind === 'folder' && stepOfFolder(entry.path) !== null;
  const folders = paths.filter(isCheckpoint).map(({ path }) => path);
  folders.sort((a, b) => stepOfFolder(b)! - stepOfFolder(a)!);
  const others = paths.filter((entry) => !isCheckpoint(entry) && entry.path !== LATEST);
  return {
    folders,
    others: others.map(({ path }) => ({
      folder: path,
      reason: path.endsWith('.tmp') ? 'a save that was never finished' : 'not a name of a checkpoint folder',
    })),
  };
}

export interface NewestCheckpoint {
  checkpoint: VerifiedCheckpoint | null;
  /** What was passed over, and why: left-overs, and folders newer than the chosen one that do not verify. */
  skipped: SkippedFolder[];
}

/** The newest checkpoint whose seal verifies. Reads only. A folder that cannot be read is an error, not a skip. */
export async function newestVerified(storage: Storage): Promise<NewestCheckpoint> {
  const { folders, others } = await listCheckpoints(storage);
  const skipped = others;
  for (const folder of folders) {
    const trial = await tryVerify(storage, folder);
    if (trial.checkpoint !== null) return { checkpoint: trial.checkpoint, skipped };
    skipped.push({ folder, reason: trial.reason });
  }
  return { checkpoint: null, skipped };
}

/** Moves what `newestVerified` skipped to `recovery/`, so that a run can go on; returns what to journal. */
export async function setAside(storage: Storage, skipped: readonly SkippedFolder[]): Promise<MovedAside[]> {
  const moved: MovedAside[] = [];
  for (const { folder, reason } of skipped) {
    moved.push({ from: folder, to: await moveToRecovery(storage, folder), reason });
  }
  return moved;
}

/**
 * Removes old checkpoints, so that the newest `keep` that verify remain, and those of `protectedSteps`. Only folders
 * older than the last kept one go, so nothing goes before `keep` newer ones verified. Returns the removed folders.
 */
export async function retainCheckpoints(
  storage: Storage,
  keep: number,
  protectedSteps: readonly number[] = [],
): Promise<string[]> {
  if (!(keep >= 1)) {
    const where = `${storage.label}/${CHECKPOINTS_FOLDER}`;
    throw new CheckpointError(
      'bad-retention',
      `removing old checkpoints of ${where}: found keep = ${keep}; wanted at least 1. Nothing was removed; correct it.`,
    );
  }
  const removed: string[] = [];
  let verified = 0;
  for (const folder of (await listCheckpoints(storage)).folders) {
    if (verified < keep) {
      if ((await tryVerify(storage, folder)).checkpoint !== null) verified += 1;
    } else if (!protectedSteps.includes(stepOfFolder(folder)!)) {
      // Renamed first: a kill in mid-removal must not leave half a folder under a checkpoint's name.
      await storage.rename(folder, `${folder}.tmp`);
      await storage.remove(`${folder}.tmp`);
      removed.push(folder);
    }
  }
  return removed;
}
