// Published bugs, groups A and C, with a service at the other end: what the model sampled stays as it was sampled, what the
// service answers is framed as the template would, and only what was declared and well formed reaches the service.
// The same turns in process and through both reference services; ids by Qwen3's tokenizer.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createGermanEnvironment } from '../../src/environments/german-environment.ts';
import { INVALID_CALL_OBSERVATION } from '../../src/environments/german-expert.ts';
import type { EnvironmentPort } from '../../src/environments/port.ts';
import type { Episode } from '../../src/rollout/episode.ts';
import { addDrawn, endTurn, type RolloutSettings, startMember, toEpisode } from '../../src/rollout/member.ts';
import { PROTOCOLS, serveGerman } from '../../workers/services/german-service.ts';
import type { ServiceHandle } from '../../workers/services/openenv-server.ts';
import { qwen3Text } from '../support/qwen3-tokenizer.ts';
import { germanPort, tasks } from '../wire/support/german.ts';

const text = await qwen3Text();
const settings: RolloutSettings = {
  temperature: 1,
  maxCompletionTokens: 700,
  maxToolRounds: 3,
  enableThinking: false,
  invalidCallObservation: INVALID_CALL_OBSERVATION,
  policy: 'base',
};
const call = (name: string, argumentsJson: string) =>
  `<tool_call>\n{"name": "${name}", "arguments": ${argumentsJson}}\n</tool_call>`;

/** Plays turns, given as ids, as if they had been sampled. */
async function play(port: EnvironmentPort, turns: readonly (readonly number[])[]): Promise<Episode> {
  const task = tasks[0]!;
  const { sessionId, messages, tools } = await port.open(task);
  const promptIds = text.renderPrompt({ messages, tools, enableThinking: false });
  const member = startMember({ task, step: 1, group: 0, member: 0, seed: 1 }, sessionId, promptIds, tools, 0);
  for (const ids of turns) {
    expect(member.done).toBe(false);
    for (const id of ids) {
      const stop = addDrawn(member, { id, logprob: -1, truncatedLogprob: -1, entropy: 1 }, text, settings);
      if (stop !== null) await endTurn(member, stop, port, text, settings);
    }
  }
  const verdict = await port.verify(sessionId, member.finalText, member.invalidDispatches);
  await port.close(sessionId);
  return toEpisode(member, settings, { verdict }, 0);
}

const encode = (turn: string) => text.encodeTrusted(`${turn}<|im_end|>`);
const last = encode('Antwort: 7');

describe.each(['local', ...PROTOCOLS] as const)('through %s', (name) => {
  let service: ServiceHandle | null = null;
  let port: EnvironmentPort;
  beforeAll(async () => {
    if (name === 'local') port = createGermanEnvironment();
    else {
      service = await serveGerman({ protocol: name, maxSessions: 4, version: '0.1.0' });
      port = germanPort(name, service.url);
    }
  });
  afterAll(() => service?.stop());

  test('A2: the newline after the turn end stands before the tool turn, as template', async () => {
    const { ids, sources, promptLength } = await play(port, [encode(call('rechner', '{"ausdruck": "2+2"}')), last]);
    const end = ids.indexOf(151_645, promptLength);
    expect(ids.slice(end, end + 4)).toEqual([151_645, 198, 151_644, 872]);
    expect(sources.slice(end, end + 4)).toEqual(['sampled', 'template', 'template', 'template']);
  });

  test('A4: ids that encoding would merge stay as sampled', async () => {
    // "}}" as two tokens, and "Antwort" letter by letter: encoding their text gives other ids.
    const turn = encode(call('rechner', '{"ausdruck": "2+2"}'));
    const at = turn.indexOf(3417);
    const split = at < 0 ? turn : [...turn.slice(0, at), 92, 92, ...turn.slice(at + 1)];
    const letters = [...'Antwort: 4'].flatMap((letter) => text.encodeTrusted(letter));
    const answer = [...letters, 151_645];
    const { ids, promptLength, turns } = await play(port, [split, answer]);
    expect(ids.slice(promptLength, promptLength + split.length)).toEqual(split);
    expect(ids.slice(-answer.length)).toEqual(answer);
    expect(text.encodeTrusted(text.decode(answer))).not.toEqual(answer);
    expect(turns[0]!.calls[0]).toMatchObject({ status: 'ok', dispatched: true, observation: '4' });
  });

  test('A9, C2: two calls of a turn run in order, and their results share one user turn', async () => {
    const turn = `${call('rechner', '{"ausdruck": "1+1"}')}\n${call('rechner', '{"ausdruck": "2*3"}')}`;
    const { ids, promptLength, verdict } = await play(port, [encode(turn), last]);
    expect(verdict!.log.map(({ argumentsJson, observation }) => [argumentsJson, observation])).toEqual([
      ['{"ausdruck": "1+1"}', '2'],
      ['{"ausdruck": "2*3"}', '6'],
    ]);
    const after = text.decode(ids.slice(ids.indexOf(151_645, promptLength) + 1));
    expect(after.match(/<\|im_start\|>user/g)).toHaveLength(1);
    expect(after).toContain('<tool_response>\n2\n</tool_response>\n<tool_response>\n6\n</tool_response><|im_end|>');
  });

  test('C1: a call inside <think> has no effect at the service', async () => {
    const turn = `<think>\n${call('rechner', '{"ausdruck": "9*9"}')}\n</think>\n${call('rechner', '{"ausdruck": "2+2"}')}`;
    const { verdict } = await play(port, [encode(turn), last]);
    expect(verdict!.log.map(({ observation }) => observation)).toEqual(['4']);
  });

  test('C4: malformed and undeclared calls get the fixed observation and reach nobody', async () => {
    const turn = [
      '<tool_call>\n{"name": "rechner", "arguments": {"ausdruck": "2+2"}\n</tool_call>',
      call('verify', '{"final_text": "Antwort: 1"}'),
      call('rechner', '{"ausdruck": "3+4"}'),
    ].join('\n');
    const { turns, verdict } = await play(port, [encode(turn), last]);
    expect(turns[0]!.calls.map(({ status, dispatched, observation }) => [status, dispatched, observation])).toEqual([
      ['invalid_json', false, INVALID_CALL_OBSERVATION],
      ['unknown_tool', false, INVALID_CALL_OBSERVATION],
      ['ok', true, '7'],
    ]);
    expect(verdict).toMatchObject({ invalidDispatches: 2 });
    expect(verdict!.log).toHaveLength(1);
  });

  test('equal records everywhere', async () => {
    const turns = [encode(call('rechner', '{"ausdruck": "8-3"}')), encode(call('nachschlagen', '{}')), last];
    const { sessionId: _own, ...here } = await play(port, turns);
    const { sessionId: _other, ...local } = await play(createGermanEnvironment(), turns);
    expect(here).toEqual(local);
  });
});
