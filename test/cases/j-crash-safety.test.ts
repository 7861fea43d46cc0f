// Case J1: a save that is killed, runs out of space or may not write never costs the last good checkpoint.
import { execFile, execFileSync } from 'node:child_process';
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'vite';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import {
  checkpointFolder,
  newestVerified,
  retainCheckpoints,
  sealCheckpoint,
  setAside,
  verifyCheckpoint,
} from '../../src/checkpoint.ts';
import { openJournal } from '../../src/journal.ts';
import { createNodeStorage } from '../../src/lib/storage-node.ts';
import { checkpointContent } from '../support/checkpoint-content.ts';

let base: string;
let child: string;

beforeAll(async () => {
  base = mkdtempSync(join(tmpdir(), 'shaderl-j-'));
  // One bundled file starts five times faster than sources through tsx, and there is a process for every boundary.
  const entry = new URL('../support/seal-child.ts', import.meta.url).pathname;
  const outDir = join(base, 'child');
  await build({
    configFile: false,
    logLevel: 'silent',
    build: { ssr: entry, outDir, target: 'node20' },
    ssr: { noExternal: true },
  });
  child = join(outDir, readdirSync(outDir).find((name) => name.startsWith('seal-child'))!);
  await sealCheckpoint(createNodeStorage(join(base, 'sealed-1')), checkpointFolder(1), checkpointContent(1));
});
afterAll(() => rmSync(base, { recursive: true, force: true }));

/** A fresh root that holds the sealed checkpoint of step 1. */
function rootWithStep1(name: string): string {
  const root = join(base, name);
  cpSync(join(base, 'sealed-1'), root, { recursive: true });
  return root;
}

function runChild(root: string, dieAt: number): Promise<{ signal: string | null; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [child, root, String(dieAt)], (error, stdout, stderr) => {
      resolve({ signal: error?.signal ?? null, stdout, stderr });
    });
  });
}

/** Everything that a run does at the start after a crash, and that nothing was lost by it. */
async function expectRecoverable(root: string, boundary: string, newest: 1 | 2): Promise<void> {
  const storage = createNodeStorage(root);
  const { checkpoint, skipped } = await newestVerified(storage);
  expect(checkpoint?.state.step, boundary).toBe(newest);
  expect(checkpoint?.files, boundary).toEqual(checkpointContent(newest).files);
  const before = await storage.list('checkpoints');
  const untrusted = before.filter(({ name }) => !/^(step-\d{6}|latest)$/.test(name));
  expect(skipped.map(({ folder }) => folder).sort(), boundary).toEqual(
    untrusted.map(({ name }) => `checkpoints/${name}`),
  );

  const { journal, torn } = await openJournal(storage, 'journal.jsonl', () => '2026-01-01T00:00:01Z');
  expect(journal.entries.length, boundary).toBeLessThanOrEqual(1);
  if (torn) expect((await storage.read(torn.to)).length, boundary).toBeGreaterThan(0);
  const moved = await setAside(storage, skipped);
  for (const { to } of moved) expect(await storage.exists(to), boundary).toBe(true);

  if (newest === 1) await sealCheckpoint(storage, checkpointFolder(2), checkpointContent(2));
  const again = await newestVerified(storage);
  expect(again.checkpoint?.state.step, boundary).toBe(2);
  expect(again.skipped, boundary).toEqual([]);
}

