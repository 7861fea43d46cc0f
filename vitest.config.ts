import { defineConfig } from 'vitest/config';

// Tests that open a GPU device share one adapter and two cores: they run one file at a time, in forked processes.
const serial = { pool: 'forks', fileParallelism: false, testTimeout: 240_000, hookTimeout: 120_000 } as const;

export default defineConfig({
  test: {
    reporters: ['default', './test/support/closing-line.ts'],
    projects: [
      { test: { name: 'unit', include: ['test/{unit,cases,reference}/**/*.test.ts'], testTimeout: 60_000 } },
      { test: { name: 'gpu', include: ['test/{kernels,model,workers,e2e}/**/*.test.ts'], ...serial } },
    ],
  },
});
