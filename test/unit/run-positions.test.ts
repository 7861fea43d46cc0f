// A training run refuses prompts that leave no room for its completions before it opens a device.
import { fileURLToPath } from 'node:url';
import { beforeAll, expect, test } from 'vitest';
import { trainTasks } from '../../src/environments/german-task.ts';
import { type BaseModel, openBase } from '../../src/model/base-node.ts';
import { resolveRunConfig } from '../../src/run-config.ts';
import { requirePositions } from '../../workers/run-trainer.ts';

const model = fileURLToPath(new URL('../../fixtures/embedded-policy', import.meta.url));
let base: BaseModel;
beforeAll(async () => {
  base = await openBase(model);
});

const tasks = trainTasks(20261020, 8);
const check = async (maxCompletionTokens: number, rest: object = {}) => {
  const given = { model, output: 'o', generation: { maxCompletionTokens }, ...rest };
  const { config } = await resolveRunConfig(JSON.stringify(given), 'run.yaml');
  return requirePositions(config, tasks, base);
};

/** The largest cap that passes, by halving. */
async function largest(): Promise<number> {
  let [good, bad] = [1, 1024];
  while (bad - good > 1) {
    const middle = Math.floor((good + bad) / 2);
    const passes = await check(middle).then(
      () => true,
      () => false,
    );
    if (passes) good = middle;
    else bad = middle;
  }
  return good;
}

test('takes every cap up to the positions that the longest prompt leaves, and names it where one is larger', async () => {
  const room = await largest();
  const longest = 1024 - room;
  expect(longest).toBeGreaterThan(200);
  await expect(check(room + 1)).rejects.toMatchObject({
    name: 'PlanError',
    code: 'too-few-positions',
    message: expect.stringMatching(
      new RegExp(
        `starting a run of ${model}: found task \\S+ with a prompt of ${longest} tokens, 1025 with ` +
          `generation.maxCompletionTokens, ${room + 1}; wanted at most 1024, .* Lower generation.maxCompletionTokens to ` +
          `${room} or less\\.$`,
      ),
    ),
  });
});

test('says the limit of prompts that only their service knows, where the configuration does not fit by itself', async () => {
  const service = {
    data: { environment: 'openenv', tasks: 'tasks.jsonl' },
    service: { url: 'http://127.0.0.1:1' },
  };
  expect(await check(512, service)).toBeNull();
  expect(await check(768, service)).toBe(
    'the model has 1024 positions: a prompt of more than 256 tokens will stop the run',
  );
  await expect(check(1024, service)).rejects.toThrow(
    'found prompts of a token or more, 1025 with generation.maxCompletionTokens, 1024; wanted at most 1024',
  );
});
