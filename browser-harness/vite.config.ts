import { fileURLToPath } from 'node:url';
import type { Plugin } from 'vite';
import { defineConfig } from 'vite';

const here = fileURLToPath(new URL('.', import.meta.url));

/**
 * Puts script and style into the page: one file, which opens from a server or straight from a disk. The tfjs worker
 * stays a file of its own: it is larger than the page and fetched only when somebody asks for its opinion.
 */
function oneFile(): Plugin {
  return {
    name: 'one-file',
    enforce: 'post',
    generateBundle(_options, bundle) {
      const page = Object.values(bundle).find((item) => item.fileName === 'index.html');
      if (page?.type !== 'asset') throw new Error('building the page: found no index.html in the bundle; wanted one.');
      let html = String(page.source);
      for (const [name, item] of Object.entries(bundle)) {
        if (item.type === 'chunk') {
          const script = `<script type="module">${item.code.replaceAll('</script', '<\\/script')}</script>`;
          html = html.replace(/<script type="module"[^>]*src="[^"]*"[^>]*><\/script>/, () => script);
        } else if (name.endsWith('.css')) {
          html = html.replace(/<link rel="stylesheet"[^>]*>/, () => `<style>${String(item.source)}</style>`);
        } else continue;
        delete bundle[name];
      }
      page.source = html;
    },
  };
}

// biome-ignore lint/style/noDefaultExport: Vite reads a configuration from the default export.
export default defineConfig({
  root: here,
  base: './',
  plugins: [oneFile()],
  // Classic workers: a module worker cannot start from a page that was opened from the disk.
  worker: { format: 'iife' },
  build: {
    outDir: fileURLToPath(new URL('../dist/harness', import.meta.url)),
    emptyOutDir: true,
    target: 'es2023',
    modulePreload: false,
    assetsInlineLimit: Number.MAX_SAFE_INTEGER,
    chunkSizeWarningLimit: 4096,
    // Beside the page, where its script will stand: addresses of other files are relative to it.
    rolldownOptions: { output: { entryFileNames: '[name]-[hash].js' } },
  },
});
