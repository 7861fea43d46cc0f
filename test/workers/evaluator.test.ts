// The evaluator in its worker keeps within the positions of the model: to the last one, and not one further.
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { longestPrompt, mathPrompts } from '../../src/item-prompts.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import { loadText } from '../../src/model/text.ts';
import { type SpawnedEvaluator, spawnEvaluator } from '../../workers/evaluate-node.ts';
import type { EvaluateRequest } from '../../workers/evaluation-api.ts';

const model = fileURLToPath(new URL('../../fixtures/embedded-policy', import.meta.url));
const question = `Wie viele Kisten sind das: ${Array.from({ length: 150 }, (_, i) => `Kiste${i}`).join(' ')}?`;
const items = [
  { id: 'short', question: 'Wie viel ist 2 plus 3?', gold: '5' },
  { id: 'long', question, gold: '150' },
];

let evaluator: SpawnedEvaluator;
let room: number;
beforeAll(async () => {
  evaluator = await spawnEvaluator();
  const { tokens } = longestPrompt(await loadText(folderSource(model)), mathPrompts(items), true);
  room = 1024 - tokens;
});
afterAll(() => evaluator.stop());

const request = (maxTokens: number): EvaluateRequest => ({
  model,
  family: 'portable',
  policy: { kind: 'base' },
  suite: { kind: 'math', items, dataSha256: '0'.repeat(64) },
  seeds: [42],
  sampling: { temperature: 1, topP: 1, topK: 0, minP: 0, maxTokens, maxToolRounds: 0, thinking: true },
  slots: 2,
});

test('an item whose prompt and cap end on the last position is evaluated', async () => {
  expect(room).toBeGreaterThan(0);
  expect(room).toBeLessThan(200);
  const { evaluation, episodes } = await evaluator.evaluate(request(room));
  expect(evaluation.totals).toMatchObject({ samples: 2 });
  expect(evaluation.sampling.maxTokens).toBe(room);
  for (const { ids } of episodes) expect(ids.length).toBeLessThanOrEqual(1024);
});

test('one that could go a position further is refused with its name, both lengths and the cap that fits', async () => {
  await expect(evaluator.evaluate(request(room + 1))).rejects.toMatchObject({
    name: 'PlanError',
    code: 'too-few-positions',
    message:
      `evaluating ${model} on suite math: found item long with a prompt of ${1024 - room} tokens, 1025 with the ` +
      `${room + 1} that may follow; wanted at most 1024, the positions of the model (max_position_embeddings in its ` +
      `config.json). Generate at most ${room} tokens.`,
  });
});
