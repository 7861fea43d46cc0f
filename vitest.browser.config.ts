import { playwright } from '@vitest/browser-playwright';
import { defineConfig } from 'vitest/config';
import { chromiumArguments, chromiumPath } from './test/browser/chromium.ts';

// The tests that run inside a page of headless Chromium on its software adapter (SwiftShader), and the ones that drive
// such a page from outside. Apart from `npm test`: they need Chromium.
export default defineConfig({
  test: {
    reporters: ['default', './test/support/closing-line.ts'],
    projects: [
      {
        optimizeDeps: { include: ['zod', 'canonicalize', '@huggingface/jinja', '@huggingface/tokenizers'] },
        test: {
          name: 'page',
          include: ['test/browser/page/**/*.test.ts'],
          testTimeout: 240_000,
          fileParallelism: false,
          browser: {
            enabled: true,
            headless: true,
            screenshotFailures: false,
            provider: playwright({ launchOptions: { executablePath: chromiumPath(), args: chromiumArguments } }),
            instances: [{ browser: 'chromium' }],
          },
        },
      },
      {
        test: {
          name: 'harness',
          include: ['test/browser/{unit,harness}/**/*.test.ts'],
          pool: 'forks',
          fileParallelism: false,
          testTimeout: 240_000,
          hookTimeout: 120_000,
        },
      },
    ],
  },
});
