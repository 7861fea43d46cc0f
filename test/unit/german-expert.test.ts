// The scripted expert: faultless transcripts succeed, each mistake fails in its own way, the mixture is as declared.
import { describe, expect, it } from 'vitest';
import { createGermanEnvironment } from '../../src/environments/german-environment.ts';
import {
  chooseImperfection,
  type ExpertTranscript,
  expertTranscript,
  MISTAKES,
} from '../../src/environments/german-expert.ts';
import { replayEpisode } from '../../src/environments/german-replay.ts';
import { trainTasks } from '../../src/environments/german-task.ts';
import type { Task } from '../../src/environments/port.ts';
import type { Verdict } from '../../src/rollout/episode.ts';

const tasks = trainTasks(77, 600);

interface Parsed {
  valid: { tool: string; argumentsJson: string }[];
  invalid: number;
}

/** Reads the calls of a turn from its text, as a rollout would. */
function parse(assistant: string): Parsed {
  const parsed: Parsed = { valid: [], invalid: 0 };
  for (const [, body] of assistant.matchAll(/<tool_call>\n(.*)\n<\/tool_call>/g)) {
    try {
      const { name } = JSON.parse(body!);
      if (name !== 'nachschlagen' && name !== 'rechner') throw new Error(name);
      // The arguments' text as it stands, not serialized again.
      parsed.valid.push({ tool: name, argumentsJson: /"arguments": (.*)\}$/.exec(body!)![1]! });
    } catch {
      parsed.invalid++;
    }
  }
  return parsed;
}

/** Plays the transcript's text against the environment and checks every recorded observation. */
async function play(task: Task, transcript: ExpertTranscript): Promise<Verdict> {
  const environment = createGermanEnvironment();
  const { sessionId } = await environment.open(task);
  let invalid = 0;
  for (const turn of transcript.turns) {
    expect(turn.assistant.startsWith('<think>\n\n</think>\n\n')).toBe(true);
    const calls = parse(turn.assistant);
    invalid += calls.invalid;
    const observations: string[] = [];
    for (const { tool, argumentsJson } of calls.valid) {
      observations.push((await environment.call(sessionId, tool, argumentsJson)).content);
    }
    if (calls.invalid === 0) expect(turn.observations).toEqual(observations);
    else expect(turn.observations).toHaveLength(calls.invalid);
  }
  expect(invalid).toBe(transcript.invalidDispatches);
  const finalText = transcript.turns.at(-1)!.assistant.split('</think>').at(-1)!.trimStart();
  expect(finalText).toBe(transcript.finalText);
  return environment.verify(sessionId, finalText, invalid);
}

describe('expertTranscript', () => {
  it.each(['parallel', 'sequential'] as const)(
    'succeeds strictly without imperfection (%s lookups)',
    async (lookups) => {
      for (const task of tasks.slice(0, 80)) {
        const transcript = expertTranscript(task, { imperfection: null, lookups });
        expect((await play(task, transcript)).reward).toBe(1);
        expect(transcript.turns).toHaveLength(lookups === 'parallel' ? 3 : 4);
      }
    },
  );

  it.each(MISTAKES)('never succeeds strictly with the mistake %s, in at most three tool rounds', async (mistake) => {
    for (const [i, task] of tasks.slice(0, 80).entries()) {
      for (const lookups of ['parallel', 'sequential'] as const) {
        const transcript = expertTranscript(task, { imperfection: { mistake, seed: i }, lookups });
        const verdict = await play(task, transcript);
        expect(verdict.strict).toBe(false);
        expect(transcript.turns.length).toBeLessThanOrEqual(4);
        const { calls, finalText, invalidDispatches } = transcript;
        expect(replayEpisode(task, calls, finalText, invalidDispatches, verdict).differences).toEqual([]);
      }
    }
  });

  it('is the same for the same seed', () => {
    const imperfection = { mistake: 'one-lookup', seed: 5 } as const;
    expect(expertTranscript(tasks[0]!, { imperfection })).toEqual(expertTranscript(tasks[0]!, { imperfection }));
    expect(expertTranscript(tasks[0]!, { imperfection: { ...imperfection, seed: 6 } })).not.toEqual(
      expertTranscript(tasks[0]!, { imperfection }),
    );
  });

  it('shows the rollout’s own text for a call that is not dispatched', () => {
    const imperfection = { mistake: 'wrong-tool', seed: 1 } as const;
    const { turns } = expertTranscript(tasks[0]!, { imperfection, invalidCallObservation: 'nein' });
    expect(turns[0]!.observations).toEqual(['nein']);
  });
});

describe('chooseImperfection', () => {
  it('mixes to a strict success of about 45 % by default', async () => {
    let strict = 0;
    for (const [i, task] of tasks.entries()) {
      if ((await play(task, expertTranscript(task, { imperfection: chooseImperfection(1, i) }))).strict) strict++;
    }
    // Four standard errors of a share of 0.45 over 600 transcripts.
    expect(Math.abs(strict / tasks.length - 0.45)).toBeLessThan(4 * Math.sqrt((0.45 * 0.55) / tasks.length));
  });

  it('follows the table that it is given', () => {
    const chosen = Array.from({ length: 2000 }, (_, i) =>
      chooseImperfection(3, i, { 'no-tools': 0.5, 'one-lookup': 0.25 }),
    );
    const share = (mistake: string | undefined) => chosen.filter((c) => c?.mistake === mistake).length / 2000;
    expect(Math.abs(share('no-tools') - 0.5)).toBeLessThan(0.05);
    expect(Math.abs(share('one-lookup') - 0.25)).toBeLessThan(0.05);
    expect(Math.abs(share(undefined) - 0.25)).toBeLessThan(0.05);
    expect(chooseImperfection(3, 0, {})).toBeNull();
  });

  it('refuses probabilities that are none', () => {
    expect(() => chooseImperfection(1, 0, { 'no-tools': 1.1 })).toThrowErrorMatchingInlineSnapshot(
      `[PlanError: choosing expert mistakes: the probabilities sum to 1.1; they must be non-negative and sum to at most 1. Lower them.]`,
    );
    expect(() => chooseImperfection(1, 0, { 'no-tools': -0.1 })).toThrow('non-negative');
    expect(() => chooseImperfection(1, 0, { 'no-tools': Number.NaN })).toThrow('NaN');
  });
});
