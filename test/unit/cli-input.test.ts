import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { writeEvaluation } from '../../src/evaluation/files-node.ts';
import { runCli } from '../support/cli-terminal.ts';
import { agentEvaluation } from '../support/evaluation-fixture.ts';
import { goldenPath } from '../support/golden.ts';

const folder = mkdtempSync(join(tmpdir(), 'shaderl-cli-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function write(name: string, content: string | Uint8Array): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

/** Messages without the folder of this run. */
async function messageOf(...argv: string[]): Promise<string> {
  const { exitCode, stdout, stderr } = await runCli(...argv);
  expect({ exitCode, stdout }).toEqual({ exitCode: 2, stdout: '' });
  return stderr.replaceAll(folder, 'DIR').replaceAll(goldenPath('.'), 'GOLDEN/');
}

const score = (content: string) => messageOf('score', '--model', 'm', '--ids', write('ids.json', content));
const converse = (content: string) => messageOf('sample', '--model', 'm', '--messages', write('chat.json', content));

describe('a file of token ids', () => {
  test('is refused where it is missing, no JSON, or no UTF-8', async () => {
    expect(await messageOf('score', '--model', 'm', '--ids', join(folder, 'none.json'))).toMatchInlineSnapshot(`
      "shaderl: PlanError [unreadable-file]: reading DIR/none.json: found no such file; wanted a JSON array of token ids. Check the path.
      "
    `);
    expect(await messageOf('score', '--model', 'm', '--ids', folder)).toMatchInlineSnapshot(`
      "shaderl: PlanError [unreadable-file]: reading DIR: found a folder; wanted a JSON array of token ids. Check the path.
      "
    `);
    // What JSON.parse says of it differs between versions of Node.
    expect(await score('[1, 2')).toMatch(
      /^shaderl: PlanError \[bad-json\]: reading DIR\/ids\.json: found .+; wanted a JSON array of token ids\. Correct the JSON\.\n$/,
    );
    expect(
      await messageOf('score', '--model', 'm', '--ids', write('bytes.json', Uint8Array.of(0x5b, 0xff, 0x5d))),
    ).toMatchInlineSnapshot(`
      "shaderl: PlanError [not-utf8]: reading DIR/bytes.json: found bytes that are not UTF-8; wanted a JSON array of token ids. Save the file as UTF-8.
      "
    `);
  });

  test('is refused with the place and value of the first wrong entry', async () => {
    expect(await score('[1, -2]')).toMatchInlineSnapshot(`
      "shaderl: PlanError [bad-value]: reading DIR/ids.json: found -2 at [1] (Too small: expected number to be >=0); wanted a JSON array of token ids. Correct the file.
      "
    `);
    expect(await score('[1, 2.5, 3]')).toMatchInlineSnapshot(`
      "shaderl: PlanError [bad-value]: reading DIR/ids.json: found 2.5 at [1] (Invalid input: expected int, received number); wanted a JSON array of token ids. Correct the file.
      "
    `);
    expect(await score('[1]')).toMatchInlineSnapshot(`
      "shaderl: PlanError [bad-value]: reading DIR/ids.json: found [1] at the file (at least two ids: the first one is never predicted); wanted a JSON array of token ids. Correct the file.
      "
    `);
    expect(await score('{"ids": [1, 2]}')).toMatchInlineSnapshot(`
      "shaderl: PlanError [bad-value]: reading DIR/ids.json: found {"ids":[1,2]} at the file (Invalid input: expected array, received object); wanted a JSON array of token ids. Correct the file.
      "
    `);
  });
});

describe('a file of messages', () => {
  test('is refused with the place and value of the first wrong member', async () => {
    expect(await converse('[]')).toMatchInlineSnapshot(`
      "shaderl: PlanError [bad-value]: reading DIR/chat.json: found [] at the file (at least one message); wanted a JSON array of {"role", "content"}. Correct the file.
      "
    `);
    expect(await converse('[{"role": "user", "content": 3}]')).toMatchInlineSnapshot(`
      "shaderl: PlanError [bad-value]: reading DIR/chat.json: found 3 at [0].content (Invalid input: expected string, received number); wanted a JSON array of {"role", "content"}. Correct the file.
      "
    `);
    expect(await converse('[{"content": "hi"}]')).toMatchInlineSnapshot(`
      "shaderl: PlanError [bad-value]: reading DIR/chat.json: found nothing at [0].role (Invalid input: expected string, received undefined); wanted a JSON array of {"role", "content"}. Correct the file.
      "
    `);
    expect(await converse('[{"role": "user", "role": "system", "content": "hi"}]')).toMatchInlineSnapshot(`
      "shaderl: PlanError [duplicate-key]: reading DIR/chat.json: found the key "role" twice in one object; wanted each key once. Remove one.
      "
    `);
  });

  test('is refused if its tools are no function schemas', async () => {
    const messages = write('good.json', '[{"role": "user", "content": "hi"}]');
    const tools = write('tools.json', '[{"type": "function", "name": "add"}]');
    expect(await messageOf('sample', '--model', 'm', '--messages', messages, '--tools', tools)).toMatchInlineSnapshot(`
      "shaderl: PlanError [bad-value]: reading DIR/tools.json: found nothing at [0].function (Invalid input: expected object, received undefined); wanted a JSON array of function schemas. Correct the file.
      "
    `);
  });
});

describe('a model folder', () => {
  const ids = () => write('three.json', '[1, 2, 3]');

  test('is refused by name where it is missing, and with what it is where it is an adapter', async () => {
    expect(await messageOf('score', '--model', join(folder, 'nothing'), '--ids', ids())).toMatchInlineSnapshot(`
      "shaderl: ModelFileError [missing-folder]: opening DIR/nothing: found nothing; wanted a folder. Give the folder that holds the files, not one of the files.
      "
    `);
    expect(
      await messageOf('score', '--model', goldenPath('tiny-qwen3-tied-lora'), '--ids', ids()),
    ).toMatchInlineSnapshot(`
      "shaderl: ModelFileError [not-a-model]: opening the checkpoint GOLDEN/tiny-qwen3-tied-lora: found adapter_config.json and no config.json: a LoRA adapter; wanted a model. Give this folder as the adapter, and the base model as the model.
      "
    `);
  });

  test('without a tokenizer takes ids only', async () => {
    expect(
      await messageOf('sample', '--model', goldenPath('tiny-qwen3-tied'), '--prompt', 'hello'),
    ).toMatchInlineSnapshot(`
      "shaderl: ModelFileError [no-tokenizer]: reading text with GOLDEN/tiny-qwen3-tied: found no tokenizer.json in the folder; wanted one. Copy tokenizer.json and tokenizer_config.json of the checkpoint into it, or give token ids.
      "
    `);
  });
});

describe('train', () => {
  test('refuses an unknown key of its configuration with the nearest known one', async () => {
    const config = write('run.yaml', 'model: m\noutput: o\nlora:\n  rnak: 8\n');
    expect(await messageOf('train', '--config', config)).toMatchInlineSnapshot(`
      "shaderl: PlanError [unknown-key]: reading DIR/run.yaml: found the unknown key "lora.rnak"; the nearest known key is "lora.rank". Rename or remove the key.
      "
    `);
  });
});

describe('compare', () => {
  const evaluation = (rate: number, stream: number) =>
    agentEvaluation({ items: 40, seeds: [42], rate, stream, adapterSha256: null });

  test('pairs two evaluations and prints the comparison, as text or as JSON', async () => {
    const [a, b] = [join(folder, 'a.json'), join(folder, 'b.json')];
    writeEvaluation(a, evaluation(0.3, 100));
    writeEvaluation(b, evaluation(0.8, 200));
    const text = await runCli('compare', a, b);
    expect(text).toMatchObject({ exitCode: 0, stderr: '' });
    expect(text.stdout).toMatchInlineSnapshot(`
      "measure        strict success, suite agent
      a              32.5 % (13 of 40)
      b              65.0 % (26 of 40)
      difference     +32.5 points
      95 % interval  +17.5 points to +47.5 points, over items
      items          40: 13 won, 0 lost, 27 equal
      McNemar        p = 0.000244, exact
      left out       0 samples that a failed service lost

      outcome          a   b
      --------------  --  --
      correct         13  26
      wrong           20   6
      no_answer        3   4
      contradictory    0   0
      truncated        4   4
      infrastructure   0   0

      note: The two have the same weights.
      "
    `);
    const json = await runCli('compare', a, b, '--json', '--seed', '5');
    const value = JSON.parse(json.stdout);
    expect(value).toMatchObject({ schema: 'shaderl.comparison/1', items: 40, difference: { seed: 5 } });
    expect(value.b.rate - value.a.rate).toBe(value.difference.difference);
  });

  test('fails with exit code 1 where the two are no pair', async () => {
    const [a, b] = [join(folder, 'c.json'), join(folder, 'd.json')];
    writeEvaluation(a, evaluation(0.3, 100));
    writeEvaluation(b, agentEvaluation({ items: 41, seeds: [42], rate: 0.3, stream: 100, adapterSha256: null }));
    const { exitCode, stderr } = await runCli('compare', a, b);
    expect(exitCode).toBe(1);
    expect(stderr.replaceAll(folder, 'DIR')).toMatchInlineSnapshot(`
      "shaderl: EvaluationError [not-comparable]: comparing DIR/c.json with DIR/d.json: item "final-040" with seed 42 is in DIR/d.json and not in DIR/c.json; wanted the same items and seeds in both. Evaluate one of the two again on the items of the other.
      "
    `);
  });
});

describe('merge', () => {
  test('writes the merged checkpoint and says what was lost', async () => {
    const output = join(folder, 'merged');
    const argv = ['--model', goldenPath('tiny-qwen3-tied'), '--adapter', goldenPath('tiny-qwen3-tied-lora')];
    const { exitCode, stdout } = await runCli('merge', ...argv, '--output', output, '--no-probe', '--json');
    expect(exitCode).toBe(0);
    const totals = { elements: expect.any(Number) };
    expect(JSON.parse(stdout)).toMatchObject({ output, rank: 4, scale: 2, totals, probe: null });
    expect(await messageOf('merge', ...argv, '--output', output, '--no-probe')).toMatchInlineSnapshot(`
      "merging into DIR/merged
      shaderl: ModelFileError [output-exists]: writing the merged model DIR/merged: found something of that name; wanted a name that is free. Choose another output folder, or remove this one.
      "
    `);
  });
});
