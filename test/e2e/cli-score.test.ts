import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { runCli } from '../support/cli-terminal.ts';
import { goldenData, goldenPath, readGolden } from '../support/golden.ts';

const folder = mkdtempSync(join(tmpdir(), 'shaderl-score-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const vocabulary = 320;
const length = 40;

/** Log-prob and entropy of the next token at each position, in f64, from the golden logits. */
function goldenScores(name: string, sequence: number, temperature: number) {
  const golden = readGolden(`forward-${name}.safetensors`);
  const ids = Array.from(goldenData(golden, 'input_ids').subarray(sequence * length, (sequence + 1) * length));
  const logits = goldenData(golden, 'logits.f64');
  const rows = ids.slice(1).map((target, t) => {
    const row = sequence * length + t;
    const scaled = Array.from(logits.subarray(row * vocabulary, (row + 1) * vocabulary), (x) => x / temperature);
    const top = Math.max(...scaled);
    const logSum = top + Math.log(scaled.reduce((sum, x) => sum + Math.exp(x - top), 0));
    const entropy = -scaled.reduce((sum, x) => sum + Math.exp(x - logSum) * (x - logSum), 0);
    return { logprob: scaled[target]! - logSum, entropy };
  });
  return { ids, logprobs: rows.map((row) => row.logprob), entropy: rows.map((row) => row.entropy) };
}

function idsFile(name: string, ids: readonly number[]): string {
  const path = join(folder, name);
  writeFileSync(path, JSON.stringify(ids));
  return path;
}

async function score(...argv: string[]) {
  const ran = await runCli('score', '--json', ...argv);
  expect(ran).toMatchObject({ exitCode: 0 });
  return JSON.parse(ran.stdout) as { ids: number[]; logprobs: number[]; entropy: number[] };
}

function expectClose(actual: readonly number[], expected: readonly number[], tolerance: number): void {
  expect(actual).toHaveLength(expected.length);
  for (const [i, value] of actual.entries()) {
    const difference = Math.abs(value - expected[i]!);
    if (!(difference <= tolerance)) expect.fail(`entry ${i}: ${value}, wanted ${expected[i]} within ${tolerance}`);
  }
}

describe.each([
  ['qwen3-tied', 0, 1],
  ['qwen3-tied', 2, 0.6],
  ['qwen3-untied', 1, 1],
  ['llama-tied', 1, 1.7],
])('score on tiny-%s, sequence %i, at temperature %d', (name, sequence, temperature) => {
  test('gives the log-probs and entropies of the f64 golden within 1e-4', async () => {
    const expected = goldenScores(name, sequence, temperature);
    const ids = idsFile(`${name}.json`, expected.ids);
    const found = await score('--model', goldenPath(`tiny-${name}`), '--ids', ids, '--temperature', `${temperature}`);
    expect(found.ids).toEqual(expected.ids.slice(1));
    expectClose(found.logprobs, expected.logprobs, 1e-4);
    expectClose(found.entropy, expected.entropy, 1e-4);
  });
});

describe('score', () => {
  const model = goldenPath('tiny-qwen3-tied');

  test('gives a prefix the same bits as the whole sequence, also past the rows of one pass', async () => {
    const ids = Array.from({ length: 300 }, (_, i) => (i * 37 + 11) % vocabulary);
    const whole = await score('--model', model, '--ids', idsFile('long.json', ids));
    const part = await score('--model', model, '--ids', idsFile('part.json', ids.slice(0, 270)));
    expect(whole.logprobs).toHaveLength(299);
    expect(part.logprobs).toEqual(whole.logprobs.slice(0, 269));
    expect(part.entropy).toEqual(whole.entropy.slice(0, 269));
  });

  test('uses the adapter', async () => {
    const ids = idsFile('short.json', [1, 2, 3, 4]);
    const base = await score('--model', model, '--ids', ids);
    const adapted = await score('--model', model, '--adapter', goldenPath('tiny-qwen3-tied-lora'), '--ids', ids);
    expect(adapted.ids).toEqual(base.ids);
    for (const [i, value] of adapted.logprobs.entries()) expect(value).not.toBe(base.logprobs[i]);
  });

  test('refuses an id and a length that the model does not have', async () => {
    const unknown = await runCli('score', '--model', model, '--ids', idsFile('unknown.json', [1, 320]));
    expect(unknown.exitCode).toBe(2);
    expect(unknown.stderr).toContain('found token 320 at index 1; wanted ids below 320');
    const long = Array.from({ length: 514 }, () => 1);
    const refused = await runCli('score', '--model', model, '--ids', idsFile('toolong.json', long));
    expect(refused.exitCode).toBe(2);
    expect(refused.stderr).toContain('found 513 tokens');
  });
});
