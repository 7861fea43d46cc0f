// The audit against random faults: any single change to a valid record is found, and its reader of turns agrees with
// the rollout's parser, a second implementation, on arbitrary mixtures of tags and JSON.
import fc from 'fast-check';
import { beforeAll, describe, expect, test } from 'vitest';
import { endsInThinking, readTurn } from '../../src/audit/read-turn.ts';
import { auditEpisode, compareLogprobs } from '../../src/audit.ts';
import type { Text } from '../../src/model/text.ts';
import { callStatus, tokenSource } from '../../src/rollout/episode.ts';
import { endsInReasoning, parseTurn } from '../../src/rollout/tool-calls.ts';
import { block, call, type Rolled, recompute, roll, script, TASK } from '../support/audit-fixture.ts';
import { qwen3Text } from '../support/qwen3-tokenizer.ts';
import { CHATML, smallTokenizerJson, textOfFiles } from '../support/small-text.ts';

let qwen3: Text;
let letters: Text;
let rollouts: Rolled[];
beforeAll(async () => {
  qwen3 = await qwen3Text();
  letters = await textOfFiles({ 'tokenizer.json': smallTokenizerJson(), 'chat_template.jinja': CHATML });
  const bad = { status: 'invalid_json', name: null, argumentsJson: null } as const;
  const sum = ['rechner', '{"ausdruck": "1 + x"}'] as const;
  const mixed = [
    { text: `Nun:\n<tool_call>\n{\n</tool_call>\n${block(...sum)}`, calls: [bad, call(...sum)] },
    { text: '<think>\n\n</think>\n\nAntwort: 2', stop: '<|endoftext|>' as const },
  ];
  const strict = await roll(qwen3, script(TASK));
  const { promptLength, turns } = strict.episode;
  const maxCompletionTokens = turns[1]!.span[1] - promptLength + 5;
  rollouts = [strict, await roll(qwen3, mixed), await roll(qwen3, script(TASK), { settings: { maxCompletionTokens } })];
});

type Path = (string | number)[];

/** Paths of all values that are no objects or lists. */
function leaves(value: unknown, path: Path = []): Path[] {
  if (value === null || typeof value !== 'object') return [path];
  const keys = Array.isArray(value) ? value.map((_, i) => i) : Object.keys(value);
  return keys.flatMap((key) => leaves((value as Record<string | number, unknown>)[key], [...path, key]));
}

// What one rollout alone cannot show: names of its place, its duration, tokens that were thrown away at a cap.
const FREE = ['schema', 'sessionId', 'group', 'member', 'seconds', 'discardedTokens'];

const float = new Float32Array(1);
const word = new Uint32Array(float.buffer);

/** Another value of the same kind; a log-prob differs in its last bit. */
function other(path: Path, value: unknown, choice: number): unknown {
  const pick = (values: readonly unknown[]) => {
    const others = values.filter((one) => one !== value);
    return others[choice % others.length];
  };
  const name = path.at(-1);
  if (path[0] === 'logprobs' && typeof value === 'number') {
    if (choice % 4 === 0) return null;
    float[0] = value;
    word[0]! += choice % 2 === 0 ? 1 : -1;
    return float[0];
  }
  // A truncated log-prob is not recomputed: only what contradicts the full one can be seen.
  if (path[0] === 'truncatedLogprobs' && typeof value === 'number') return pick([null, -40, Number.NaN, 0.5]);
  if (path[0] === 'sources') return pick(tokenSource.options);
  if (path[0] === 'mask') return pick([0, 1]);
  if (name === 'status') return pick(callStatus.options);
  if (name === 'stop') return pick(['stop', 'end', 'length']);
  if (typeof value === 'boolean') return !value;
  if (typeof value === 'number') return pick([value + 1, value - 1, value + 3]);
  if (typeof value === 'string') return pick([`${value}x`, value.slice(1), '', null]);
  return pick([0, -1.5, 'x']);
}

test('any single change to the record of a valid rollout is found', () => {
  const all = rollouts.map(({ episode }) => leaves(episode).filter(([first]) => !FREE.includes(String(first))));
  const expected = { temperature: 0.6, seed: 42, step: 1, policy: 'base' };
  for (const [r, { episode, context }] of rollouts.entries()) {
    expect(all[r]!.length).toBeGreaterThan(400);
    expect(auditEpisode(episode, { ...context, expected })).toEqual([]);
    expect(compareLogprobs(episode, recompute(episode))).toEqual([]);
  }
  const mutation = fc.record({ rollout: fc.nat(rollouts.length - 1), at: fc.nat(), choice: fc.nat(255) });
  fc.assert(
    fc.property(mutation, ({ rollout, at, choice }) => {
      const { episode, context } = rollouts[rollout]!;
      const paths = all[rollout]!;
      // Half of the changes fall outside the long per-token lists.
      const short = paths.filter(
        ([first]) => !['ids', 'sources', 'mask', 'logprobs', 'truncatedLogprobs'].includes(String(first)),
      );
      const from = choice % 2 === 0 ? short : paths;
      const path = from[at % from.length]!;
      const changed = structuredClone(episode);
      let holder = changed as unknown as Record<string | number, unknown>;
      for (const key of path.slice(0, -1)) holder = holder[key] as typeof holder;
      const last = path.at(-1)!;
      holder[last] = other(path, holder[last], choice >> 1);
      const findings = auditEpisode(changed, { ...context, expected });
      // The weights have not changed: the log-probs are those of the ids that the record now shows.
      const again = findings.length === 0 ? compareLogprobs(changed, recompute(changed)) : [];
      expect([...findings, ...again], `${path.join('.')} = ${String(holder[last])}`).not.toEqual([]);
    }),
    { seed: 20261020, numRuns: 700 },
  );
});