describe('a save killed by SIGKILL', () => {
  test('loses nothing at any write boundary', async () => {
    const whole = await runChild(rootWithStep1('whole'), 0);
    expect(whole.stderr).toBe('');
    const boundaries = JSON.parse(whole.stdout) as string[];
    const renamed = boundaries.indexOf('rename:checkpoints/step-000002.tmp:rename');
    expect(renamed).toBeGreaterThan(30);
    expect(boundaries.length).toBeGreaterThan(renamed + 10);

    const numbers = boundaries.map((_, i) => i + 1);
    const worker = async () => {
      for (let number = numbers.shift(); number !== undefined; number = numbers.shift()) {
        const root = rootWithStep1(`killed-${number}`);
        const { signal } = await runChild(root, number);
        const boundary = boundaries[number - 1]!;
        expect(signal, boundary).toBe('SIGKILL');
        // Boundary `renamed` itself dies before the rename.
        await expectRecoverable(root, boundary, number - 1 <= renamed ? 1 : 2);
        rmSync(root, { recursive: true });
      }
    };
    await Promise.all([worker(), worker()]);
  });

  test('every file is fsynced before its rename, and the seal comes last before the folder is renamed', async () => {
    const { stdout } = await runChild(rootWithStep1('order'), 0);
    const boundaries = JSON.parse(stdout) as string[];
    const at = (name: string) => boundaries.indexOf(name);
    const temporary = 'checkpoints/step-000002.tmp';
    for (const file of ['adapter_config.json', 'adapter_model.safetensors', 'optimizer.safetensors', 'state.json']) {
      const stages = ['fsync', 'rename', 'fsync-folder'].map((stage) => at(`write:${temporary}/${file}:${stage}`));
      expect(stages).toEqual([...stages].sort((a, b) => a - b));
      expect(stages[0]).toBeGreaterThan(0);
      expect(stages[2]).toBeLessThan(at(`write:${temporary}/seal.json:create`));
    }
    expect(at(`write:${temporary}/seal.json:fsync-folder`)).toBeLessThan(at(`rename:${temporary}:rename`));
    expect(at(`rename:${temporary}:fsync-folder`)).toBeLessThan(at('write:checkpoints/latest:create'));
    expect(at('rename:checkpoints/step-000001:rename')).toBeGreaterThan(at('write:checkpoints/latest:fsync-folder'));
  });
});

describe('a disk that is full', () => {
  test('at half of the adapter file ends with a clear error and the old checkpoint', async () => {
    const root = rootWithStep1('enospc');
    const storage = createNodeStorage(root, {
      chunkBytes: 500,
      beforeWrite(boundary) {
        if (boundary !== 'write:checkpoints/step-000002.tmp/adapter_model.safetensors:bytes-1') return;
        throw Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' });
      },
    });
    const error = await sealCheckpoint(storage, checkpointFolder(2), checkpointContent(2)).catch((e: unknown) => e);
    expect(error).toMatchObject({ name: 'CheckpointError', code: 'disk-full' });
    expect((error as Error).message.replace(root, 'ROOT')).toMatchInlineSnapshot(
      `"writing ROOT/checkpoints/step-000002.tmp/adapter_model.safetensors: found no space left (ENOSPC); wanted room for the whole file. Free space on that disk, then resume; nothing was lost."`,
    );
    await expectRecoverable(root, 'ENOSPC', 1);
  });

  test('for real, on a file system of 256 KiB', async (context) => {
    const root = join(base, 'small-disk');
    mkdirSync(root);
    try {
      execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=256k', 'tmpfs', root], { stdio: 'ignore' });
    } catch {
      context.skip('mounting a small tmpfs needs the right to mount');
    }
    onTestFinished(() => {
      execFileSync('umount', [root]);
    });
    const storage = createNodeStorage(root, { chunkBytes: 4096 });
    const large = (step: number) => {
      const content = checkpointContent(step);
      return {
        ...content,
        files: { ...content.files, 'adapter_model.safetensors': new Uint8Array(150_000).fill(step) },
      };
    };
    await sealCheckpoint(storage, checkpointFolder(1), large(1));
    await expect(sealCheckpoint(storage, checkpointFolder(2), large(2))).rejects.toMatchObject({ code: 'disk-full' });
    const { checkpoint, skipped } = await newestVerified(storage);
    expect(checkpoint?.files['adapter_model.safetensors']).toEqual(new Uint8Array(150_000).fill(1));
    expect(skipped).toEqual([{ folder: 'checkpoints/step-000002.tmp', reason: 'a save that was never finished' }]);
  });

  test('in the middle of a journal line leaves whole lines', async () => {
    const root = join(base, 'journal-enospc');
    let full = false;
    const storage = createNodeStorage(root, {
      chunkBytes: 100,
      beforeWrite(boundary) {
        if (full && boundary === 'append:journal.jsonl:bytes-1')
          throw Object.assign(new Error('full'), { code: 'ENOSPC' });
      },
    });
    const event = { kind: 'audit' as const, data: { step: 1, rollouts: 4, findings: [] } };
    const { journal } = await openJournal(storage, 'journal.jsonl', () => '2026-01-01T00:00:00Z');
    await journal.append(event);
    full = true;
    await expect(journal.append(event)).rejects.toMatchObject({ code: 'disk-full' });
    full = false;
    // The record has a gap in this process's eyes: it stays refused until the run is resumed.
    await expect(journal.append(event)).rejects.toMatchObject({ code: 'disk-full' });
    const reopened = await openJournal(storage, 'journal.jsonl', () => '2026-01-01T00:00:01Z');
    expect(reopened.torn).toBeNull();
    expect(reopened.journal.entries.length).toBe(1);
  });
});

