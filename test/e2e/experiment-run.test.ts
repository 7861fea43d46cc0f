// The whole protocol on the embedded policy and a real device: uninterrupted, and stopped, killed and gone on with.
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
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

const base = mkdtempSync(join(tmpdir(), 'shaderl-experiment-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));
const program = join(base, 'program');
const whole = join(base, 'whole');
const stopped = join(base, 'stopped');
const run = (argv: readonly string[]) => shaderl(program, base, argv);
const planOf = (folder: string) => join(folder, 'plan.json');
const minutes = 60_000;

beforeAll(async () => {
  copyProgram(program);
  mkdirSync(join(base, 'inputs'));
  const { mathDev, mgsm } = writeInputs(join(base, 'inputs'));
  writeFileSync(mgsm, `${readFileSync(mgsm, 'utf8').split('\n')[0]}\n`);
  const recipe = writeRecipe(base, tinyRecipe);
  const inputs = ['--baseline', embedded, '--tokenizer', embedded, '--math-dev', mathDev, '--mgsm', mgsm];
  const prepared = await run(['prepare', ...inputs, '--env', 'local', '--recipe', recipe, '--output', whole]);
  expect(prepared.error).toBeNull();
}, 2 * minutes);

test(
  'a byte of the source that changed is named by verify-plan and run, before anything is written',
  async () => {
    const file = join(program, 'shaders/adamw.wgsl');
    const good = readFileSync(file, 'utf8');
    const offset = 100;
    const line = good.slice(0, offset).split('\n').length;
    writeFileSync(file, `${good.slice(0, offset)}\x7f${good.slice(offset + 1)}`);
    const checked = await run(['verify-plan', planOf(whole)]);
    const place = { kind: 'byte', offset, line, found: '0x7f' };
    expect(checked).toMatchObject({ exitCode: 1, value: { ok: false, differences: [{ file, place }] } });
    const { frozen, found } = checked.value.differences[0];
    const refused = await run(['run', '--plan', planOf(whole)]);
    expect(refused).toMatchObject({ exitCode: 2, error: { class: 'PlanError', code: 'plan-changed' } });
    expect(refused.error.message).toContain(
      `${file}: found SHA-256 ${found}; the plan froze SHA-256 ${frozen}; the first byte that differs is at offset ` +
        `${offset} (line ${line}): found 0x7f`,
    );
    writeFileSync(file, good);
    expect(await run(['verify-plan', planOf(whole)])).toMatchObject({ exitCode: 0, value: { ok: true } });
    expect((await run(['status', whole])).value).toMatchObject({ state: 'not begun', stage: 'preflight' });
  },
  2 * minutes,
);

test(
  'the qualification passes alone, and the rest goes on from it to a verified report',
  async () => {
    const qualified = await run(['run', '--plan', planOf(whole), '--qualification-only']);
    expect(qualified.error).toBeNull();
    expect(qualified.value).toMatchObject({ status: 'qualified', next: 'training' });
    cpSync(whole, stopped, { recursive: true });
    const finished = await run(['run', '--plan', planOf(whole)]);
    expect(finished).toMatchObject({ exitCode: 0, error: null, value: { status: 'finished', next: null } });
    const verified = await run(['verify', whole]);
    expect(verified.value.checks.filter(({ passed }: { passed: boolean }) => !passed)).toEqual([]);
    expect(verified.exitCode).toBe(0);
    expect((await run(['status', whole])).value).toMatchObject({ state: 'finished', evaluations: { done: 8, of: 8 } });
    expect(reportContent(whole)).toMatchObject({
      release_eligible: false,
      content: { qualification: { passed: true } },
    });
    const html = readFileSync(join(whole, 'report.html'), 'utf8');
    expect(html).not.toMatch(/<script|src=|href="http|url\(/);
  },
  4 * minutes,
);

test(
  'stopped in training, refused without --resume and beside a live writer, killed in DEV, it ends with the same ' +
    'content',
  async () => {
    const first = start(program, base, ['run', '--plan', planOf(stopped), '--json']);
    expect(await waitFor(stopped, first, ({ kind }) => kind === 'run-start', 'training/journal.jsonl')).toBe(true);
    // Twice, as a batch scheduler does that signals the job's script, which passes it on, and all its processes.
    first.child.kill('SIGTERM');
    await new Promise((done) => setTimeout(done, 100));
    first.child.kill('SIGTERM');
    const ended = await first.done;
    expect(ended.exitCode).toBe(0);
    expect(JSON.parse(ended.stdout)).toMatchObject({ status: 'interrupted', next: 'training' });
    expect(await run(['run', '--plan', planOf(stopped)])).toMatchObject({
      exitCode: 2,
      error: { code: 'needs-resume' },
    });

    const second = start(program, base, ['run', '--plan', planOf(stopped), '--resume', '--json']);
    const inDev = ({ kind, data }: { kind: string; data: Record<string, unknown> }) =>
      kind === 'stage-start' && data['stage'] === 'dev';
    expect(await waitFor(stopped, second, inDev)).toBe(true);
    const beside = await run(['run', '--plan', planOf(stopped), '--resume']);
    expect(beside).toMatchObject({ exitCode: 2, error: { code: 'locked' } });
    expect(beside.error.message).toContain(`pid ${second.child.pid}`);
    second.child.kill('SIGKILL');
    await second.done;

    const third = await run(['run', '--plan', planOf(stopped), '--resume']);
    expect(third).toMatchObject({ exitCode: 0, error: null, value: { status: 'finished' } });
    expect(third.stderr).toContain(`took over the lock of pid ${second.child.pid}`);
    expect(reportContent(stopped).content).toEqual(reportContent(whole).content);
    expect(await run(['verify', stopped])).toMatchObject({ exitCode: 0, value: { passed: true } });
  },
  5 * minutes,
);
