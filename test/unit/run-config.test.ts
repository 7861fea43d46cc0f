// The file of `train --config`: defaults of the german-agent recipe, and refusals that name key, value and remedy.
import { describe, expect, test } from 'vitest';
import { canonicalJson } from '../../src/lib/canonical-json.ts';
import { PlanError } from '../../src/lib/errors.ts';
import { sha256Hex } from '../../src/lib/sha256-node.ts';
import { lossKind, resolveRunConfig } from '../../src/run-config.ts';

const MINIMAL = 'model: models/qwen3\noutput: runs/a\n';

async function refusal(text: string): Promise<string> {
  const error = await resolveRunConfig(text, 'run.yaml').catch((e: unknown) => e);
  if (!(error instanceof PlanError)) return `not refused: ${String(error)}`;
  return `${error.code}: ${error.message}`;
}

describe('defaults', () => {
  test('are the german-agent recipe', async () => {
    const { config } = await resolveRunConfig(MINIMAL, 'run.yaml');
    expect(config).toEqual({
      model: 'models/qwen3',
      adapter: null,
      output: 'runs/a',
      seed: 20261020,
      steps: 256,
      data: { environment: 'german', seeds: { train: 20261020, dev: 42, final: 1729 }, count: 256 },
      generation: {
        temperature: 0.6,
        topP: 0.95,
        topK: 20,
        minP: 0,
        maxCompletionTokens: 768,
        maxPromptTokens: 512,
        maxToolRounds: 3,
        enableThinking: true,
      },
      grpo: {
        loss: 'dapo',
        beta: 0.1,
        klBiasCorrection: false,
        epsilonLow: 0.2,
        epsilonHigh: 0.2,
        cispoMaxRatio: 2,
        delta: null,
        scaleRewards: 'group',
        numIterations: 1,
        groupSize: 4,
        groupsPerStep: 1,
        gradientAccumulation: 1,
        maskTruncated: false,
        dppoDelta: null,
      },
      optimizer: {
        learningRate: 5e-6,
        schedule: 'linear',
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weightDecay: 0,
        maxGradNorm: 1,
      },
      lora: { rank: 16, alpha: 32, targets: 'all-linear', rslora: false },
      kernels: { family: 'portable' },
      recomputeActivations: false,
      checkpoints: { every: 64, keep: 'all' },
      evaluation: { episodes: 64, seeds: [42], every: null },
    });
  });

  test.each([
    ['dppo_tv', 0, 0.15],
    ['dppo_kl', 0, 0.05],
    ['gspo', 0.1, null],
  ])('of %s are beta %s and dppoDelta %s', async (loss, beta, dppoDelta) => {
    const { config } = await resolveRunConfig(`${MINIMAL}grpo: {loss: ${loss}}`, 'run.yaml');
    expect([config.grpo.beta, config.grpo.dppoDelta]).toEqual([beta, dppoDelta]);
  });

  test('give way to what is written, also to zero', async () => {
    const text = `${MINIMAL}grpo: {loss: dppo_tv, dppoDelta: 0.1, beta: 0}\nlora: {targets: [q_proj, v_proj]}`;
    const { config } = await resolveRunConfig(text, 'run.yaml');
    expect([config.grpo.dppoDelta, config.grpo.beta]).toEqual([0.1, 0]);
    expect((await resolveRunConfig(`${MINIMAL}grpo: {beta: 0}`, 'x')).config.grpo.beta).toBe(0);
    expect(config.lora.targets).toEqual(['q_proj', 'v_proj']);
  });

  test('exist for every loss', async () => {
    for (const loss of lossKind.options) {
      expect((await resolveRunConfig(`${MINIMAL}grpo: {loss: ${loss}}`, 'x')).config.grpo.loss).toBe(loss);
    }
  });
});

describe('a resolved config', () => {
  test('is the same from JSON and YAML, in any key order, and has the hash of its canonical JSON', async () => {
    const yaml = await resolveRunConfig(`${MINIMAL}optimizer:\n  learningRate: 1e-5\n  beta1: 0.8\n`, 'run.yaml');
    const value = { optimizer: { beta1: 0.8, learningRate: 1e-5 }, output: 'runs/a', model: 'models/qwen3' };
    for (const text of [JSON.stringify(value), JSON.stringify(value, null, 2), JSON.stringify(value, null, '\t')]) {
      expect(await resolveRunConfig(text, 'run.json')).toEqual(yaml);
    }
    expect(yaml.config.optimizer.learningRate).toBe(1e-5);
    expect(yaml.sha256).toBe(sha256Hex(canonicalJson(yaml.config)));
    const other = await resolveRunConfig(MINIMAL, 'run.yaml');
    expect(other.sha256).not.toBe(yaml.sha256);
  });

  test('that spells out a default has the hash of one that leaves it out', async () => {
    const plain = await resolveRunConfig(MINIMAL, 'a');
    expect((await resolveRunConfig(`${MINIMAL}steps: 256\ngrpo: {beta: 0.1}`, 'b')).sha256).toBe(plain.sha256);
  });

  test('is frozen at every depth', async () => {
    const { config } = await resolveRunConfig(MINIMAL, 'run.yaml');
    const writable = config as unknown as {
      steps: number;
      data: { seeds: { train: number } };
      evaluation: { seeds: number[] };
    };
    expect(() => {
      writable.steps = 1;
    }).toThrow(TypeError);
    expect(() => {
      writable.data.seeds.train = 1;
    }).toThrow(TypeError);
    expect(() => writable.evaluation.seeds.push(1)).toThrow(TypeError);
  });
});

