import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { ensureQualifiedDevice, requireQualifiedDevice } from '../../src/qualification-node.ts';
import { useGpu } from '../support/gpu.ts';

const gpu = useGpu();
const folder = mkdtempSync(join(tmpdir(), 'shaderl-qualified-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test('a device is qualified when it has no qualification, not again while that one holds, and again when it does not', async () => {
  await expect(requireQualifiedDevice(gpu(), 'portable', folder)).rejects.toMatchObject({ code: 'no-qualification' });
  const kernels: string[] = [];
  const ensure = () => ensureQualifiedDevice(gpu(), 'portable', folder, (_done, _all, kernel) => kernels.push(kernel));

  const qualification = await ensure();
  expect(kernels.length).toBe(qualification.kernels.length + 1);
  expect(await requireQualifiedDevice(gpu(), 'portable', folder)).toEqual(qualification);
  expect(await ensure()).toEqual(qualification);
  expect(kernels.length).toBe(qualification.kernels.length + 1);

  const file = join(folder, 'qualification.json');
  const text = readFileSync(file, 'utf8');
  writeFileSync(file, text.replace(qualification.shaders['matmul.wgsl']!, '0'.repeat(64)));
  await expect(requireQualifiedDevice(gpu(), 'portable', folder)).rejects.toThrow(
    /shaders\/matmul\.wgsl had sha256 0000/,
  );
  // The program's source may be worked on meanwhile.
  const { sourceSha256: _, ...results } = qualification;
  expect(await ensure()).toMatchObject(results);
});
