// The environment and the independent replayer against each other: agreement on random sequences, and planted faults.
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { createGermanEnvironment } from '../../src/environments/german-environment.ts';
import { expertTranscript } from '../../src/environments/german-expert.ts';
import { replayEpisode } from '../../src/environments/german-replay.ts';
import { trainTasks } from '../../src/environments/german-task.ts';
import type { Verdict } from '../../src/rollout/episode.ts';
import { play, type Run, type Sequence, sequences } from './german-sequences.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));

function differencesOf(replay: typeof replayEpisode, sequence: Sequence, run: Run): string[] {
  return replay(sequence.task, run.calls, sequence.finalText, sequence.invalidDispatches, run.verdict).differences;
}

describe('replayEpisode', () => {
  it('agrees with the environment on thousands of random call sequences', async () => {
    let strict = 0;
    const environment = createGermanEnvironment();
    await fc.assert(
      fc.asyncProperty(sequences, async (sequence) => {
        const run = await play(environment, sequence);
        expect(differencesOf(replayEpisode, sequence, run)).toEqual([]);
        const replay = replayEpisode(sequence.task, run.calls, sequence.finalText, sequence.invalidDispatches);
        expect(replay.verdict).toEqual(run.verdict);
        expect(run.verdict.reward === 1).toBe(run.verdict.strict);
        expect(run.verdict.reward).toBeGreaterThanOrEqual(0);
        expect(run.verdict.reward).toBeLessThanOrEqual(1);
        if (run.verdict.strict) strict++;
      }),
      { numRuns: 4000, seed: 20261020 },
    );
    // The sequences are no help if they never succeed, or always do.
    expect(strict).toBeGreaterThan(100);
    expect(strict).toBeLessThan(3000);
  });

  it('agrees with the environment past the limit of calls', async () => {
    const task = trainTasks(3, 1)[0]!;
    const calls = Array.from({ length: 70 }, () => ({ tool: 'rechner', argumentsJson: '{"ausdruck": "1+1"}' }));
    const sequence = { task, calls, finalText: 'Antwort: 2', invalidDispatches: 0 };
    const run = await play(createGermanEnvironment(), sequence);
    expect(differencesOf(replayEpisode, sequence, run)).toEqual([]);
    expect(run.calls[64]!.observation).toBe('Fehler: zu viele Aufrufe');
    expect(run.verdict.toolErrors).toBe(6);
  });

  const task = trainTasks(5, 1)[0]!;
  const expert = expertTranscript(task, { imperfection: null });
  const honest = replayEpisode(task, expert.calls, expert.finalText, 0).verdict;
  const differences = (calls: typeof expert.calls, recorded: Verdict, finalText = expert.finalText): string[] =>
    replayEpisode(task, calls, finalText, 0, recorded).differences;

  it('finds no difference in an honest record', () => {
    expect(honest.strict).toBe(true);
    expect(differences(expert.calls, honest)).toEqual([]);
  });

  it.each([
    [
      'a changed observation',
      () => differences([{ ...expert.calls[0]!, observation: '1' }, ...expert.calls.slice(1)], honest),
    ],
    ['a call that the log lacks', () => differences([...expert.calls, expert.calls[0]!], honest)],
    ['a call that was dropped', () => differences(expert.calls.slice(1), honest)],
    ['calls in another order', () => differences([...expert.calls].reverse(), honest)],
    ['another final text', () => differences(expert.calls, honest, 'Antwort: 1')],
    ['a strict flag without success', () => differences([], { ...honest, log: [] }, '')],
    ['a reward off by one ulp', () => differences(expert.calls, { ...honest, reward: 1 - 2 ** -53 })],
    ['a reward that is NaN', () => differences(expert.calls, { ...honest, reward: Number.NaN })],
    ['a part that is missing', () => differences(expert.calls, { ...honest, parts: { format: 0.1 } })],
    ['an extra part', () => differences(expert.calls, { ...honest, parts: { ...honest.parts, style: 0 } })],
    ['another answer', () => differences(expert.calls, { ...honest, answer: '1' })],
    ['hidden tool errors', () => differences(expert.calls, { ...honest, toolErrors: 1 })],
    [
      'a log entry that hides an error',
      () => differences(expert.calls, { ...honest, log: honest.log.map((entry) => ({ ...entry, error: true })) }),
    ],
    [
      'a task whose table was changed',
      () => {
        const table = Object.fromEntries(Object.entries(task.payload['table'] as object).map(([k, v]) => [k, v + 1]));
        const forged = { ...task, payload: { ...task.payload, table } };
        return replayEpisode(forged, expert.calls, expert.finalText, 0, honest).differences;
      },
    ],
  ])('reports %s', (_fault, found) => {
    expect(found().length).toBeGreaterThan(0);
  });

  it('names the call and both texts in a difference', () => {
    const [first, ...rest] = expert.calls;
    const found = differences([{ ...first!, observation: '1000' }, ...rest], honest);
    expect(found).toHaveLength(1);
    expect(found[0]).toContain('call 0 (nachschlagen {"schluessel": ');
    expect(found[0]).toContain('recorded observation "1000"');
  });

  it('reports a task that it cannot read instead of scoring it', () => {
    const replay = replayEpisode({ id: 'x', payload: {} }, expert.calls, expert.finalText, 0);
    expect(replay.differences).toEqual(['task x: payload lacks left, right or operation']);
    expect(replay.verdict.strict).toBe(false);
  });
});

