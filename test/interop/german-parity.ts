// Whole episodes of the German task through a port, against the environment in process: prompts, tools, observations,
// verdicts, with transcripts that are faulty in every second one and calls that a policy could get wrong.
// Not a server. Invariant: it passes only where a service gives every text, error and number of the one in process.
import { expect } from 'vitest';
import { createGermanEnvironment } from '../../src/environments/german-environment.ts';
import type { EnvironmentPort } from '../../src/environments/port.ts';
import { tasks, transcriptOf } from '../wire/support/german.ts';

const long = `1${'+1'.repeat(32)}`;
/** Tool and arguments, as written. */
const ODD_CALLS: readonly [string, string][] = [
  ...[
    '7/2',
    '8/2',
    '1/0',
    '-(2+3)*4',
    '2*-3',
    '--1',
    '9999999+1',
    '10000000',
    '((1)',
    '2 + x',
    '',
    ' 6 * 7 ',
    long,
  ].map((ausdruck): [string, string] => ['rechner', JSON.stringify({ ausdruck })]),
  ['rechner', '{"ausdruck": 5}'],
  ['rechner', '{ "ausdruck" : "1+1" }'],
  ['rechner', '{"ausdruck":"1+1","mehr":1}'],
  ['rechner', `{"ausdruck":"1"${' '.repeat(1000)}}`],
  ['nachschlagen', '{"schluessel":"Gold"}'],
  ['nachschlagen', '{"schluessel":"K\\u00e4se"}'],
  ['nachschlagen', '{"schluessel":"__proto__"}'],
  ['nachschlagen', '{}'],
];

/** Plays `count` episodes through `port`, the odd calls in the last one. */
export async function expectGermanParity(port: EnvironmentPort, count: number): Promise<void> {
  const local = createGermanEnvironment();
  let strict = 0;
  for (const [i, task] of tasks.slice(0, count).entries()) {
    const { calls, finalText, invalidDispatches } = transcriptOf(task, i);
    const all = [
      ...calls.map(({ tool, argumentsJson }) => [tool, argumentsJson] as const),
      ...(i === count - 1 ? ODD_CALLS : []),
    ];
    const episode = async (from: EnvironmentPort) => {
      const { sessionId, messages, tools } = await from.open(task);
      const observations = [];
      for (const [tool, argumentsJson] of all) observations.push(await from.call(sessionId, tool, argumentsJson));
      const verdict = await from.verify(sessionId, finalText, invalidDispatches);
      await from.close(sessionId);
      return { messages, tools, observations, verdict };
    };
    const played = await episode(port);
    expect(played, task.id).toEqual(await episode(local));
    if (played.verdict.strict) strict += 1;
  }
  expect(strict).toBeGreaterThan(0);
  expect(strict).toBeLessThan(count);
}
