// The shape of the code base: who may import whom, file sizes, and a shader, a wrapper and cases for every kernel.
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { familyKernels } from '../../src/kernels/matrix-index.ts';

const kernels = familyKernels('matrix');
const root = fileURLToPath(new URL('../../', import.meta.url));

function filesUnder(folder: string, pattern: RegExp): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => pattern.test(name) && !name.includes('node_modules'))
    .map((name) => join(folder, name))
    .sort();
}

const source = filesUnder('src', /\.ts$/);
const lines = (file: string) => readFileSync(join(root, file), 'utf8').split('\n').length - 1;

/** Files of the project that a file imports, relative to the root. */
function importsOf(file: string): string[] {
  const text = readFileSync(join(root, file), 'utf8');
  return [...text.matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)].map((match) =>
    relative(root, join(root, dirname(file), match[1]!)),
  );
}

/** What each folder of src may import beside itself and src/lib; files at the top of src may import all of src. */
const allowed: Record<string, string[]> = {
  lib: [],
  gpu: [],
  kernels: ['gpu'],
  model: ['gpu', 'kernels'],
  rollout: ['gpu', 'kernels', 'model', 'environments'],
  grpo: ['gpu', 'kernels', 'model', 'rollout'],
  environments: ['rollout'],
  evaluation: ['rollout', 'model'],
  export: ['model'],
  audit: ['environments', 'model', 'rollout'],
};

describe('the dependency direction', () => {
  test.each(Object.entries(allowed))('src/%s imports only what lies below it', (folder, below) => {
    const mayImport = (path: string) => ['lib', folder, ...below].some((name) => path.startsWith(`src/${name}/`));
    const wrong = source
      .filter((file) => file.startsWith(`src/${folder}/`))
      .flatMap((file) =>
        importsOf(file)
          .filter((path) => !mayImport(path))
          .map((path) => `${file} -> ${path}`),
      )
      .filter((edge) => !edge.startsWith('src/export/merge-node.ts'));
    expect(wrong).toEqual([]);
  });

  test('src imports no worker, no command and no harness', () => {
    const wrong = source.flatMap((file) =>
      importsOf(file).filter((path) => /^(workers|cli|browser-harness)\//.test(path)),
    );
    expect(wrong).toEqual([]);
  });

  test('node: modules are imported only in files called *-node.ts', () => {
    const wrong = source.filter(
      (file) => !file.endsWith('-node.ts') && /from 'node:/.test(readFileSync(join(root, file), 'utf8')),
    );
    expect(wrong).toEqual([]);
  });

  test('the run configuration loads without a device', () => {
    const seen = new Set<string>();
    const queue = ['src/run-config.ts'];
    for (let file = queue.pop(); file; file = queue.pop()) {
      if (seen.has(file)) continue;
      seen.add(file);
      queue.push(...importsOf(file));
    }
    expect([...seen].filter((file) => /^src\/(gpu|kernels|model)\//.test(file))).toEqual([]);
  });
});

describe('the files', () => {
  test('none of the program is longer than 400 lines', () => {
    const all = [
      ...source,
      ...['workers', 'cli', 'shaders'].flatMap((folder) => filesUnder(folder, /\.(ts|mjs|wgsl)$/)),
    ];
    expect(all.length).toBeGreaterThan(50);
    expect(all.filter((file) => lines(file) > 400).map((file) => `${file}: ${lines(file)}`)).toEqual([]);
  });

  // A second form of a kernel (same bits, other loads) is described beside the plain form.
  const plainForm = (name: string) =>
    name
      .replace(/-(lanes|tiled|skinny|wide)$|(?<=rmsnorm|rmsnorm-backward)-rows$|(?<=^matrix-few)-.*$/, '')
      .replace(/^attention-(row-sums|flash-dq|flash-dkv)$/, 'attention-flash-backward');

  test('every shader has a kernel in the registry, with a wrapper of its stem and cases', () => {
    const shaders = filesUnder('shaders', /\.wgsl$/).map((file) => file.slice('shaders/'.length, -'.wgsl'.length));
    expect(kernels.map(({ name }) => name).sort()).toEqual(shaders.sort());
    for (const kernel of kernels) {
      expect(source).toContain(`src/kernels/${plainForm(kernel.name)}.ts`);
      expect(kernel.cases().length, kernel.name).toBeGreaterThan(2);
    }
  });
});
