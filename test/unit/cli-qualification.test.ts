import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { qualifyText } from '../../cli/commands/qualify.ts';
import { type AdapterReport, requireFamily } from '../../src/doctor.ts';
import type { DeviceIdentity } from '../../src/gpu/device.ts';
import {
  formatQualification,
  matchesDevice,
  parseQualification,
  type Qualification,
  requireQualified,
} from '../../src/qualification.ts';
import { firstDifference } from '../../src/qualification-canonical.ts';
import { loadQualification, writeQualification } from '../../src/qualification-node.ts';

const digits = (digit: string) => digit.repeat(64);
const identity: DeviceIdentity = {
  vendor: 'mesa',
  architecture: 'software',
  device: 'llvmpipe',
  description: 'llvmpipe: Mesa 25.0.7',
  software: true,
  dawn: 'webgpu 0.6.2',
  toggles: ['enable-dawn-features=allow_unsafe_apis'],
  features: ['shader-f16'],
  subgroupSize: [8, 8],
  limits: {
    maxBufferSize: 1,
    maxStorageBufferBindingSize: 1,
    maxStorageBuffersPerShaderStage: 8,
    maxComputeWorkgroupStorageSize: 1,
    maxComputeInvocationsPerWorkgroup: 1,
    maxComputeWorkgroupSizeX: 1,
    maxComputeWorkgroupsPerDimension: 1,
    minStorageBufferOffsetAlignment: 256,
    minUniformBufferOffsetAlignment: 256,
  },
};
const digests = { 'matmul.wgsl': digits('1'), 'rmsnorm.wgsl': digits('2') };

function kernel(name: string, worst: number | null, parts: Partial<Qualification['kernels'][number]> = {}) {
  const passed = worst !== null && worst <= 1;
  const run = { case: '3x6', worst, at: passed ? '' : 'out[4]: 2, wanted 1', stable: true, guarded: true, passed };
  return { name, shader: `${name}.wgsl`, worst, slack: false, passed, cases: [run], ...parts };
}

function qualification(parts: Partial<Qualification> = {}): Qualification {
  return {
    schema: 'shaderl.qualification/1',
    family: 'portable',
    device: { ...identity, subgroupSize: [8, 8] },
    shaders: digests,
    sourceSha256: digits('3'),
    repeats: 3,
    kernels: [kernel('matmul', 0.25), kernel('embed', 0)],
    canonical: [{ name: 'forward pass', passed: true, detail: 'equal bits' }],
    passed: true,
    ...parts,
  };
}

describe('a qualification', () => {
  test('holds for its own device, family and shaders', () => {
    expect(matchesDevice(qualification(), identity, digests)).toEqual([]);
    expect(() => requireQualified(qualification(), 'portable', identity, digests, 'q.json')).not.toThrow();
  });

  test.each([
    [
      'driver',
      { description: 'llvmpipe: Mesa 25.1.0' },
      'description was "llvmpipe: Mesa 25.0.7" and is "llvmpipe: Mesa 25.1.0"',
    ],
    ['device', { device: 'H200' }, 'device was "llvmpipe" and is "H200"'],
    ['Dawn', { dawn: 'webgpu 0.6.3' }, 'dawn was "webgpu 0.6.2" and is "webgpu 0.6.3"'],
    ['set of toggles', { toggles: [] }, 'toggles was ["enable-dawn-features=allow_unsafe_apis"] and is []'],
    ['subgroup size', { subgroupSize: [4, 8] as [number, number] }, 'subgroupSize was [8,8] and is [4,8]'],
  ])('does not hold for another %s', (_, change, difference) => {
    expect(matchesDevice(qualification(), { ...identity, ...change }, digests)).toEqual([difference]);
  });

  test('holds where only limits and unused features differ, which change no arithmetic', () => {
    const roomier = { ...identity, features: [], limits: { ...identity.limits, maxBufferSize: 2 ** 30 } };
    expect(matchesDevice(qualification(), roomier, digests)).toEqual([]);
  });

  test('does not hold for a changed shader or for one that it has never run', () => {
    const now = { 'matmul.wgsl': digits('9'), 'rmsnorm.wgsl': digits('2'), 'sample.wgsl': digits('4') };
    expect(matchesDevice(qualification(), identity, now)).toEqual([
      'shaders/matmul.wgsl had sha256 111111111111... and has 999999999999...',
      'shaders/sample.wgsl was not qualified',
    ]);
  });

  test('refuses training by naming everything that differs', () => {
    const failed = qualification({ kernels: [kernel('matmul', 1.5)], passed: false });
    const other = { ...identity, device: 'H200', dawn: 'webgpu 0.6.3' };
    expect(() => requireQualified(failed, 'matrix', other, digests, 'runs/q.json')).toThrowErrorMatchingInlineSnapshot(
      `[DeviceError: checking the device against runs/q.json: family portable, wanted matrix; failures (kernel matmul); device was "llvmpipe" and is "H200"; dawn was "webgpu 0.6.2" and is "webgpu 0.6.3"; wanted a qualification that passed, of this family, device and these shaders. Run \`shaderl qualify --family matrix\`.]`,
    );
    try {
      requireQualified(failed, 'matrix', other, digests, 'runs/q.json');
    } catch (error) {
      expect(error).toMatchObject({ name: 'DeviceError', code: 'not-qualified', exitCode: 3 });
    }
  });
});