test('any id left out, doubled or swapped with its neighbour is found', () => {
  const lists = ['ids', 'sources', 'mask', 'logprobs', 'truncatedLogprobs'] as const;
  fc.assert(
    fc.property(fc.nat(2), fc.nat(), fc.nat(2), (rollout, at, kind) => {
      const { episode, context } = rollouts[rollout]!;
      const changed = structuredClone(episode);
      const i = at % (changed.ids.length - 1);
      if (kind === 2) [changed.ids[i], changed.ids[i + 1]] = [changed.ids[i + 1]!, changed.ids[i]!];
      else
        for (const list of lists)
          (changed[list] as unknown[]).splice(i, 1, ...(kind === 0 ? [] : [changed[list][i], changed[list][i]]));
      fc.pre(changed.ids.join() !== episode.ids.join());
      const findings = auditEpisode(changed, context);
      const again = findings.length === 0 ? compareLogprobs(changed, recompute(changed)) : [];
      expect([...findings, ...again]).not.toEqual([]);
    }),
    { seed: 20261020, numRuns: 200 },
  );
});

describe.each([
  ['added tokens', () => qwen3],
  ['letters', () => letters],
] as const)('with tags that are %s', (_, textOf) => {
  const pieces = [
    '<tool_call>',
    '</tool_call>',
    '<think>',
    '</think>',
    '\n',
    ' ',
    '{"name": "rechner", "arguments": {"ausdruck": "1 + 1"}}',
    '{"name": "suche", "arguments": null}',
    '{"arguments": {"a": [1, {"b": "c"}], "a": 2}, "name": "rechner"}',
    '{"n\\u0061me": "nachschlagen", "arguments": {"ä": "</tool_call>"}}',
    '{"name": "rechner", "arguments": "{}"}',
    '{"name": "rechner"}',
    '{"name": 3, "arguments": {}}',
    '{"name": "rechner", "arguments": {"t": "',
    '"}}',
    '"',
    '\\',
    '{',
    '}',
    '[',
    ']',
    ',',
    ':',
    '1e5',
    '-0.',
    'true',
    'Antwort: 4',
    'ü',
    '\u00a0',
    '\ufeff',
    '\u0001',
    '<tool',
    '_call>',
  ];

  test('the audit reads the same calls and final text as the rollout did, whatever was sampled', () => {
    const text = textOf();
    // Whole blocks first, so that many turns hold good calls.
    const whole = [block('rechner', '{"ausdruck": "1 + 1"}'), block('nachschlagen', '{"schluessel": "Käse"}')];
    const odd = [...'äß€'].flatMap((character) => {
      const ids = text.encodeContent(character);
      return ids.length > 1 ? ids.map((id) => [id]) : [];
    });
    const sampled = [...[...whole, ...pieces].map((piece) => text.encodeTrusted(piece)), ...odd];
    const tools = ['nachschlagen', 'rechner'];
    let calls = 0;
    const turn = fc.array(fc.oneof({ weight: 3, arbitrary: fc.nat(8) }, fc.nat(sampled.length - 1)), { maxLength: 14 });
    fc.assert(
      fc.property(turn, fc.boolean(), (choice, thinking) => {
        const ids = choice.flatMap((n) => sampled[n]!);
        const own = readTurn(ids, text, tools, thinking);
        const theirs = parseTurn({ ids, text, knownTools: tools, thinkingOpenedByPrompt: thinking });
        expect(own).toEqual({ calls: theirs.calls, finalText: theirs.finalText });
        expect(endsInThinking(ids, text, text.stopIds)).toBe(endsInReasoning(ids, text));
        calls += own.calls.filter(({ status }) => status === 'ok').length;
      }),
      { seed: 20261020, numRuns: 2000 },
    );
    expect(calls).toBeGreaterThan(100);
  });
});

test('nesting as deep as a budget allows is read without exhausting the stack', () => {
  const deep = `<tool_call>{"name": "rechner", "arguments": {"a": ${'['.repeat(40_000)}${']'.repeat(40_000)}}}</tool_call>`;
  const reading = readTurn(qwen3.encodeTrusted(deep), qwen3, ['rechner'], false);
  expect(reading.calls).toMatchObject([{ status: 'ok', name: 'rechner' }]);
});