describe('a fault planted in one of the two implementations', () => {
  const folder = mkdtempSync(join(tmpdir(), 'shaderl-mutants-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  let mutants = 0;

  /** A copy of the sources with one text replaced; the replaced text must be there exactly once. */
  function mutate(file: string, from: string, to: string): string {
    const copy = join(folder, `mutant-${mutants++}`);
    for (const part of ['src/environments', 'src/lib', 'src/rollout'])
      cpSync(join(root, part), join(copy, part), { recursive: true });
    writeFileSync(join(copy, 'package.json'), '{"type": "module"}');
    symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
    const path = join(copy, 'src/environments', file);
    const source = readFileSync(path, 'utf8');
    expect(source.split(from).length - 1, `occurrences of ${from}`).toBe(1);
    writeFileSync(
      path,
      source.replace(from, () => to),
    );
    return copy;
  }
  const load = (copy: string, file: string) => import(pathToFileURL(join(copy, 'src/environments', file)).href);

  /** The first differences that the sequences bring to light. */
  async function firstDifferences(copy: string): Promise<string[]> {
    const environment = await load(copy, 'german-environment.ts');
    const replayer = await load(copy, 'german-replay.ts');
    const port = environment.createGermanEnvironment();
    for (const sequence of fc.sample(sequences, { numRuns: 3000, seed: 7 })) {
      const found = differencesOf(replayer.replayEpisode, sequence, await play(port, sequence));
      if (found.length > 0) return found;
    }
    return [];
  }

  it('is what makes the difference: a copy without fault shows none', async () => {
    expect(await firstDifferences(mutate('german-score.ts', 'i > ready &&', 'i > ready &&'))).toEqual([]);
  });

  it.each([
    ['german-score.ts', 'i > ready &&', 'i >= 0 &&'],
    ['german-score.ts', 'toolErrors === 0 && ', ''],
    ['german-score.ts', ' && invalidDispatches === 0', ''],
    ['german-score.ts', "payload.operation !== '-' && x === b", 'x === b'],
    ['german-score.ts', 'answers.length === 1', 'answers.length > 0'],
    ['german-score.ts', 'lookupLeft: left >= 0', 'lookupLeft: left > 0'],
    ['german-score.ts', 'calculation: 5', 'calculation: 6'],
    ['german-expression.ts', 'MAX_MAGNITUDE = 9_999_999', 'MAX_MAGNITUDE = 10_000_000'],
    ['german-expression.ts', "if (peek() !== '-') return primary();", "if (peek() !== '+') return primary();"],
    ['german-expression.ts', 'return bounded(left - right)', 'return bounded(right - left)'],
    [
      'german-expression.ts',
      "left % right === 0 ? bounded(left / right) : 'inexact-division'",
      'bounded(Math.trunc(left / right))',
    ],
    ['german-tools.ts', 'entries.length === 1 && ', ''],
    ['german-tools.ts', '!Object.hasOwn(table, key)', '!(key in table)'],
    ['german-tools.ts', "return faultObservation('unknown-key')", "return { content: '0', error: false }"],
    ['german-replay.ts', 'PRECEDENCE[pending.at(-1)!] ?? 0) >=', 'PRECEDENCE[pending.at(-1)!] ?? 0) >'],
    ['german-replay.ts', "token === '-' && !afterSign", "token === '-'"],
    ['german-replay.ts', 'toolErrors + invalidDispatches === 0', 'toolErrors === 0'],
    ['german-replay.ts', 'facts.goods.every(', 'facts.goods.some('],
    ['german-replay.ts', 'magnitude.length > 15', 'magnitude.length > 16'],
    ['german-replay.ts', 'if (a % b !== 0n)', 'if (a % b > 0n)'],
    ['german-replay.ts', 'argument.length > LONGEST_EXPRESSION', 'argument.length > 100'],
  ])('is found: %s with "%s" as "%s"', async (file, from, to) => {
    const found = await firstDifferences(mutate(file, from, to));
    expect(found.length).toBeGreaterThan(0);
  });
});

it('shares no code with the environment: its only imports are types', () => {
  const source = readFileSync(join(root, 'src/environments/german-replay.ts'), 'utf8');
  const imports = source.match(/^import .*$/gm) ?? [];
  expect(imports.length).toBeGreaterThan(0);
  expect(imports.filter((line) => !line.startsWith('import type '))).toEqual([]);
});
