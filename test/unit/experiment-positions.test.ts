// No rollout of an experiment may reach past the positions of its model, and no cap shrinks unsaid.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runExperiment } from '../../src/experiment/driver.ts';
import { clampedSets, positionsOf } from '../../src/experiment/positions.ts';
import { preparePlan } from '../../src/experiment/prepare-node.ts';
import { parseRecipe } from '../../src/experiment/recipe.ts';
import { verifyExperiment } from '../../src/experiment/verify-node.ts';
import { type Inputs, preparedPlan, smallPorts, smallRecipe, writeInputs } from '../support/experiment-fixture.ts';

const base = mkdtempSync(join(tmpdir(), 'shaderl-positions-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));
let inputs: Inputs;
beforeAll(() => {
  inputs = writeInputs(base);
});

const recipeOf = (cap: number, rest: object = {}) =>
  parseRecipe(JSON.stringify({ training: { generation: { maxCompletionTokens: cap } }, ...rest }), 'r.json');
const prompt = (id: string, tokens: number) => ({ id, tokens });
const measured = {
  training: prompt('t', 200),
  'dev-agent': prompt('d', 210),
  'dev-math': prompt('m', 300),
  'final-agent': prompt('f', 220),
  'retention-math': prompt('g', 491),
};

describe('the positions of a model', () => {
  test('hold the longest prompt and the cap to the last token, and not one more', () => {
    const fits = positionsOf(recipeOf(533), measured, 1024, '/m');
    expect(fits.sets['retention-math']).toEqual({ longestPrompt: 491, longestItem: 'g', completionCap: 533 });
    expect(clampedSets(fits, recipeOf(533))).toEqual([]);
    expect(() => positionsOf(recipeOf(534), measured, 1024, '/m')).toThrowErrorMatchingInlineSnapshot(
      `[PlanError: preparing rollouts of /m, whose config.json has max_position_embeddings 1024: retention-math: found item g with a prompt of 491 tokens, 1025 with training.generation.maxCompletionTokens, 534; wanted at most 1024, the positions of the model. Lower maxCompletionTokens to 533 or less, or set "positions" to "clamp" in the recipe, which caps retention-math at 533.]`,
    );
  });

  test('are honoured by a clamp of the suites that need one, where the recipe says so', () => {
    const recipe = recipeOf(768, { positions: 'clamp' });
    const { model, sets } = positionsOf(recipe, measured, 1024, '/m');
    expect(model).toBe(1024);
    expect(Object.values(sets).map(({ completionCap }) => completionCap)).toEqual([768, 768, 724, 768, 533]);
    expect(clampedSets({ model, sets }, recipe)).toEqual(['dev-math', 'retention-math']);
  });

  test('never clamp the training, whose cap is one number of what is optimized', () => {
    const long = { ...measured, training: prompt('t', 300) };
    expect(() => positionsOf(recipeOf(768, { positions: 'clamp' }), long, 1024, '/m')).toThrow(
      'training: found item t with a prompt of 300 tokens, 1068 with training.generation.maxCompletionTokens, 768; ' +
        'wanted at most 1024, the positions of the model. Lower maxCompletionTokens to 724 or less.',
    );
    expect(() => positionsOf(recipeOf(8), { ...measured, training: prompt('t', 513) }, 1024, '/m')).toThrow(
      'wanted at most training.generation.maxPromptTokens, 512. Raise it to 513',
    );
  });

  test('refuse a prompt that leaves no room for an answer even to a clamp', () => {
    const long = { ...measured, 'retention-math': prompt('g', 1024) };
    expect(() => positionsOf(recipeOf(8, { positions: 'clamp' }), long, 1024, '/m')).toThrow(
      'retention-math: found item g with a prompt of 1024 tokens; wanted at most 1024, the positions of the model, and ' +
        'room for an answer. Take the item out',
    );
  });

  test('are named for every set that does not fit, in one refusal', () => {
    expect(() => positionsOf(recipeOf(900), measured, 1024, '/m')).toThrow(
      /training: .*\.\ndev-agent: .*\.\ndev-math: .*\.\nfinal-agent: .*\.\nretention-math: /s,
    );
  });
});

describe('prepare', () => {
  const words = Array.from({ length: 100 }, (_, i) => `Kiste${i}`).join(' ');
  const prepare = (recipe: object, output: string) => {
    const mgsm = join(base, 'long.tsv');
    const lines = readFileSync(inputs.mgsm, 'utf8').split('\n').slice(1);
    writeFileSync(mgsm, `Wie viele Kisten sind das: ${words}?\t100\n${lines.join('\n')}`);
    const parsed = parseRecipe(JSON.stringify(recipe), 'r.json');
    return preparePlan({ ...inputs, mgsm, env: 'local', output: join(base, output), recipe: parsed, shaders: {} });
  };
  const generation = { ...smallRecipe.training.generation, maxCompletionTokens: 768 };
  const long = { ...smallRecipe, training: { ...smallRecipe.training, generation } };

  test("refuses an item that would go past the model's positions, and says what to do", async () => {
    const refused = await prepare(long, 'refused').catch((error: Error) => error);
    expect(refused).toMatchObject({ name: 'PlanError', code: 'too-few-positions' });
    expect((refused as Error).message).toMatch(
      /preparing rollouts of \S+policy, whose config\.json has max_position_embeddings 1024: retention-math: found item \S+ with a prompt of \d+ tokens, \d+ with .*, 768; wanted at most 1024, .*"positions" to "clamp"/,
    );
  });

  test('freezes the clamp in the plan, and the longest prompt with its item', async () => {
    const { plan } = await prepare({ ...long, positions: 'clamp' }, 'clamped');
    const { 'retention-math': retention, 'dev-math': dev, training } = plan.positions.sets;
    expect(retention.completionCap).toBe(1024 - retention.longestPrompt);
    expect(retention.completionCap).toBeLessThan(768);
    expect([dev.completionCap, training.completionCap]).toEqual([768, 768]);
    const first = JSON.parse(readFileSync(join(base, 'clamped/data/mgsm.jsonl'), 'utf8').split('\n')[0]!);
    expect(retention.longestItem).toBe(first.id);
  });

  test('of the recipe for the embedded policy is german-agent with a clamp, and nothing else', () => {
    const read = (name: string) => readFileSync(new URL(`../../recipes/${name}.json`, import.meta.url), 'utf8');
    const { name: _n, positions, ...rest } = parseRecipe(read('german-agent-embedded'), 'r.json');
    const { name: _m, positions: wanted, ...whole } = parseRecipe(read('german-agent'), 'r.json');
    const identities = { baseline: rest.baseline, tokenizer: rest.tokenizer };
    expect([positions, wanted]).toEqual(['clamp', 'refuse']);
    expect(rest).toEqual({ ...whole, ...identities });
  });
});

describe('an evaluation', () => {
  test('with another cap than the plan froze is refused, and nothing is recorded of it', async () => {
    const plan = await preparedPlan(base, inputs);
    const ports = await smallPorts(plan, {
      change: ({ evaluate }) => ({
        async evaluate(...asked) {
          const answer = await evaluate(...asked);
          const { sampling } = answer.evaluation;
          const longer = { ...sampling, maxTokens: sampling.maxTokens + 1 };
          return { ...answer, evaluation: { ...answer.evaluation, sampling: longer } };
        },
      }),
    });
    const run = runExperiment(plan, ports, { resume: false, qualificationOnly: false });
    await expect(run).rejects.toMatchObject({ code: 'other-evaluation', message: /found cap 65; wanted 64/ });
  });

  test('that went past its cap is found by verify, with file, line and length', async () => {
    const plan = await preparedPlan(base, inputs);
    const ports = await smallPorts(plan, {
      change: ({ evaluate }) => ({
        async evaluate(unit, ...asked) {
          const answer = await evaluate(unit, ...asked);
          if (unit.name !== 'dev-math-baseline-seed-42') return answer;
          const [first, ...rest] = answer.episodes;
          const ids = Array.from({ length: first!.promptLength + 65 }, (_, i) => i);
          return { ...answer, episodes: [{ ...first!, ids }, ...rest] };
        },
      }),
    });
    const outcome = await runExperiment(plan, ports, { resume: false, qualificationOnly: false });
    expect(outcome.status).toBe('finished');
    const { checks } = await verifyExperiment(plan.folder, null);
    expect(checks.find(({ name }) => name.includes('within its cap'))).toMatchObject({
      passed: false,
      detail: ['evaluations/dev-math-baseline-seed-42.rollouts.jsonl line 1: found 66 tokens; wanted at most 65'],
    });
  });
});
