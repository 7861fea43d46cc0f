// Seals: what a checkpoint folder holds, and that every kind of change to it is refused by file and value.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { type CheckpointContent, checkpointFolder, sealCheckpoint, verifyCheckpoint } from '../../src/checkpoint.ts';
import { comparableState, f32BitsHex } from '../../src/checkpoint-state.ts';
import { canonicalJson } from '../../src/lib/canonical-json.ts';
import { sha256Hex } from '../../src/lib/sha256-node.ts';
import { createNodeStorage } from '../../src/lib/storage-node.ts';
import { checkpointContent, someBytes } from '../support/checkpoint-content.ts';

const base = mkdtempSync(join(tmpdir(), 'shaderl-checkpoint-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));
let folders = 0;
const FOLDER = 'checkpoints/step-000064';

async function sealed(content: CheckpointContent = checkpointContent(64)) {
  const root = join(base, String(folders++));
  const storage = createNodeStorage(root);
  const checkpoint = await sealCheckpoint(storage, FOLDER, content);
  return { root, storage, checkpoint, at: (name: string) => join(root, FOLDER, name) };
}

const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => 'accepted',
    (error: Error & { code: string }) => error.code,
  );

describe('a sealed checkpoint', () => {
  test('comes back byte for byte, under the hash of its seal', async () => {
    const { storage, checkpoint, at } = await sealed();
    const { sealSha256 } = checkpoint;
    expect(checkpoint).toEqual({ ...checkpointContent(64), folder: FOLDER, sealSha256, canary: null });
    expect(checkpoint.sealSha256).toBe(sha256Hex(readFileSync(at('seal.json'))));
    expect(await verifyCheckpoint(storage, FOLDER, checkpoint.sealSha256)).toEqual(checkpoint);
  });

  test('has the same bytes whenever the content is the same', async () => {
    const [a, b] = [await sealed(), await sealed()];
    expect(a.checkpoint.sealSha256).toBe(b.checkpoint.sealSha256);
    for (const name of ['adapter_model.safetensors', 'optimizer.safetensors', 'state.json', 'seal.json']) {
      expect(readFileSync(a.at(name))).toEqual(readFileSync(b.at(name)));
    }
  });

  test('can be checked with sha256 and canonical JSON alone', async () => {
    const { at } = await sealed();
    const seal = JSON.parse(readFileSync(at('seal.json'), 'utf8')) as {
      files: Record<string, { bytes: number; sha256: string }>;
      filesSha256: string;
    };
    expect(sha256Hex(canonicalJson(seal.files))).toBe(seal.filesSha256);
    expect(Object.keys(seal.files)).toEqual([
      'adapter_config.json',
      'adapter_model.safetensors',
      'optimizer.safetensors',
      'state.json',
    ]);
    for (const [name, { bytes, sha256 }] of Object.entries(seal.files)) {
      expect([readFileSync(at(name)).length, sha256Hex(readFileSync(at(name)))]).toEqual([bytes, sha256]);
    }
  });

  test('seals a canary beside the four files, and is accepted without one', async () => {
    const canary = new TextEncoder().encode('{"schema":"shaderl.canary/1"}');
    const { storage, checkpoint, at } = await sealed({ ...checkpointContent(64), canary });
    expect(checkpoint.canary).toEqual(canary);
    const { files } = JSON.parse(readFileSync(at('seal.json'), 'utf8')) as { files: Record<string, unknown> };
    expect(files['canary.json']).toEqual({ bytes: canary.length, sha256: sha256Hex(canary) });
    expect(checkpoint.sealSha256).not.toBe((await sealed()).checkpoint.sealSha256);
    writeFileSync(at('canary.json'), '{"schema":"shaderl.canary/2"}');
    expect(await codeOf(verifyCheckpoint(storage, FOLDER))).toBe('digest-mismatch');
    rmSync(at('canary.json'));
    expect(await codeOf(verifyCheckpoint(storage, FOLDER))).toBe('missing-file');
    const older = await sealed();
    writeFileSync(older.at('canary.json'), canary);
    expect(await codeOf(verifyCheckpoint(older.storage, FOLDER))).toBe('unsealed-file');
  });

  test('is not replaced', async () => {
    const { storage, checkpoint } = await sealed();
    const other = { ...checkpointContent(64) };
    other.files = { ...other.files, 'optimizer.safetensors': someBytes(10, 1, 1) };
    expect(await codeOf(sealCheckpoint(storage, FOLDER, other))).toBe('already-sealed');
    expect(await verifyCheckpoint(storage, FOLDER, checkpoint.sealSha256)).toEqual(checkpoint);
  });

  test('takes an empty tensor file', async () => {
    const content = checkpointContent(64);
    content.files['optimizer.safetensors'] = new Uint8Array(0);
    expect((await sealed(content)).checkpoint.files['optimizer.safetensors'].length).toBe(0);
  });
});

describe('a changed checkpoint is refused', () => {
  type Place = Awaited<ReturnType<typeof sealed>>;
  const editSeal = (place: Place, edit: (seal: { files: Record<string, unknown>; filesSha256: string }) => void) => {
    const seal = JSON.parse(readFileSync(place.at('seal.json'), 'utf8'));
    edit(seal);
    writeFileSync(place.at('seal.json'), canonicalJson(seal));
  };

  test.each<[string, string, (place: Place) => void]>([
    [
      'digest-mismatch',
      'one bit of the adapter',
      ({ at }) => {
        const bytes = readFileSync(at('adapter_model.safetensors'));
        bytes[500]! ^= 1;
        writeFileSync(at('adapter_model.safetensors'), bytes);
      },
    ],
    ['size-mismatch', 'a longer config', ({ at }) => writeFileSync(at('adapter_config.json'), '{}', { flag: 'a' })],
    ['size-mismatch', 'an emptied optimizer', ({ at }) => writeFileSync(at('optimizer.safetensors'), '')],
    ['missing-file', 'a missing optimizer', ({ at }) => rmSync(at('optimizer.safetensors'))],
    ['missing-seal', 'a missing seal', ({ at }) => rmSync(at('seal.json'))],
    ['unsealed-file', 'a file too many', ({ at }) => writeFileSync(at('notes.txt'), 'x')],
    ['unsealed-file', 'a folder too many', ({ at }) => mkdirSync(at('more'))],
    [
      'malformed',
      'a seal that is cut',
      ({ at }) => writeFileSync(at('seal.json'), readFileSync(at('seal.json')).subarray(0, 99)),
    ],
    [
      'malformed',
      'a seal with spaces',
      ({ at }) => writeFileSync(at('seal.json'), ` ${readFileSync(at('seal.json'), 'utf8')}`),
    ],
    [
      'digest-mismatch',
      'an edited file list',
      (place) =>
        editSeal(place, (seal) => {
          seal.files['adapter_config.json'] = { bytes: 2, sha256: sha256Hex('{}') };
        }),
    ],
    [
      'missing-file',
      'a file struck from the list',
      (place) =>
        editSeal(place, (seal) => {
          delete seal.files['optimizer.safetensors'];
          seal.filesSha256 = sha256Hex(canonicalJson(seal.files));
          rmSync(place.at('optimizer.safetensors'));
        }),
    ],
    [
      'malformed',
      'an unknown file in the list',
      (place) =>
        editSeal(place, (seal) => {
          writeFileSync(place.at('extra.bin'), '');
          seal.files['extra.bin'] = { bytes: 0, sha256: sha256Hex('') };
          seal.filesSha256 = sha256Hex(canonicalJson(seal.files));
        }),
    ],
  ])('%s: %s', async (code, _what, change) => {
    const place = await sealed();
    change(place);
    expect(await codeOf(verifyCheckpoint(place.storage, FOLDER))).toBe(code);
  });

  test('wrong-step: a good folder under another name', async () => {
    const { storage } = await sealed();
    await storage.rename(FOLDER, checkpointFolder(65));
    expect(await codeOf(verifyCheckpoint(storage, checkpointFolder(65)))).toBe('wrong-step');
  });

  test('wrong-seal: a good checkpoint in the place of the one that was asked for', async () => {
    const { storage } = await sealed();
    expect(await codeOf(verifyCheckpoint(storage, FOLDER, sha256Hex('another')))).toBe('wrong-seal');
  });

  test('naming the file, both hashes and the remedy', async () => {
    const { root, storage, at } = await sealed();
    const text = readFileSync(at('adapter_config.json'), 'utf8');
    writeFileSync(at('adapter_config.json'), text.replace('16', '61'));
    const error = await verifyCheckpoint(storage, FOLDER).catch((e: unknown) => e);
    expect((error as Error).message.replace(root, 'ROOT')).toMatchInlineSnapshot(
      `"verifying ROOT/checkpoints/step-000064/adapter_config.json: found sha256 8a14802e0c2b995d4cd74cb5aca3d6209e7e119d1537e3cefd1dec00f0d22af7; wanted 712824f0c9c91855b5c05d638d61e5c78203bc65d5ebcc8c11fb779c94d02d4f, as sealed. Resume from an older checkpoint; this one is not trusted."`,
    );
  });
});

describe('content that may not be sealed', () => {
  const attempt = (folder: string, content: CheckpointContent) =>
    codeOf(sealCheckpoint(createNodeStorage(join(base, String(folders++))), folder, content));

  test('a state of another step than the folder, or with a member missing or unknown', async () => {
    const good = checkpointContent(64);
    expect(await attempt(FOLDER, good)).toBe('accepted');
    expect(await attempt(checkpointFolder(63), good)).toBe('bad-content');
    expect(await attempt('elsewhere/step-000064', good)).toBe('bad-content');
    const { cursor: _cursor, ...without } = good.state;
    expect(await attempt(FOLDER, { ...good, state: without as typeof good.state })).toBe('bad-content');
    expect(await attempt(FOLDER, { ...good, state: { ...good.state, extra: 1 } as typeof good.state })).toBe(
      'bad-content',
    );
    const rng = { ...good.state.rng, definition: 'mersenne' } as unknown as typeof good.state.rng;
    expect(await attempt(FOLDER, { ...good, state: { ...good.state, rng } })).toBe('bad-content');
  });

  test('other files than the documented ones', async () => {
    const good = checkpointContent(64);
    const { 'optimizer.safetensors': _optimizer, ...rest } = good.files;
    expect(await attempt(FOLDER, { ...good, files: rest as typeof good.files })).toBe('bad-content');
    const more = { ...good.files, '../escape': new Uint8Array(1) };
    expect(await attempt(FOLDER, { ...good, files: more })).toBe('bad-content');
  });
});

test('a path out of the root is refused', async () => {
  const storage = createNodeStorage(join(base, 'paths'));
  for (const path of ['../x', 'a/../../x', '/etc/passwd', 'a//b', './a', 'a\\b', 'a/']) {
    expect(await codeOf(storage.write(path, new Uint8Array(1)))).toBe('bad-path');
    expect(await codeOf(storage.read(path))).toBe('bad-path');
  }
});

test('the learning rate is kept as the bits of its f32', () => {
  expect(f32BitsHex(1)).toBe('3f800000');
  expect(f32BitsHex(0)).toBe('00000000');
  expect(f32BitsHex(5e-6)).toBe(Buffer.from(new Uint8Array(Float32Array.of(5e-6).buffer).reverse()).toString('hex'));
});

test('the comparable state leaves out the run and its journal alone', () => {
  const { state } = checkpointContent(64);
  const other = { ...state, runId: 'other', journal: { lines: 3, sha256: sha256Hex('j') } };
  expect(canonicalJson(comparableState(other))).toBe(canonicalJson(comparableState(state)));
  expect(canonicalJson(comparableState({ ...state, step: 65 }))).not.toBe(canonicalJson(comparableState(state)));
});
