import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, test } from 'vitest';
import { kernels } from '../../src/kernels/index.ts';
import { goldenPath } from '../support/golden.ts';

const bin = fileURLToPath(new URL('../../cli/bin.mjs', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'shaderl-process-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Runs the real program. Without XDG_RUNTIME_DIR, as on a bare server. */
function shaderl(argv: string[], env: Record<string, string> = {}) {
  const { XDG_RUNTIME_DIR: _unset, ...inherited } = process.env;
  return new Promise<{ exitCode: number; stdout: string; stderr: string }>((resolve) => {
    const options = { env: { ...inherited, ...env }, cwd: folder, timeout: 200_000, maxBuffer: 2 ** 26 };
    execFile(process.execPath, [bin, ...argv], options, (error, stdout, stderr) => {
      resolve({ exitCode: error ? Number(error.code ?? -1) : 0, stdout, stderr });
    });
  });
}

// A Vulkan loader that is told of a driver that does not exist finds none.
const noDriver = { VK_DRIVER_FILES: '/nonexistent.json', VK_ICD_FILENAMES: '/nonexistent.json' };

describe('shaderl doctor', () => {
  test('describes the adapter and adds up what a model needs', async () => {
    const { exitCode, stdout } = await shaderl(['doctor', '--json', '--model', goldenPath('tiny-qwen3-tied')]);
    expect(exitCode).toBe(0);
    const value = JSON.parse(stdout);
    expect(value).toMatchObject({
      ok: true,
      problems: [],
      families: { portable: { available: true } },
      model: { slots: 4, context: 512, rank: 16, architecture: { layers: 3, hiddenSize: 64, vocabSize: 320 } },
    });
    const { bytes } = value.model;
    const parts = [bytes.weights, bytes.kvCache, bytes.sampling, bytes.training, bytes.adapter];
    expect(parts.every((part) => part > 0)).toBe(true);
    expect(bytes.total).toBe(parts.reduce((sum, part) => sum + part, 0));
    // 3 layers, K and V, 4 slots of 512 positions, 2 heads of 32, f32.
    expect(bytes.kvCache).toBe(3 * 2 * 4 * 512 * 64 * 4);
  });

  test('fails its check for a shape that no buffer of this adapter holds', async () => {
    const argv = [
      'doctor',
      '--json',
      '--model',
      goldenPath('tiny-qwen3-tied'),
      '--slots',
      '100000',
      '--context',
      '512',
    ];
    const { exitCode, stdout } = await shaderl(argv);
    expect(exitCode).toBe(1);
    const value = JSON.parse(stdout);
    expect(value).toMatchObject({ ok: false, model: { bytes: null } });
    expect(value.problems[0].problem).toContain('the adapter allows');
    expect(value.problems[0].remedy).toContain('--slots');
  });

  test('says with exit code 3 what to do where there is no adapter', async () => {
    const quick = await shaderl(['doctor', '--quick'], noDriver);
    expect(quick).toMatchObject({ exitCode: 3, stdout: '' });
    const { exitCode, stdout } = await shaderl(['doctor', '--json'], noDriver);
    expect(exitCode).toBe(3);
    expect(JSON.parse(stdout)).toMatchObject({
      ok: false,
      adapter: null,
      problems: [{ remedy: expect.stringContaining('./setup.sh') }],
    });
    expect(await shaderl(['doctor', '--quick'])).toMatchObject({ exitCode: 0, stdout: '' });
  });
});

describe('a command that needs a device', () => {
  test('ends with exit code 3 and one line of JSON where there is none', async () => {
    const ids = join(folder, 'ids.json');
    writeFileSync(ids, '[1, 2, 3]');
    const argv = ['score', '--json', '--model', goldenPath('tiny-qwen3-tied'), '--ids', ids];
    const { exitCode, stdout, stderr } = await shaderl(argv, noDriver);
    expect({ exitCode, stdout }).toEqual({ exitCode: 3, stdout: '' });
    // The GPU library writes warnings of its own; the error is the last line.
    const { error } = JSON.parse(stderr.trimEnd().split('\n').at(-1)!);
    expect(error).toMatchObject({ class: 'DeviceError', code: 'no-adapter', exitCode: 3 });
    expect(error.message).toContain('./setup.sh');
  });
});

describe('shaderl qualify', () => {
  test('qualifies every kernel of the registry, twice with the same results', async () => {
    const first = await shaderl(['qualify', '--json']);
    expect(first.exitCode).toBe(0);
    const value = JSON.parse(first.stdout);
    expect(value).toMatchObject({ schema: 'shaderl.qualification/1', family: 'portable', passed: true });
    expect(value.kernels.map(({ name }: { name: string }) => name)).toEqual(kernels.map(({ name }) => name));
    expect(Object.keys(value.shaders)).toEqual(kernels.map(({ name }) => `${name}.wgsl`).sort());
    const written = (file: string) => {
      // The program's source may be worked on between the two.
      const { sourceSha256, ...rest } = JSON.parse(readFileSync(join(folder, file), 'utf8'));
      expect(sourceSha256).toMatch(/^[0-9a-f]{64}$/);
      return JSON.stringify(rest);
    };
    const second = await shaderl(['qualify', '--output', 'again']);
    expect(second.exitCode).toBe(0);
    expect(second.stdout).toContain('qualified: family portable');
    expect(written('again/qualification.json')).toBe(written(value.file));
  });

  test('refuses the family matrix on an adapter that lacks it', async () => {
    const { stdout } = await shaderl(['doctor', '--json']);
    const { available } = JSON.parse(stdout).families.matrix;
    const { exitCode, stderr } = await shaderl(['qualify', '--family', 'matrix']);
    expect(exitCode).toBe(available ? 0 : 3);
    if (!available) expect(stderr).toContain('DeviceError [family-unavailable]');
  });
});
