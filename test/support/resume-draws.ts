// Everything random of one training step, as a function of the seed, the step and the data cursor.
import { type DataCursor, takePrompts } from '../../src/lib/data-order.ts';
import { streamWords, tokenUniform } from '../../src/lib/rng.ts';

export const SEED = 7;
const PROMPTS = 10;
const GROUPS = 3;
const MEMBERS = 4;
const ENVIRONMENT_STREAM = 17;

export function drawStep(step: number, cursor: DataCursor) {
  const taken = takePrompts(SEED, PROMPTS, cursor, GROUPS);
  const members = Array.from({ length: GROUPS * MEMBERS }, (_, i) => ({
    group: Math.floor(i / MEMBERS),
    member: i % MEMBERS,
  }));
  const firstTokens = members.map((m) => tokenUniform({ seed: SEED, step, ...m, position: 20 }));
  const environments = taken.indices.map((index) => streamWords(SEED, ENVIRONMENT_STREAM, step * PROMPTS + index)[0]);
  return { draws: { step, prompts: taken.indices, firstTokens, environments }, cursor: taken.cursor };
}
