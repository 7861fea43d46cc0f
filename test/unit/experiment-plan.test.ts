import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { requireFreshEpisodes, requireSourceDisjoint } from '../../src/experiment/disjoint.ts';
import { loadPlan, planDifferences } from '../../src/experiment/freeze-node.ts';
import { parseMathDev } from '../../src/experiment/math-dev.ts';
import type { LoadedPlan } from '../../src/experiment/plan.ts';
import { requireUnchanged } from '../../src/experiment/plan-changes.ts';
import { preparePlan } from '../../src/experiment/prepare-node.ts';
import { parseRecipe } from '../../src/experiment/recipe.ts';
import { sha256Hex } from '../../src/lib/sha256-node.ts';
import { type Inputs, preparedPlan, smallRecipe, writeInputs } from '../support/experiment-fixture.ts';

const base = mkdtempSync(join(tmpdir(), 'shaderl-plan-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));
let inputs: Inputs;
let plan: LoadedPlan & { folder: string };
beforeAll(async () => {
  inputs = writeInputs(base);
  plan = await preparedPlan(base, inputs);
}, 60_000);

const prepare = (output: string, changes: Partial<Inputs> = {}, recipe: object = smallRecipe) =>
  preparePlan({
    ...inputs,
    ...changes,
    env: 'local',
    output,
    recipe: parseRecipe(JSON.stringify(recipe), 'r'),
    shaders: {},
  });
/** What changed, the program apart: it may be worked on while this runs. */
const changed = async () => (await planDifferences(plan.plan, plan.folder)).filter(({ file }) => file.startsWith(base));

describe('prepare', () => {
  test('writes a plan that reads back, with the data it froze, and repeats byte for byte', async () => {
    const { data, training, inspection } = plan.plan;
    for (const { path, sha256 } of Object.values(data))
      expect(sha256Hex(readFileSync(join(plan.folder, path)))).toBe(sha256);
    expect(training).toMatchObject({ output: 'training', steps: 4 });
    expect(inspection).toMatchObject({ agent: [expect.any(String), expect.any(String)] });
    expect(readFileSync(join(plan.folder, 'plan.sha256'), 'utf8')).toBe(`${plan.sha256}  plan.json\n`);
    const again = await prepare(join(base, 'again'));
    const { program: _p, ...rest } = again.plan;
    const { program: _q, ...first } = plan.plan;
    expect(rest).toEqual(first);
  });

  test('refuses a used folder and leaves it as it was', async () => {
    const before = readdirSync(plan.folder);
    await expect(prepare(plan.folder)).rejects.toThrow(
      /found files in it \(data, frozen, plan.json, plan.sha256\); wanted a new or empty folder/,
    );
    expect(readdirSync(plan.folder)).toEqual(before);
  });

  test('refuses another checkpoint than the recipe expects, and a tokenizer that it lacks', async () => {
    const wanted = 'a'.repeat(64);
    const recipe = { ...smallRecipe, baseline: { expect: wanted } };
    await expect(prepare(join(base, 'x'), {}, recipe)).rejects.toThrow(
      new RegExp(`found tree SHA-256 [0-9a-f]{64}; the recipe expects ${wanted}`),
    );
    const tokenizer = join(base, 'tokenizer');
    cpSync(inputs.baseline, tokenizer, { recursive: true });
    writeFileSync(join(tokenizer, 'tokenizer_config.json'), '{}');
    await expect(prepare(join(base, 'x'), { tokenizer })).rejects.toMatchObject({ code: 'other-tokenizer' });
    expect(existsSync(join(base, 'x'))).toBe(false);
  });

  test('refuses files with too few items, naming the file and both numbers', async () => {
    const recipe = { ...smallRecipe, retention: { items: 250, seeds: [42] } };
    await expect(prepare(join(base, 'x'), {}, recipe)).rejects.toThrow(/mgsm\.tsv: found 4 items; wanted 250/);
  });

  test('records what the users call their checkpoint without checking it', async () => {
    const { plan: made } = await prepare(
      join(base, 'declared'),
      {},
      { ...smallRecipe, baseline: { declaredIdentity: 'ours' } },
    );
    expect(made.inputs.baseline).toMatchObject({ declaredIdentity: 'ours', expect: null });
  });
});

describe('source disjointness', () => {
  const items = parseMathDev(
    '{"question":"Wie viel ist  2 plus 3?","answer":5,"source":"book:7","id":"a"}\n',
    'dev.jsonl',
  );
  test('accepts files that share nothing', () => {
    requireSourceDisjoint(items, [{ text: 'Wie viel ist 2 plus 4?' }, ['x']], 'train.jsonl');
  });
  test.each([
    [
      'the question inside a conversation, in other case and spacing',
      { messages: [{ content: 'Frage: WIE VIEL ist 2 plus\n3? ' }] },
      'the question',
    ],
    ['another text of the same source', { source: 'book:7', text: 'anders' }, 'the source "book:7"'],
  ])('refuses %s, naming item and line', (_name, line, found) => {
    expect(() => requireSourceDisjoint(items, [{}, line], 'train.jsonl')).toThrow(
      `found ${found} of item a in train.jsonl line 2; wanted none`,
    );
  });
  test('refuses a TRAIN episode with the operands and values of a held-out one', () => {
    const one = { id: 't', instance: '3:4:5', prompt: 'p' };
    requireFreshEpisodes([one], [{ ...one, id: 'f', instance: '3:5:4' }], []);
    expect(() => requireFreshEpisodes([one], [{ ...one, id: 'f' }], [])).toThrow(/of item f in TRAIN episode t/);
    expect(() =>
      requireFreshEpisodes([{ ...one, prompt: 'Was ist 2+2?' }], [], [{ id: 'm', question: 'was  ist 2+2?' }]),
    ).toThrow(/of item m/);
  });
  test('is checked by prepare', async () => {
    const folder = join(base, 'overlap');
    cpSync(join(base, 'math'), folder, { recursive: true });
    const first = readFileSync(join(folder, 'dev.jsonl'), 'utf8').split('\n')[0]!;
    writeFileSync(join(folder, 'train.jsonl'), `{}\n${first}\n`);
    await expect(prepare(join(base, 'x'), { mathDev: join(folder, 'dev.jsonl') })).rejects.toThrow(
      /train\.jsonl line 2/,
    );
  });
  test('is refused where no train.jsonl lies beside the DEV file, and said what it is for', async () => {
    const folder = join(base, 'alone');
    cpSync(join(base, 'math/dev.jsonl'), join(folder, 'dev.jsonl'), { recursive: true });
    await expect(prepare(join(base, 'x'), { mathDev: join(folder, 'dev.jsonl') })).rejects.toThrow(
      `freezing ${folder}/train.jsonl: found no such file; wanted the SFT training data beside --math-dev`,
    );
    expect(existsSync(join(base, 'x'))).toBe(false);
  });
});

describe('a plan that no longer fits', () => {
  test('fits at first', async () => {
    expect(await changed()).toEqual([]);
  });

  test.each([
    ['a byte of the weights', 'policy/model.safetensors', 700_000],
    ['a byte of the chat template', 'policy/chat_template.jinja', 3],
    ['a byte of the DEV math file', 'math/dev.jsonl', 20],
    ['a byte of the SFT file beside it', 'math/train.jsonl', 20],
    ['a byte of the MGSM file', 'math/mgsm.tsv', 20],
  ])('names %s with the frozen hash, the hash found and the offset', async (_name, path, at) => {
    const file = join(base, path);
    const good = readFileSync(file);
    const bad = Buffer.from(good);
    bad[at]! ^= 1;
    writeFileSync(file, bad);
    const differences = await changed();
    const hex = (byte: number) => `0x${byte.toString(16).padStart(2, '0')}`;
    const line = path.endsWith('.safetensors') ? null : good.subarray(0, at).toString('latin1').split('\n').length;
    const place = { kind: 'byte', offset: at, line, frozen: hex(good[at]!), found: hex(bad[at]!) };
    const wanted = { file, frozen: sha256Hex(good), found: sha256Hex(bad), place };
    // The tokenizer's folder is the checkpoint's here, so its files are named twice.
    expect(new Set(differences.map((one) => JSON.stringify(one)))).toEqual(new Set([JSON.stringify(wanted)]));
    expect(() => requireUnchanged(differences, plan.folder)).toThrow(
      `${file}: found SHA-256 ${wanted.found}; the plan froze SHA-256 ${wanted.frozen}; the first byte that differs is ` +
        `at offset ${at}${line === null ? '' : ` (line ${line})`}: found ${place.found}, wanted ${place.frozen}.`,
    );
    writeFileSync(file, good);
    expect(await changed()).toEqual([]);
  });

  test('names a missing file and one that came to the checkpoint', async () => {
    const file = join(base, 'policy/generation_config.json');
    const good = readFileSync(file);
    rmSync(file);
    writeFileSync(join(base, 'policy/extra.json'), '{}');
    expect(await changed()).toEqual([
      { file, frozen: sha256Hex(good), found: null, place: null },
      { file: join(base, 'policy/extra.json'), frozen: null, found: sha256Hex('{}'), place: null },
    ]);
    rmSync(join(base, 'policy/extra.json'));
    writeFileSync(file, good);
  });

  test('names changed generated data', async () => {
    const file = join(plan.folder, 'data/train.jsonl');
    const good = readFileSync(file, 'utf8');
    writeFileSync(file, good.replace('"split":"train"', '"split":"final"'));
    const offset = Buffer.byteLength(good.slice(0, good.indexOf('"split":"train"') + 9));
    const place = { kind: 'byte', offset, line: 1, frozen: '0x74', found: '0x66' };
    expect(await changed()).toMatchObject([{ file, place }]);
    writeFileSync(file, good);
  });

  test.each(['plan.json', 'plan.sha256'])('is refused without %s, which is named', async (name) => {
    const copy = mkdtempSync(join(base, 'without-'));
    cpSync(plan.folder, copy, { recursive: true });
    rmSync(join(copy, name));
    await expect(loadPlan(join(copy, 'plan.json'), copy)).rejects.toThrow(
      `reading ${copy}/${name}: found no such file; wanted the plan of an experiment with its hash beside it`,
    );
  });

  test('is refused if one number of it was edited, or its text spelled otherwise', async () => {
    const copy = mkdtempSync(join(base, 'edited-'));
    cpSync(plan.folder, copy, { recursive: true });
    const file = join(copy, 'plan.json');
    const good = readFileSync(file, 'utf8');
    writeFileSync(file, good.replace('"episodes":6', '"episodes":7'));
    await expect(loadPlan(file, copy)).rejects.toThrow(
      new RegExp(`found SHA-256 [0-9a-f]{64}; wanted ${plan.sha256}, as plan.sha256`),
    );
    const spaced = good.replace('{"arm"', '{ "arm"');
    writeFileSync(file, spaced);
    writeFileSync(join(copy, 'plan.sha256'), `${sha256Hex(spaced)}  plan.json\n`);
    await expect(loadPlan(file, copy)).rejects.toMatchObject({ name: 'PlanError', code: 'bad-plan' });
  });
});

describe('recipes', () => {
  const recipes = new URL('../../recipes/', import.meta.url);
  test('german-agent states the defaults, number for number', () => {
    const { baseline, tokenizer, ...rest } = parseRecipe(
      readFileSync(new URL('german-agent.json', recipes), 'utf8'),
      'german-agent.json',
    );
    const { baseline: _b, tokenizer: _t, ...defaults } = parseRecipe('{}', 'nothing');
    expect(rest).toEqual(defaults);
    expect(baseline.declaredIdentity).toMatch(/^b16dc153/);
    expect(tokenizer.declaredIdentity).toMatch(/^a08566d4/);
  });
  test('german-agent-ci fits the data that lies beside it', async () => {
    const data = new URL('../../examples/german-agent-ci/', import.meta.url).pathname;
    const recipe = parseRecipe(readFileSync(new URL('german-agent-ci.json', recipes), 'utf8'), 'german-agent-ci.json');
    const changes = { mathDev: join(data, 'dev.jsonl'), mgsm: join(data, 'retention.tsv') };
    const made = await preparePlan({
      ...inputs,
      ...changes,
      env: 'local',
      output: join(base, 'ci'),
      recipe,
      shaders: {},
    });
    expect(made.plan.data.mathDev.items).toBe(recipe.dev.mathItems);
  });
  test.each([
    [{ dev: { steps: [63, 256] } }, /"dev\.steps": found 63; wanted a sealed step: a multiple of .*64/],
    [{ dev: { steps: [64] } }, /"dev\.steps": found \[64\]; wanted the last step, 256/],
    [{ qualification: { steps: 2, stopAfter: 2 } }, /"qualification\.stopAfter": found 2; wanted less than/],
    [{ final: { seeds: [1] } }, /"final\.seeds": found \[1\]; wanted inspection\.seed, 42, among them/],
    [{ training: { data: { count: 100 } } }, /"training\.data\.count": found 100; wanted at least 256/],
    [{ training: { model: '/m' } }, /unknown key/],
    [{ budgets: {} }, /the nearest known key is "budget"/],
  ])('are refused where they contradict themselves: %j', (recipe, message) => {
    expect(() => parseRecipe(JSON.stringify(recipe), 'r.json')).toThrow(message);
  });
});
