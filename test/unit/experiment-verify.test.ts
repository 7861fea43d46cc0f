// What `verify` finds in a finished experiment, one byte at a time, without a device.
import { appendFileSync, cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runExperiment } from '../../src/experiment/driver.ts';
import { verifyExperiment } from '../../src/experiment/verify-node.ts';
import { renderedReport, reportExperiment } from '../../workers/experiment/report-node.ts';
import { stopInTraining } from '../support/experiment-findings.ts';
import { preparedPlan, smallPorts, writeInputs } from '../support/experiment-fixture.ts';

const base = mkdtempSync(join(tmpdir(), 'shaderl-verify-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));
/** A finished experiment, and one that was stopped in its training. */
let whole: string;
let stopped: string;
/** What is found in them untouched: rollouts of this training are no episodes, and the program may be worked on. */
const own = new Map<string, Set<string>>();

const generous = 60_000;

async function findings(folder: string): Promise<string[]> {
  try {
    const { checks } = await verifyExperiment(folder, renderedReport);
    return checks.flatMap(({ passed, detail }) => (passed ? [] : detail));
  } catch (error) {
    return [(error as Error).message];
  }
}

/** Changes a copy of `from` and gives what is found in it alone; the copy's name is taken out of the texts. */
async function found(from: string, change: (folder: string) => void): Promise<string[]> {
  const folder = mkdtempSync(join(base, 'copy-'));
  cpSync(from, folder, { recursive: true });
  change(folder);
  const named = (text: string) => text.replaceAll(folder, 'RUN');
  const all = (await findings(folder)).map(named);
  rmSync(folder, { recursive: true, force: true });
  return all.filter((text) => !own.get(from)?.has(text));
}

function edit(file: string, change: (bytes: Buffer) => Buffer) {
  return (folder: string) => {
    const path = join(folder, file);
    writeFileSync(path, change(readFileSync(path)));
  };
}

/** Flips the lowest bit of a byte: at a share of the file's length, or the last one. */
const flip = (at: number | 'last') => (bytes: Buffer) => {
  const changed = Buffer.from(bytes);
  changed[at === 'last' ? bytes.length - 1 : Math.floor(bytes.length * at)]! ^= 1;
  return changed;
};

/** The first digit from the middle on becomes another one, so that what it is in stays well-formed; else a bit is flipped. */
const digit = (bytes: Buffer) => {
  const at = bytes.findIndex((byte, i) => i >= bytes.length / 2 && byte >= 0x30 && byte < 0x39);
  if (at < 0) return flip(0.5)(bytes);
  const changed = Buffer.from(bytes);
  changed[at]! += 1;
  return changed;
};

beforeAll(async () => {
  const inputs = writeInputs(base);
  const plan = await preparedPlan(base, inputs);
  await runExperiment(plan, await smallPorts(plan), { resume: false, qualificationOnly: false });
  whole = plan.folder;
  const other = await preparedPlan(base, inputs);
  await runExperiment(other, await smallPorts(other, { change: stopInTraining }), {
    resume: false,
    qualificationOnly: false,
  });
  stopped = other.folder;
  for (const folder of [whole, stopped]) own.set(folder, new Set(await found(folder, () => {})));
}, generous);

test('finds nothing that the files are to blame for in a finished and in a stopped experiment', () => {
  const blamed = [...own.values()].flatMap((texts) => [...texts]).filter((text) => text.startsWith('RUN/'));
  expect(blamed).toEqual([]);
});

const branch = (name: string) => `qualification/attempt-1/${name}`;
const sealed = 'training/checkpoints/step-000002';
const files = [
  'plan.json',
  'plan.sha256',
  'journal.jsonl',
  'data/train.jsonl',
  'evidence/device-qualification.json',
  'evidence/resume-qualification.json',
  `${branch('uninterrupted')}/journal.jsonl`,
  `${branch('repeat')}/run-config.json`,
  `${branch('repeat')}/rollouts/step-000001.jsonl`,
  `${branch('resumed')}/checkpoints/step-000002/seal.json`,
  `${branch('resumed')}/checkpoints/step-000002/optimizer.safetensors`,
  'training/journal.jsonl',
  'training/run-config.json',
  'training/rollouts/step-000001.jsonl',
  `${sealed}/seal.json`,
  `${sealed}/state.json`,
  `${sealed}/adapter_model.safetensors`,
  `${sealed}/optimizer.safetensors`,
  'evaluations/dev-agent-baseline-seed-42.json',
  'evaluations/dev-agent-baseline-seed-42.rollouts.jsonl',
  'selection.json',
  'merged/step-000004/model.safetensors',
  'merged/step-000004/tokenizer.json',
  'merged/step-000004/merge-audit.json',
  'comparisons/final-agent.json',
  'recommendation.json',
  'language-inspection.json',
  'report.json',
  'report.html',
];

describe('one byte of', () => {
  test.each(files)(
    '%s is found at the begin, in the middle and at the end, with the file, what was found and what was wanted',
    async (file) => {
      for (const change of [flip(0), digit, flip('last')]) {
        const texts = await found(whole, edit(file, change));
        const named = texts.filter((text) => text.includes(file.split('/').at(-1)!));
        expect(named, texts.join('\n')).not.toEqual([]);
        expect(named.join('\n')).toMatch(/RUN\/[\s\S]*found [\s\S]*(wanted|froze)/);
      }
    },
    generous,
  );
});

describe('the end of a journal', () => {
  test('that is no whole line is found where nobody writes, and said to be what a crash leaves', async () => {
    const texts = await found(whole, (folder) => appendFileSync(join(folder, 'journal.jsonl'), '{"data":'));
    expect(texts).toHaveLength(1);
    expect(texts[0]).toMatch(/^RUN\/journal\.jsonl: found 8 bytes after line \d+ .* wanted none.*`run --resume`/);
  });
});

describe('the report', () => {
  test('is found older than the inspection, until it is written again', async () => {
    const file = 'language-inspection.json';
    const fill = edit(file, (bytes) => {
      const inspection = JSON.parse(bytes.toString('utf8'));
      for (const reply of inspection.replies) Object.assign(reply, { language: 'German', format: 'as asked' });
      return Buffer.from(JSON.stringify({ ...inspection, inspectedBy: 'A. Reader', kindOfInspector: 'person' }));
    });
    const texts = await found(whole, fill);
    expect(texts.map((text) => text.split(':')[0])).toEqual(['RUN/report.json', 'RUN/report.html']);
    expect(texts[0]).toContain('`shaderl report` writes it again');
    const folder = mkdtempSync(join(base, 'reported-'));
    cpSync(whole, folder, { recursive: true });
    fill(folder);
    await reportExperiment(folder);
    expect((await findings(folder)).filter((text) => text.includes('report'))).toEqual([]);
  });

  test('is not believed where a reply of the inspection was left out', async () => {
    const leaveOut = edit('language-inspection.json', (bytes) => {
      const inspection = JSON.parse(bytes.toString('utf8'));
      return Buffer.from(JSON.stringify({ ...inspection, replies: inspection.replies.slice(1) }));
    });
    const texts = await found(whole, leaveOut);
    expect(texts[0]).toMatch(/RUN\/language-inspection\.json: found 7 replies; wanted 8/);
  });
});

describe('an experiment that was stopped in its training', () => {
  test.each(['adapter_model.safetensors', 'seal.json', 'state.json'])(
    'has a changed %s found before it is resumed',
    async (file) => {
      const path = `training/checkpoints/step-000001/${file}`;
      const texts = await found(stopped, edit(path, flip(0.5)));
      expect(texts.join('\n')).toMatch(new RegExp(`RUN/${path}: found .* wanted `));
    },
  );

  test('has a changed rollout of a sealed step found', async () => {
    const path = 'training/rollouts/step-000001.jsonl';
    const texts = await found(stopped, edit(path, digit));
    expect(texts.join('\n')).toMatch(new RegExp(`RUN/${path}: found SHA-256 .* wanted SHA-256 .*as line`));
  });
});
