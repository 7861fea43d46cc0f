// Both arms as users run them: the first over NeMo Gym, the second over OpenEnv behind the queue, each with a service of
// its own; and what the loss of a service or of the run does.
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { processStart } from '../../src/experiment/lock-node.ts';
import { embedded, writeInputs } from '../support/experiment-fixture.ts';
import {
  copyProgram,
  reportContent,
  shaderl,
  start,
  tinyRecipe,
  waitFor,
  writeRecipe,
} from '../support/experiment-program.ts';

const base = mkdtempSync(join(tmpdir(), 'shaderl-arms-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));
const program = join(base, 'program');
const minutes = 60_000;
const run = (argv: readonly string[]) => shaderl(program, base, argv);
const at = (name: string) => join(base, name);
const planOf = (name: string) => join(base, name, 'plan.json');
const journalOf = (name: string, file = 'journal.jsonl') =>
  readFileSync(join(base, name, file), 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as { kind: string; data: Record<string, unknown> });
const adapterOf = (name: string) =>
  readFileSync(join(base, name, 'training/checkpoints/step-000002/adapter_model.safetensors'));
const servicePid = (name: string) =>
  JSON.parse(readFileSync(join(base, name, 'service/child.json'), 'utf8')).pid as number;
const alive = (pid: number) => processStart(pid) !== null;
/** What a run's evidence says, without what names its plan and its service. */
const evidence = (name: string) => {
  const { training, units, selection, final } = reportContent(at(name)).content as Record<string, unknown>;
  return { training, units, selection, final };
};

let recipe: string;

beforeAll(async () => {
  copyProgram(program);
  mkdirSync(join(base, 'inputs'));
  const { mathDev, mgsm } = writeInputs(join(base, 'inputs'));
  writeFileSync(mgsm, `${readFileSync(mgsm, 'utf8').split('\n')[0]}\n`);
  recipe = writeRecipe(base, { ...tinyRecipe, service: { maxSessions: 8, deadlines: { openMs: 2_000 } } });
  const inputs = ['--baseline', embedded, '--tokenizer', embedded, '--math-dev', mathDev, '--mgsm', mgsm];
  const first = await run(['prepare', ...inputs, '--env', 'nemo-gym', '--recipe', recipe, '--output', at('first')]);
  expect(first.error).toBeNull();
  const second = ['--baseline-from', at('first'), '--env', 'openenv', '--recipe', recipe, '--output', at('second')];
  const made = await run(['prepare', ...second]);
  expect(made.error).toBeNull();
  expect(made.value).toMatchObject({ matched: { folder: at('first'), planSha256: first.value.sha256 } });
  for (const name of ['first-lost', 'first-again']) cpSync(at('first'), at(name), { recursive: true });
}, 3 * minutes);

const queue = (...more: string[]) => ['queue', '--after', planOf('first'), '--plan', planOf('second'), ...more];

test(
  'queue waits for the first arm, then runs the second, whose bytes are the same over the other protocol',
  async () => {
    expect((await run(queue('--check'))).value).toMatchObject({
      status: 'checked',
      after: { released: false, state: 'it was not begun', arm: 'nemo-gym' },
      plan: { arm: 'openenv' },
    });
    expect(await run(queue('--wait', '0'))).toMatchObject({ exitCode: 1, value: { status: 'waiting', run: null } });
    const queued = start(program, base, [...queue(), '--json']);
    const first = start(program, base, ['run', '--plan', planOf('first'), '--json']);
    expect(await waitFor(at('first'), first, ({ kind }) => kind === 'run-start', 'training/journal.jsonl')).toBe(true);
    expect(await run(['run', '--plan', planOf('second')])).toMatchObject({
      exitCode: 2,
      error: { code: 'other-arm-running' },
    });
    const pid = servicePid('first');
    expect(JSON.parse((await first.done).stdout)).toMatchObject({ status: 'finished' });
    expect(alive(pid)).toBe(false);
    const outcome = JSON.parse((await queued.done).stdout);
    const line = outcome.after.terminal.line;
    expect(journalOf('first')[line - 1]).toMatchObject({ kind: 'attempt-end', data: { status: 'finished' } });
    expect(outcome).toMatchObject({ status: 'finished', after: { released: true }, run: { status: 'finished' } });

    expect(adapterOf('second')).toEqual(adapterOf('first'));
    expect(evidence('second')).toEqual(evidence('first'));
    expect(reportContent(at('second')).content['baselines']).toEqual([
      { suite: 'dev', reused: true, reason: '' },
      { suite: 'final', reused: true, reason: '' },
      { suite: 'retention', reused: true, reason: '' },
    ]);
    for (const name of ['first', 'second']) {
      const verified = await run(['verify', at(name)]);
      expect(verified.value.checks.filter(({ passed }: { passed: boolean }) => !passed)).toEqual([]);
      expect(readFileSync(join(at(name), 'service/attempt-000001.out.log'), 'utf8')).toContain(
        'serving the German task',
      );
      expect(existsSync(join(at(name), 'service/child.json'))).toBe(false);
    }
  },
  6 * minutes,
);

test(
  'a service that is killed in the training stops the run as infrastructure; a resume ends with the same content',
  async () => {
    const running = start(program, base, ['run', '--plan', planOf('first-lost'), '--json']);
    const inTraining = ({ kind }: { kind: string }) => kind === 'run-start';
    expect(await waitFor(at('first-lost'), running, inTraining, 'training/journal.jsonl')).toBe(true);
    process.kill(-servicePid('first-lost'), 'SIGKILL');
    const { exitCode, stderr } = await running.done;
    expect(exitCode).toBe(4);
    const { error } = JSON.parse(stderr.trimEnd().split('\n').at(-1)!);
    expect(error).toMatchObject({ class: 'EnvError', code: expect.stringMatching(/^(lost-rollouts|service-\w+)$/) });
    const end = journalOf('first-lost').at(-1)!;
    expect(end).toMatchObject({ kind: 'attempt-end', data: { status: 'failed' } });
    expect(end.data['reason']).toContain(error.code);
    // Nothing of the step in hand was journaled, and no reward stands for the loss.
    const steps = journalOf('first-lost', 'training/journal.jsonl').filter(({ kind }) => kind === 'step');
    expect(steps.length).toBeLessThan(2);

    expect(await run(['run', '--plan', planOf('first-lost')])).toMatchObject({ error: { code: 'needs-resume' } });
    const resumed = await run(['run', '--plan', planOf('first-lost'), '--resume']);
    expect(resumed).toMatchObject({ exitCode: 0, error: null, value: { status: 'finished' } });
    expect(reportContent(at('first-lost')).content).toEqual(reportContent(at('first')).content);
    expect(await run(['verify', at('first-lost')])).toMatchObject({ exitCode: 0, value: { passed: true } });
  },
  6 * minutes,
);

test(
  'a run that is killed leaves its service, which the next attempt ends; one that loses its own in DEV scores nothing',
  async () => {
    const running = start(program, base, ['run', '--plan', planOf('first-again'), '--json']);
    const inQualification = ({ kind, data }: { kind: string; data: Record<string, unknown> }) =>
      kind === 'stage-start' && data['stage'] === 'qualification';
    expect(await waitFor(at('first-again'), running, inQualification)).toBe(true);
    const left = servicePid('first-again');
    running.child.kill('SIGKILL');
    await running.done;
    expect(alive(left)).toBe(true);
    const again = start(program, base, ['run', '--plan', planOf('first-again'), '--resume', '--json']);
    const second = ({ kind, data }: { kind: string; data: Record<string, unknown> }) =>
      kind === 'stage-start' && data['attempt'] === 2;
    expect(await waitFor(at('first-again'), again, second)).toBe(true);
    expect(alive(left)).toBe(false);
    const own = servicePid('first-again');
    expect(own).not.toBe(left);
    const inDev = ({ kind, data }: { kind: string; data: Record<string, unknown> }) =>
      kind === 'stage-start' && data['stage'] === 'dev';
    expect(await waitFor(at('first-again'), again, inDev)).toBe(true);
    process.kill(-own, 'SIGKILL');
    const { exitCode, stderr } = await again.done;
    expect(exitCode).toBe(4);
    expect(JSON.parse(stderr.trimEnd().split('\n').at(-1)!).error).toMatchObject({ class: 'EnvError' });
    expect(journalOf('first-again').filter(({ kind }) => kind === 'evaluation')).toEqual([]);
    const resumed = await run(['run', '--plan', planOf('first-again'), '--resume']);
    expect(resumed).toMatchObject({ exitCode: 0, error: null, value: { status: 'finished' } });
    expect(reportContent(at('first-again')).content).toEqual(reportContent(at('first')).content);
  },
  6 * minutes,
);