describe('a qualification file', () => {
  const folder = mkdtempSync(join(tmpdir(), 'shaderl-qualification-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  test('comes back as it was written', () => {
    const file = writeQualification(join(folder, 'a', 'b'), qualification());
    expect(loadQualification(join(folder, 'a', 'b'))).toEqual({ qualification: qualification(), file });
  });

  test('is asked for where there is none', () => {
    expect(() => loadQualification('nowhere')).toThrowErrorMatchingInlineSnapshot(
      `[DeviceError: reading nowhere/qualification.json: found no such file; wanted the qualification of this device. Run \`shaderl qualify\` first.]`,
    );
  });

  test('is refused where somebody turned a failure into a pass', () => {
    const text = formatQualification(qualification({ kernels: [kernel('matmul', 1.5)] }));
    expect(() => parseQualification(text, 'q.json')).toThrowErrorMatchingInlineSnapshot(
      `[DeviceError: reading q.json: found passed: true, though its results say false; wanted a file that nobody edited. Run \`shaderl qualify\` on this device again.]`,
    );
  });

  test.each([
    ['an error that has no number', kernel('matmul', null)],
    ['bits that changed', kernel('matmul', 0.1, { cases: [{ ...kernel('matmul', 0.1).cases[0]!, stable: false }] })],
    [
      'a write past the end',
      kernel('matmul', 0.1, { cases: [{ ...kernel('matmul', 0.1).cases[0]!, guarded: false }] }),
    ],
  ])('never passes with %s', (_, bad) => {
    expect(() => parseQualification(formatQualification(qualification({ kernels: [bad] })), 'q.json')).toThrow(
      /passed: true, though its results say false/,
    );
  });

  test('is refused with the field that is wrong', () => {
    const text = formatQualification(qualification()).replace('"repeats": 3', '"repeats": 1');
    expect(() => parseQualification(text, 'q.json')).toThrowErrorMatchingInlineSnapshot(
      `[DeviceError: reading q.json: found "repeats": found 1 (Too small: expected number to be >=2); wanted a shaderl.qualification/1 file. Run \`shaderl qualify\` on this device again.]`,
    );
  });
});

describe('what qualify prints', () => {
  test('shows failures with their place, and warns of a slack bound but not of exact kernels', () => {
    const kernels = [
      kernel('embed', 0),
      kernel('matmul', 1.5),
      kernel('swiglu', 0.002, { slack: true }),
      kernel('sample', null),
    ];
    expect(qualifyText(qualification({ kernels, passed: false }), 'q.json')).toMatchInlineSnapshot(`
      "kernel  cases  worst/bound  repeats  guard  result
      ------  -----  -----------  -------  -----  -------------------
      embed       1        exact  yes      yes    passed
      matmul      1         1.50  yes      yes    FAILED
      swiglu      1      0.00200  yes      yes    passed, slack bound
      sample      1          NaN  yes      yes    FAILED

      canonical forward
      passed  forward pass: equal bits

      failed: matmul, 3x6: worst/bound 1.50 at out[4]: 2, wanted 1
      failed: sample, 3x6: worst/bound NaN at out[4]: 2, wanted 1
      warning: the bound of swiglu is slack: its worst error is 0.00200 of it

      NOT qualified: family portable on llvmpipe: Mesa 25.0.7, webgpu 0.6.2
      wrote q.json"
    `);
  });
});

describe('comparing bits', () => {
  test('finds a single bit, a different NaN and a length; equal NaNs are equal', () => {
    const words = (...values: number[]) => Uint32Array.from(values);
    expect(firstDifference(words(1, 2), words(1, 2))).toBeNull();
    expect(firstDifference(words(0x7fc00000), words(0x7fc00000))).toBeNull();
    expect(firstDifference(words(1, 0x3f800000), words(1, 0x3f800001))).toBe('word 1 of 2: 3f800000 against 3f800001');
    expect(firstDifference(words(0), words(0x80000000))).toBe('word 0 of 1: 0 against 80000000');
    expect(firstDifference(words(1), words(1, 2))).toBe('1 words against 2');
  });
});

describe('the family matrix', () => {
  test('is refused with the reason where it cannot be run', () => {
    const report: AdapterReport = {
      adapters: [],
      identity,
      driver: identity.description,
      matrixConfigs: [],
      families: {
        portable: { available: true, reason: 'needs WebGPU core only' },
        matrix: { available: false, reason: 'the adapter has no feature chromium-experimental-subgroup-matrix' },
      },
    };
    expect(() => requireFamily(report, 'portable')).not.toThrow();
    expect(() => requireFamily(report, 'matrix')).toThrowErrorMatchingInlineSnapshot(
      `[DeviceError: choosing the kernel family matrix on llvmpipe: Mesa 25.0.7: the adapter has no feature chromium-experimental-subgroup-matrix; wanted a family that runs here. Use --family portable.]`,
    );
  });
});