describe('unknown keys', () => {
  test.each([
    ['lora: {rnak: 8}', '"lora.rnak"', '"lora.rank"'],
    ['optimizer: {learning_rate: 1}', '"optimizer.learning_rate"', '"optimizer.learningRate"'],
    ['learningRate: 1', '"learningRate"', '"optimizer.learningRate"'],
    ['grpo: {epsilonHihg: 0.3}', '"grpo.epsilonHihg"', '"grpo.epsilonHigh"'],
    ['data: {seeds: {trian: 1}}', '"data.seeds.trian"', '"data.seeds.train"'],
    ['genaration: {topP: 1}', '"genaration"', '"generation"'],
    ['modle: x', '"modle"', '"model"'],
  ])('%s is refused with the full path and the nearest known key', async (text, found, nearest) => {
    expect(await refusal(`${MINIMAL}${text}`)).toBe(
      `unknown-key: reading run.yaml: found the unknown key ${found}; the nearest known key is ${nearest}. ` +
        'Rename or remove the key.',
    );
  });

  test('without a near one get the list of what there is', async () => {
    expect(await refusal(`${MINIMAL}lora: {zzzzzzzzzzzz: 8}`)).toBe(
      'unknown-key: reading run.yaml: found the unknown key "lora.zzzzzzzzzzzz"; ' +
        'wanted one of lora.rank, lora.alpha, lora.targets, lora.rslora. Remove the key.',
    );
  });

  test('called like members of every object are refused too', async () => {
    expect(await refusal(`${MINIMAL}__proto__: {steps: 1}`)).toMatch(/^unknown-key: .*"__proto__"/);
    expect(await refusal(`${MINIMAL}constructor: 1`)).toMatch(/^unknown-key: .*"constructor"/);
  });
});

describe('wrong values', () => {
  test.each([
    ['steps: 0', '"steps": found 0; wanted at least 1'],
    ['steps: 1.5', '"steps": found 1.5; wanted a whole number'],
    ['steps: "10"', '"steps": found "10"; wanted a value of type number'],
    ['seed: 4294967296', '"seed": found 4294967296; wanted at most 4294967295'],
    ['seed: -1', '"seed": found -1; wanted at least 0'],
    ['grpo: {loss: ppo}', '"grpo.loss": found "ppo"; wanted one of "grpo", "bnpo", "dapo"'],
    ['grpo: {groupSize: 1}', '"grpo.groupSize": found 1; wanted at least 2'],
    ['grpo: yes', '"grpo": found "yes"; wanted a value of type object'],
    ['generation: {temperature: 0}', '"generation.temperature": found 0; wanted more than 0'],
    ['generation: {topP: 1.01}', '"generation.topP": found 1.01; wanted at most 1'],
    ['optimizer: {learningRate: .nan}', '"optimizer.learningRate": found NaN; wanted a value of type number'],
    ['optimizer: {beta1: 1}', '"optimizer.beta1": found 1; wanted less than 1'],
    ['optimizer: {epsilon: .inf}', '"optimizer.epsilon": found Infinity; wanted a value of type number'],
    ['evaluation: {seeds: []}', '"evaluation.seeds": found []; wanted at least 1 entries'],
    ['evaluation: {seeds: [1, x]}', '"evaluation.seeds[1]": found "x"; wanted a value of type number'],
    ['checkpoints: {keep: some}', '"checkpoints.keep": found "some"; wanted a value of type number or one of "all"'],
    ['lora: {targets: all}', '"lora.targets": found "all"; wanted one of "all-linear" or a value of type array'],
  ])('%s is refused with path, value found and wanted', async (text, want) => {
    expect(await refusal(`${MINIMAL}${text}`)).toContain(`bad-value: reading run.yaml: ${want}`);
  });

  test('and missing keys are all reported at once', async () => {
    expect(await refusal('lora: {rank: 0, rnak: 3}')).toMatchInlineSnapshot(`
      "bad-value: reading run.yaml: "model": found nothing; wanted a value of type string. Add it.
      "output": found nothing; wanted a value of type string. Add it.
      "lora.rank": found 0; wanted at least 1. Correct the value.
      found the unknown key "lora.rnak"; the nearest known key is "lora.rank". Rename or remove the key."
    `);
  });
});

describe('contradictions', () => {
  test.each([
    ['grpo: {groupsPerStep: 4, gradientAccumulation: 3}', '"grpo.gradientAccumulation": found 3; wanted a divisor'],
    ['data: {count: 3}\ngrpo: {groupsPerStep: 4}', '"data.count": found 3; wanted at least grpo.groupsPerStep, 4'],
    ['grpo: {dppoDelta: 0.1}', '"grpo.dppoDelta": found 0.1; wanted null with loss dapo'],
  ])('%j is refused', async (text, want) => {
    expect(await refusal(`${MINIMAL}${text}`)).toContain(`contradiction: reading run.yaml: ${want}`);
  });
});

describe('texts that are no configuration', () => {
  test.each([
    ['', 'not-an-object: reading run.yaml: found an empty document'],
    ['- a\n- b\n', 'not-an-object: reading run.yaml: found a list'],
    ['42', 'not-an-object: reading run.yaml: found 42'],
    [
      '{"model": "a", "model": "b", "output": "c"}',
      'syntax: reading run.yaml: found Map keys must be unique at line 1',
    ],
    ['{"model": "a",', 'syntax: reading run.yaml: found '],
    ['model: a\n  output: b\n', 'syntax: reading run.yaml: found '],
    ['model: !!js/function x\noutput: b\n', 'syntax: reading run.yaml: found Unresolved tag'],
  ])('%j is refused with its place', async (text, want) => {
    expect(await refusal(text)).toContain(want);
  });
});
