import { defineConfig } from 'vitest/config';

// Tests that open a GPU device share one adapter and two cores: they run one file at a time, in forked processes.
const serial = { pool: 'forks', fileParallelism: false, testTimeout: 240_000, hookTimeout: 120_000 } as const;

// Bug cases that need a device.
const gpuCases = [
  'test/cases/e-sampling.test.ts',
  'test/cases/i-webgpu-kernels.test.ts',
  'test/cases/i-device.test.ts',
];

export default defineConfig({
  test: {
    reporters: ['default', './test/support/closing-line.ts'],
    projects: [
      {
        test: {
          name: 'unit',
          include: ['test/{unit,cases,reference,contract}/**/*.test.ts'],
          exclude: gpuCases,
          testTimeout: 60_000,
        },
      },
      {
        test: {
          name: 'gpu',
          include: ['test/{kernels,model,workers,e2e,wire,interop,protocol}/**/*.test.ts', ...gpuCases],
          ...serial,
        },
      },
    ],
  },
});