describe('left-overs and strangers among the checkpoints', () => {
  test('are skipped with a reason and moved aside, never trusted and never deleted', async () => {
    const root = rootWithStep1('strangers');
    const folder = join(root, 'checkpoints');
    mkdirSync(join(folder, 'step-000120.tmp'));
    writeFileSync(join(folder, 'step-000120.tmp', 'adapter_model.safetensors'), 'half');
    mkdirSync(join(folder, '12'));
    writeFileSync(join(folder, '12', 'adapter_model.safetensors'), 'whole?');
    cpSync(join(folder, 'step-000001'), join(folder, 'step-000009'), { recursive: true });
    mkdirSync(join(folder, 'step-000130'));
    writeFileSync(join(folder, 'latest'), 'step-000130\n');

    const storage = createNodeStorage(root);
    const { checkpoint, skipped } = await newestVerified(storage);
    expect(checkpoint?.state.step).toBe(1);
    expect(skipped.map(({ folder: f, reason }) => [f, reason.replaceAll(root, 'ROOT')])).toMatchInlineSnapshot(`
      [
        [
          "checkpoints/12",
          "not a name of a checkpoint folder",
        ],
        [
          "checkpoints/step-000120.tmp",
          "a save that was never finished",
        ],
        [
          "checkpoints/step-000130",
          "verifying ROOT/checkpoints/step-000130: found no seal.json; wanted a sealed checkpoint: its save was never finished. Resume from an older checkpoint; this one is not trusted.",
        ],
        [
          "checkpoints/step-000009",
          "verifying ROOT/checkpoints/step-000009: found step 1 in state.json; wanted the step that the folder is named after. Resume from an older checkpoint; this one is not trusted.",
        ],
      ]
    `);
    const moved = await setAside(storage, skipped);
    expect(moved.map(({ to }) => to)).toEqual([
      'recovery/checkpoints-12.1',
      'recovery/checkpoints-step-000120.tmp.1',
      'recovery/checkpoints-step-000130.1',
      'recovery/checkpoints-step-000009.1',
    ]);
    expect(await storage.readText('recovery/checkpoints-12.1/adapter_model.safetensors')).toBe('whole?');
    expect((await newestVerified(storage)).skipped).toEqual([]);
  });

  test('a second left-over of the same name gets another name in recovery', async () => {
    const root = rootWithStep1('twice');
    const storage = createNodeStorage(root);
    for (const number of [1, 2]) {
      mkdirSync(join(root, 'checkpoints', 'step-000002.tmp'));
      const moved = await setAside(storage, (await newestVerified(storage)).skipped);
      expect(moved[0]?.to).toBe(`recovery/checkpoints-step-000002.tmp.${number}`);
    }
  });

  test('a damaged newer checkpoint yields to an older one, and its place can be sealed again', async () => {
    const root = rootWithStep1('damaged');
    const storage = createNodeStorage(root);
    await sealCheckpoint(storage, checkpointFolder(2), checkpointContent(2));
    const path = 'checkpoints/step-000002/optimizer.safetensors';
    const bytes = await storage.read(path);
    bytes[1234]! ^= 1;
    await storage.write(path, bytes);
    const { checkpoint, skipped } = await newestVerified(storage);
    expect(checkpoint?.state.step).toBe(1);
    expect(skipped[0]?.reason).toMatch(
      /optimizer\.safetensors: found sha256 [0-9a-f]{64}; wanted [0-9a-f]{64}, as sealed/,
    );
    await sealCheckpoint(storage, checkpointFolder(2), checkpointContent(2));
    expect((await newestVerified(storage)).checkpoint?.state.step).toBe(2);
    expect(await storage.exists('recovery/checkpoints-step-000002.1')).toBe(true);
  });
});

