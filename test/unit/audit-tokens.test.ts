// The strict audit, points 3 to 5 and the score: one planted fault a test, found by its rule at its token.
import { beforeAll, describe, expect, test } from 'vitest';
import { auditEpisode, compareLogprobs } from '../../src/audit.ts';
import type { Text } from '../../src/model/text.ts';
import type { Episode } from '../../src/rollout/episode.ts';
import {
  findingsAfter,
  places,
  type Rolled,
  recompute,
  roll,
  script,
  splice,
  TASK,
  toyLogprobs,
} from '../support/audit-fixture.ts';
import { qwen3Text } from '../support/qwen3-tokenizer.ts';

let text: Text;
let good: Rolled;
beforeAll(async () => {
  text = await qwen3Text();
  good = await roll(text, script(TASK));
});

const findings = (change: (episode: Episode) => void) => findingsAfter(good, change);
const turnEnd = (i: number, from: Rolled = good) => from.episode.turns[i]!.span[1];
const turnStart = (i: number, from: Rolled = good) => from.episode.turns[i]!.span[0];
const callStart = (i: number, n: number, from: Rolled = good) => from.episode.turns[i]!.calls[n]!.span[0];

describe('points 3 and 4: mask, sources, lengths, log-probs', () => {
  test('finds a mask that is shifted by one', () => {
    const found = findings((episode) => {
      episode.mask.unshift(0);
      episode.mask.pop();
    });
    expect(found).toEqual([['mask', good.episode.promptLength]]);
  });

  test.each(['template', 'observation', 'prompt'] as const)('finds mask 1 on a %s token', (source) => {
    const at = good.episode.sources.lastIndexOf(source);
    const found = findings((episode) => {
      episode.mask[at] = 1;
    });
    expect(found).toEqual([['mask', at]]);
  });

  test('finds mask 0 on the stop token of a turn', () => {
    const at = turnEnd(1) - 1;
    const found = findings((episode) => {
      episode.mask[at] = 0;
    });
    expect(found).toEqual([['mask', at]]);
  });

  test('finds a wrong source, also between template and observation', () => {
    const at = good.episode.sources.indexOf('observation');
    const swapped = findings((episode) => {
      episode.sources[at] = 'template';
    });
    expect(swapped).toEqual([['source', at]]);
    const forced = findings((episode) => {
      episode.sources[turnStart(0)] = 'forced';
    });
    expect(forced).toEqual([['source', turnStart(0)]]);
  });

  test.each(['sources', 'mask', 'logprobs', 'truncatedLogprobs'] as const)('finds that %s is cut', (name) => {
    const end = good.episode.ids.length - 1;
    expect(findings((episode) => void episode[name].pop())).toEqual([['lengths', end]]);
  });

  test('finds log-probs that are missing, positive, infinite, not a number or no f32', () => {
    const at = turnStart(1) + 2;
    for (const value of [null, 0.01, Number.NEGATIVE_INFINITY, Number.NaN, -0.1]) {
      const found = findings((episode) => {
        episode.logprobs[at] = value;
        episode.truncatedLogprobs[at] = Math.fround(-1e-7);
      });
      expect(found).toContainEqual(['logprob', at]);
      const truncated = findings((episode) => {
        episode.truncatedLogprobs[at] = value;
      });
      expect(truncated).toEqual([['truncated-logprob', at]]);
    }
  });

  test('finds a log-prob on a token that was not sampled', () => {
    const found = findings((episode) => {
      episode.logprobs[turnEnd(0)] = 0;
    });
    expect(found).toEqual([['logprob', turnEnd(0)]]);
  });

  test('finds a truncated log-prob below the full one, but not its rounding', () => {
    const at = turnStart(1);
    const below = (amount: number) =>
      findings((episode) => {
        episode.truncatedLogprobs[at] = Math.fround(episode.logprobs[at]! - amount);
      });
    expect(below(5e-6)).toEqual([]);
    expect(below(2e-5)).toEqual([['truncated-logprob', at]]);
  });

  test('finds ids past the vocabulary', () => {
    for (const id of [151700, -1, 1.5]) {
      const found = findings((episode) => {
        episode.ids[turnStart(0) + 1] = id;
      });
      expect(found).toEqual([['vocabulary', turnStart(0) + 1]]);
    }
  });
});

