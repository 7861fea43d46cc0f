// The long form: the german-agent-ci recipe, killed in every stage at seeded random moments, ends with the content of
// an
// uninterrupted run; and the qualification's own processes see a flipped bit and a skipped draw on the device.
// Runs with `npm run test:protocol`, which sets SHADERL_PROTOCOL_SEEDS.
import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { checkpointFolder, sealCheckpoint, type VerifiedCheckpoint, verifyCheckpoint } from '../../src/checkpoint.ts';
import { compareBranches } from '../../src/experiment/compare-branches.ts';
import { trainingConfig } from '../../src/experiment/plan.ts';
import { readBranch } from '../../src/experiment/qualify-resume.ts';
import { parseRecipe } from '../../src/experiment/recipe.ts';
import { openGpu } from '../../src/gpu/device.ts';
import { STAGES } from '../../src/journal-events.ts';
import { streamWords } from '../../src/lib/rng.ts';
import { createNodeStorage } from '../../src/lib/storage-node.ts';
import { ensureQualifiedDevice } from '../../src/qualification-node.ts';
import { runBranch } from '../../workers/experiment/branch-node.ts';
import { embedded } from '../support/experiment-fixture.ts';
import { copyProgram, reportContent, shaderl, start, tinyRecipe, waitFor } from '../support/experiment-program.ts';

/** Runs on a device: 1 unless SHADERL_PROTOCOL_RUNS says more; each takes minutes on a software adapter. */
const wanted = process.env['SHADERL_PROTOCOL_SEEDS'] !== undefined;
const runs = Number(process.env['SHADERL_PROTOCOL_RUNS'] ?? 1);
const hour = 3_600_000;
const base = mkdtempSync(join(tmpdir(), 'shaderl-protocol-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));
if (!wanted) console.info('the long protocol test is skipped: `npm run test:protocol` runs it');

describe.runIf(wanted)('german-agent-ci', () => {
  const program = join(base, 'program');
  const [prepared, whole] = [join(base, 'prepared'), join(base, 'whole')];
  const run = (argv: readonly string[]) => shaderl(program, base, argv);
  beforeAll(async () => {
    copyProgram(program);
    const data = new URL('../../examples/german-agent-ci/', import.meta.url).pathname;
    const recipe = join(program, 'recipes/german-agent-ci.json');
    const inputs = [
      '--baseline',
      embedded,
      '--tokenizer',
      embedded,
      '--math-dev',
      join(data, 'dev.jsonl'),
      '--mgsm',
      join(data, 'retention.tsv'),
    ];
    const made = await run(['prepare', ...inputs, '--env', 'local', '--recipe', recipe, '--output', prepared]);
    expect(made.error).toBeNull();
    cpSync(prepared, whole, { recursive: true });
    expect(await run(['run', '--plan', join(whole, 'plan.json')])).toMatchObject({ value: { status: 'finished' } });
  }, hour);

  test.each(Array.from({ length: runs }, (_, i) => i + 1))(
    'interrupted in each stage ends with the same content and verifies (%i)',
    async (seed) => {
      const folder = join(base, `killed-${seed}`);
      cpSync(prepared, folder, { recursive: true });
      const plan = join(folder, 'plan.json');
      const interruptions: string[] = [];
      for (const [index, stage] of STAGES.entries()) {
        const [delayWord, kindWord] = streamWords(seed, 1, index);
        const running = start(program, base, ['run', '--plan', plan, '--resume', '--json']);
        const begun = await waitFor(
          folder,
          running,
          ({ kind, data }) => kind === 'stage-start' && data['stage'] === stage,
        );
        // Up to the length of the stage in the uninterrupted run; a stage that was faster is interrupted in the next
        // one.
        const seconds = JSON.parse(readFileSync(join(whole, 'report.json'), 'utf8')).record.stageSeconds[stage] ?? 0.5;
        await new Promise((done) => setTimeout(done, (delayWord / 2 ** 32) * seconds * 1000));
        const signal = kindWord % 2 === 0 ? 'SIGKILL' : 'SIGTERM';
        if (begun && running.child.kill(signal)) interruptions.push(`${signal} in ${stage}`);
        await running.done;
      }
      expect(interruptions.length).toBeGreaterThan(4);
      expect(await run(['run', '--plan', plan, '--resume'])).toMatchObject({
        exitCode: 0,
        value: { status: 'finished' },
      });
      expect(reportContent(folder).content, interruptions.join(', ')).toEqual(reportContent(whole).content);
      expect(await run(['verify', folder])).toMatchObject({ exitCode: 0, value: { passed: true } });
    },
    hour,
  );
});

describe.runIf(wanted)('the qualification on this device', () => {
  const steps = 2;
  const order = async (folder: string, resume: boolean, stopAfter: number | null) => {
    const recipe = parseRecipe(JSON.stringify(tinyRecipe), 'tiny');
    const { config } = await trainingConfig(recipe, embedded, { steps, every: steps });
    await runBranch(
      { config: JSON.stringify(config), folder: join(base, folder), resume, stopAfter },
      () => false,
      () => {},
    );
    return readBranch(createNodeStorage(join(base, folder)), folder, resume || stopAfter === null ? steps : 1);
  };

  beforeAll(async () => {
    const gpu = await openGpu();
    await ensureQualifiedDevice(gpu, 'portable');
    gpu.destroy();
  }, hour);

  test.each([
    ['no fault', (): Partial<VerifiedCheckpoint> => ({}), 0],
    [
      'one flipped bit',
      ({ files }: VerifiedCheckpoint): Partial<VerifiedCheckpoint> => {
        const flipped = files['adapter_model.safetensors'].slice();
        flipped[flipped.length - 4]! ^= 1;
        return { files: { ...files, 'adapter_model.safetensors': flipped } };
      },
      1,
    ],
    [
      'one skipped draw',
      ({ state }: VerifiedCheckpoint): Partial<VerifiedCheckpoint> => ({
        state: { ...state, cursor: { ...state.cursor, index: 0 } },
      }),
      1,
    ],
  ])(
    'with %s between stop and resume gives the verdict it must',
    async (name, fault, least) => {
      const folder = name.replaceAll(' ', '-');
      const wholeBranch = await order(`${folder}-whole`, false, null);
      await order(folder, false, 1);
      const storage = createNodeStorage(join(base, folder));
      const checkpoint = await verifyCheckpoint(storage, checkpointFolder(1));
      await storage.remove(checkpoint.folder);
      await sealCheckpoint(storage, checkpoint.folder, {
        files: checkpoint.files,
        state: checkpoint.state,
        ...fault(checkpoint),
      });
      const differences = await compareBranches(wholeBranch, await order(folder, true, null));
      if (least === 0) expect(differences).toEqual([]);
      else expect(differences.length).toBeGreaterThan(0);
    },
    hour,
  );
});
