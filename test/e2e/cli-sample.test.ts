import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runCli } from '../support/cli-terminal.ts';
import { goldenPath } from '../support/golden.ts';
import { CHATML, smallTokenizerJson } from '../support/small-text.ts';

// The golden checkpoint has 320 rows; this tokenizer names 258 of them, so that the others must never be drawn.
const vocabulary = 258;
const folder = mkdtempSync(join(tmpdir(), 'shaderl-sample-'));
const model = join(folder, 'model');
beforeAll(() => {
  cpSync(goldenPath('tiny-qwen3-tied'), model, { recursive: true });
  // Its eos id would be an ordinary byte of this tokenizer.
  rmSync(join(model, 'generation_config.json'));
  const config = JSON.parse(readFileSync(goldenPath('tiny-qwen3-tied/config.json'), 'utf8'));
  writeFileSync(join(model, 'config.json'), JSON.stringify({ ...config, eos_token_id: 257 }));
  writeFileSync(join(model, 'tokenizer.json'), JSON.stringify(smallTokenizerJson()));
  writeFileSync(
    join(model, 'tokenizer_config.json'),
    JSON.stringify({ eos_token: '<|im_end|>', chat_template: CHATML }),
  );
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Sampled {
  ids: number[];
  logprobs: (number | null)[];
  sources: string[];
  text: string;
  stop: string;
}

async function sample(...argv: string[]): Promise<Sampled> {
  const ran = await runCli('sample', '--json', '--model', model, ...argv);
  expect(ran).toMatchObject({ exitCode: 0 });
  return JSON.parse(ran.stdout);
}

const settings = ['--max-tokens', '24', '--temperature', '0.9', '--top-k', '0', '--top-p', '1'];

describe('sample --json', () => {
  test('gives prompt and sampled tokens with log-probs that score repeats bit for bit', async () => {
    const { ids, logprobs, sources, text, stop } = await sample('--prompt', 'Hi', ...settings);
    const prompt = sources.filter((source) => source === 'prompt').length;
    expect(sources).toEqual(ids.map((_, i) => (i < prompt ? 'prompt' : 'sampled')));
    // <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n, one token a byte but for the control tokens.
    expect(prompt).toBe(1 + 7 + 1 + 1 + 1 + 10);
    expect(ids.every((id) => id < vocabulary)).toBe(true);
    expect(logprobs.map((value) => value === null)).toEqual(ids.map((_, i) => i < prompt));
    expect(['stop', 'length']).toContain(stop);
    expect(typeof text).toBe('string');

    const file = join(folder, 'ids.json');
    writeFileSync(file, JSON.stringify(ids));
    const scored = await runCli('score', '--json', '--model', model, '--ids', file, '--temperature', '0.9');
    expect(JSON.parse(scored.stdout).logprobs.slice(prompt - 1)).toEqual(logprobs.slice(prompt));
  });

  test('repeats with the same seed, differs with another, and is greedy at temperature 0', async () => {
    const first = await sample('--prompt', 'Hi', ...settings, '--seed', '1');
    expect(await sample('--prompt', 'Hi', ...settings, '--seed', '1')).toEqual(first);
    expect((await sample('--prompt', 'Hi', ...settings, '--seed', '2')).ids).not.toEqual(first.ids);
    const greedy = ['--prompt', 'Hi', '--max-tokens', '6', '--temperature', '0'];
    expect((await sample(...greedy, '--seed', '1')).ids).toEqual((await sample(...greedy, '--seed', '2')).ids);
  });

  test('takes plain text as it stands with --raw, and a long prompt in passes that change no bit', async () => {
    const { ids, logprobs, sources } = await sample('--raw', '--prompt', 'ab'.repeat(240), '--max-tokens', '4');
    expect(sources.filter((source) => source === 'prompt')).toHaveLength(480);
    expect(ids.slice(0, 480).every((id, i) => id === ids[i % 2])).toBe(true);
    const file = join(folder, 'long.json');
    writeFileSync(file, JSON.stringify(ids));
    const scored = await runCli('score', '--json', '--model', model, '--ids', file, '--temperature', '0.6');
    expect(JSON.parse(scored.stdout).logprobs.slice(479)).toEqual(logprobs.slice(480));
  });

  test('renders messages by the chat template, with control tokens in their contents disarmed', async () => {
    const file = join(folder, 'chat.json');
    writeFileSync(file, JSON.stringify([{ role: 'user', content: '<|im_end|>' }]));
    const { ids, sources } = await sample('--messages', file, '--max-tokens', '1');
    const prompt = ids.slice(0, sources.indexOf('sampled'));
    expect(prompt.filter((id) => id === 257)).toHaveLength(1);
  });
});

describe('sample', () => {
  test('streams the text that --json reports, and a newline', async () => {
    const argv = ['--prompt', 'Hi', ...settings];
    const { text } = await sample(...argv);
    const plain = await runCli('sample', '--model', model, ...argv);
    expect(plain).toMatchObject({ exitCode: 0, stdout: `${text}\n` });
  });

  test('refuses a prompt with more new tokens than the model has positions', async () => {
    const { exitCode, stderr } = await runCli('sample', '--model', model, '--prompt', 'Hi', '--max-tokens', '500');
    expect(exitCode).toBe(2);
    expect(stderr).toContain('placing a prompt of 21 tokens and 500 new ones: found 521 tokens; wanted at most 512');
  });
});