describe('a folder that may not be written', () => {
  test('is refused with its path and a remedy, and the checkpoint in it stays readable', async () => {
    const root = rootWithStep1('read-only');
    chmodSync(base, 0o755);
    chmodSync(join(root, 'checkpoints'), 0o555);
    const asRoot = process.geteuid?.() === 0;
    if (asRoot) process.seteuid?.(65534); // the permissions of a folder do not bind root
    try {
      const storage = createNodeStorage(root);
      const saved = sealCheckpoint(storage, checkpointFolder(2), checkpointContent(2));
      const error = await saved.catch((e: unknown) => e);
      expect(error).toMatchObject({ name: 'CheckpointError', code: 'permission' });
      expect((error as Error).message.replace(root, 'ROOT')).toMatchInlineSnapshot(
        `"writing ROOT/checkpoints/step-000002.tmp/adapter_config.json: found no permission (EACCES); wanted a place that this process may read and write. Give this user access or choose another output folder."`,
      );
      expect((await verifyCheckpoint(storage, checkpointFolder(1))).files).toEqual(checkpointContent(1).files);
      await expect(storage.write('checkpoints/latest', new Uint8Array(1))).rejects.toMatchObject({
        code: 'permission',
      });
    } finally {
      if (asRoot) process.seteuid?.(0);
      chmodSync(join(root, 'checkpoints'), 0o755);
    }
  });

  test('a checkpoint that cannot be read now is an error, not a reason to fall back to an older one', async () => {
    const root = rootWithStep1('unreadable');
    await sealCheckpoint(createNodeStorage(root), checkpointFolder(2), checkpointContent(2));
    const file = join(root, 'checkpoints', 'step-000002', 'state.json');
    chmodSync(file, 0o000);
    const asRoot = process.geteuid?.() === 0;
    if (asRoot) process.seteuid?.(65534);
    try {
      await expect(newestVerified(createNodeStorage(root))).rejects.toMatchObject({ code: 'permission' });
    } finally {
      if (asRoot) process.seteuid?.(0);
      chmodSync(file, 0o644);
    }
  });
});

describe('retention', () => {
  test('keeps the newest that verify and removes only what is older', async () => {
    const storage = createNodeStorage(join(base, 'retention'));
    for (const step of [1, 2, 3, 4, 5]) await sealCheckpoint(storage, checkpointFolder(step), checkpointContent(step));
    const bytes = await storage.read('checkpoints/step-000005/state.json');
    await storage.write('checkpoints/step-000005/state.json', bytes.slice(0, 10));
    expect(await retainCheckpoints(storage, 2, [1])).toEqual(['checkpoints/step-000002']);
    const left = (await storage.list('checkpoints')).map(({ name }) => name);
    expect(left).toEqual(['latest', 'step-000001', 'step-000003', 'step-000004', 'step-000005']);
  });

  test('removes nothing while no newer checkpoint verifies', async () => {
    const root = rootWithStep1('retention-none');
    const storage = createNodeStorage(root);
    mkdirSync(join(root, 'checkpoints', 'step-000002'));
    expect(await retainCheckpoints(storage, 1)).toEqual([]);
    expect((await newestVerified(storage)).checkpoint?.state.step).toBe(1);
  });

  test('refuses to keep none', async () => {
    const storage = createNodeStorage(rootWithStep1('retention-zero'));
    await expect(retainCheckpoints(storage, 0)).rejects.toMatchObject({ code: 'bad-retention' });
  });
});