describe('point 5: recomputed log-probs', () => {
  test('are compared to the last bit, and the first difference is named', () => {
    const { episode } = good;
    const recomputed = recompute(episode);
    const index = episode.mask.flatMap((bit, i) => (bit ? [i] : []))[5]!;
    new Uint32Array(recomputed.buffer)[5]! += 1;
    recomputed[9] = 0;
    const [finding, ...rest] = compareLogprobs(episode, recomputed);
    expect(rest).toEqual([]);
    expect(finding).toMatchObject({ code: 'logprob-bits', index });
    expect(finding!.message).toMatch(
      /^found sampled -\d.*\(0x[0-9a-f]{8}\); wanted -\d.*\(0x[0-9a-f]{8}\), as recomputed$/,
    );
  });

  test('must be as many as the sampled tokens, and no NaN passes', () => {
    const { episode } = good;
    const recomputed = recompute(episode);
    const last = turnEnd(2) - 1;
    expect(places(compareLogprobs(episode, recomputed.slice(0, -1)))).toEqual([['lengths', last]]);
    recomputed[0] = Number.NaN;
    expect(places(compareLogprobs(episode, recomputed))).toEqual([['logprob-bits', turnStart(0)]]);
  });

  test('reveal ids that were encoded anew: same text, other ids', () => {
    // "}}" as two ids, as a model may sample it, and as one, as an encoder writes it.
    const at = good.episode.ids.findIndex((id, i) => i > turnStart(0) && text.decode([id]) === '"}}\n');
    expect(at).toBeGreaterThan(0);
    const pieces = ['"', '}', '}', '\n'].map((piece) => text.encodeContent(piece)[0]!);
    const sampled = structuredClone(good.episode);
    splice(sampled, at, at + 1, pieces);
    for (const turn of sampled.turns)
      for (const one of turn.calls) if (one.span[0] < at && one.span[1] > at) one.span[1] += 0;
    const values = toyLogprobs(sampled.ids);
    sampled.logprobs = Array.from(values, (value, i) => (sampled.mask[i] === 1 ? value : null));
    sampled.truncatedLogprobs = sampled.logprobs.map((value) => (value === null ? null : Math.fround(value / 2)));
    expect(places(auditEpisode(sampled, good.context))).toEqual([]);
    expect(compareLogprobs(sampled, recompute(sampled))).toEqual([]);
    const encoded = structuredClone(sampled);
    splice(encoded, at, at + 4, [good.episode.ids[at]!]);
    expect(places(compareLogprobs(encoded, recompute(encoded)))).toEqual([['logprob-bits', at]]);
  });
});

describe('the score', () => {
  test('is found to be wrong by the replayer', () => {
    const strict = findings((episode) => {
      episode.verdict!.strict = false;
    });
    expect(strict).toEqual([
      ['strict', null],
      ['reward', null],
    ]);
    const reward = findings((episode) => {
      episode.verdict!.reward = 0.95;
    });
    expect(reward).toEqual([['reward', null]]);
    const part = findings((episode) => {
      episode.verdict!.parts['answer'] = 0;
    });
    expect(part).toEqual([['verdict', null]]);
    const answer = findings((episode) => {
      episode.verdict!.answer = '1';
    });
    expect(answer).toEqual([['verdict', null]]);
  });

  test('does not follow a wrong observation in log, record and ids together', async () => {
    const episode = structuredClone(good.episode);
    const [first] = episode.turns[0]!.calls;
    const old = first!.observation!;
    const lie = old === '11' ? '22' : '11';
    first!.observation = lie;
    episode.verdict!.log[0]!.observation = lie;
    const suffix = text.toolSuffix(episode.turns[0]!.calls.map((one) => one.observation!));
    episode.ids.splice(turnEnd(0), suffix.length, ...suffix);
    const found = places(auditEpisode(episode, good.context));
    expect(found).toEqual([['replay', callStart(0, 0)]]);
  });

  test('is missing together with a reason, or not at all', () => {
    expect(findings((episode) => Object.assign(episode, { infrastructure: 'lost' }))).toEqual([
      ['infrastructure', null],
    ]);
    expect(findings((episode) => Object.assign(episode, { verdict: null }))).toEqual([['infrastructure', null]]);
  });

  test('belongs to the task that was rolled out', () => {
    expect(findings((episode) => Object.assign(episode, { taskId: 'other' }))).toEqual([['task', null]]);
  });
});

test.each([
  ['temperature', 0.7, 'settings'],
  ['seed', 43, 'settings'],
  ['step', 2, 'settings'],
  ['policy', 'f'.repeat(64), 'policy'],
  ['discardedTokens', 3, 'discarded'],
  ['seconds', -1, 'settings'],
] as const)('a wrong %s is found', (field, value, code) => {
  const expected = { temperature: 0.6, seed: 42, step: 1, policy: 'base' };
  const found = auditEpisode({ ...good.episode, [field]: value }, { ...good.context, expected });
  expect(places(found)).toEqual([[code, null]]);
});
