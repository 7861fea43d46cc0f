// The long form over services: german-agent-ci through each protocol, with the run killed or stopped, or its service
// killed, at a seeded random moment of every stage; it ends with the content of an uninterrupted run.
// Runs with `npm run test:protocol`, which sets SHADERL_PROTOCOL_SEEDS.
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { STAGES } from '../../src/journal-events.ts';
import { streamWords } from '../../src/lib/rng.ts';
import { embedded } from '../support/experiment-fixture.ts';
import { copyProgram, reportContent, shaderl, start, waitFor, writeRecipe } from '../support/experiment-program.ts';

const wanted = process.env['SHADERL_PROTOCOL_SEEDS'] !== undefined;
const runs = Number(process.env['SHADERL_PROTOCOL_RUNS'] ?? 1);
const hour = 3_600_000;
const base = mkdtempSync(join(tmpdir(), 'shaderl-ci-recipe-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));
if (!wanted) console.info('the long protocol test over services is skipped: `npm run test:protocol` runs it');

const program = join(base, 'program');
const run = (argv: readonly string[]) => shaderl(program, base, argv);

/** Kills the service of a run as a crash would, if it has one now. */
function killService(folder: string): boolean {
  const file = join(folder, 'service/child.json');
  if (!existsSync(file)) return false;
  try {
    process.kill(-(JSON.parse(readFileSync(file, 'utf8')).pid as number), 'SIGKILL');
    return true;
  } catch {
    return false;
  }
}

describe.runIf(wanted).each(['nemo-gym', 'openenv'] as const)('german-agent-ci over %s', (env) => {
  const [prepared, whole] = [join(base, `${env}-prepared`), join(base, `${env}-whole`)];
  beforeAll(async () => {
    if (!existsSync(program)) copyProgram(program);
    const data = new URL('../../examples/german-agent-ci/', import.meta.url).pathname;
    const given = JSON.parse(readFileSync(join(program, 'recipes/german-agent-ci.json'), 'utf8'));
    const recipe = writeRecipe(base, { ...given, service: { deadlines: { openMs: 2_000 } } });
    const inputs = ['--baseline', embedded, '--tokenizer', embedded];
    const files = ['--math-dev', join(data, 'dev.jsonl'), '--mgsm', join(data, 'retention.tsv')];
    const made = await run(['prepare', ...inputs, ...files, '--env', env, '--recipe', recipe, '--output', prepared]);
    expect(made.error).toBeNull();
    cpSync(prepared, whole, { recursive: true });
    expect(await run(['run', '--plan', join(whole, 'plan.json')])).toMatchObject({ value: { status: 'finished' } });
  }, hour);

  test.each(Array.from({ length: runs }, (_, i) => i + 1))(
    'interrupted in each stage ends with the same content and verifies (%i)',
    async (seed) => {
      const folder = join(base, `${env}-killed-${seed}`);
      cpSync(prepared, folder, { recursive: true });
      const plan = join(folder, 'plan.json');
      const interruptions: string[] = [];
      for (const [index, stage] of STAGES.entries()) {
        const [delayWord, kindWord] = streamWords(seed, 2, index);
        const running = start(program, base, ['run', '--plan', plan, '--resume', '--json']);
        const begun = await waitFor(
          folder,
          running,
          ({ kind, data }) => kind === 'stage-start' && data['stage'] === stage,
        );
        // Up to the length of the stage in the uninterrupted run.
        const seconds = JSON.parse(readFileSync(join(whole, 'report.json'), 'utf8')).record.stageSeconds[stage] ?? 0.5;
        await new Promise((done) => setTimeout(done, (delayWord / 2 ** 32) * seconds * 1000));
        const kind = (['service', 'SIGKILL', 'SIGTERM'] as const)[(kindWord + index) % 3]!;
        const hit = begun && (kind === 'service' ? killService(folder) : running.child.kill(kind));
        if (hit) interruptions.push(`${kind} in ${stage}`);
        const { exitCode } = await running.done;
        // A stage that needs no service does not miss it: then the run goes on, and ends well.
        if (hit && kind === 'service') expect([0, 4]).toContain(exitCode);
      }
      expect(interruptions.length).toBeGreaterThan(3);
      expect(await run(['run', '--plan', plan, '--resume'])).toMatchObject({
        exitCode: 0,
        value: { status: 'finished' },
      });
      expect(reportContent(folder).content, interruptions.join(', ')).toEqual(reportContent(whole).content);
      expect(await run(['verify', folder])).toMatchObject({ exitCode: 0, value: { passed: true } });
      console.info(`${env}: ${interruptions.join(', ')}`);
    },
    hour,
  );
});
