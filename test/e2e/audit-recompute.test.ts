// Point 5 of the audit after the fact: a real run's log-probs are recomputed on the device from its own checkpoints, and
// planted faults are named with file, line, token and both values. Also the canary of its checkpoints (case D2), through
// the commands that load one.
import { execFile } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runCli } from '../support/cli-terminal.ts';

const child = fileURLToPath(new URL('../support/train-child.ts', import.meta.url));
const tsx = new URL('../../node_modules/tsx/dist/loader.mjs', import.meta.url).href;
const model = fileURLToPath(new URL('../../fixtures/embedded-policy', import.meta.url));
let folder = '';
let whole = '';

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'shaderl-recompute-'));
  // One batch is used for two steps; the weights after step 1 and 3 are not sealed.
  const config = {
    model: join(folder, 'model'),
    output: 'run',
    steps: 4,
    generation: { temperature: 0.8, topP: 0.95, topK: 50, maxCompletionTokens: 100 },
    grpo: { groupSize: 2, groupsPerStep: 2, numIterations: 2, beta: 0.05 },
    optimizer: { learningRate: 0.002 },
    lora: { rank: 2, alpha: 4 },
    checkpoints: { every: 2 },
  };
  cpSync(model, join(folder, 'model'), { recursive: true });
  writeFileSync(join(folder, 'run.json'), JSON.stringify(config));
  await promisify(execFile)(process.execPath, ['--import', tsx, child, join(folder, 'run.json')], {
    cwd: folder,
    env: { ...process.env, XDG_RUNTIME_DIR: process.env['XDG_RUNTIME_DIR'] ?? '/tmp' },
    timeout: 200_000,
  });
  whole = join(folder, 'run');
}, 220_000);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A copy of the run to spoil. */
function copy(name: string): string {
  const to = join(folder, name);
  cpSync(whole, to, { recursive: true });
  return to;
}

/** Changes one line of a rollout file. */
function editLine(run: string, step: number, line: number, edit: (episode: Record<string, unknown>) => void): void {
  const file = join(run, `rollouts/step-00000${step}.jsonl`);
  const lines = readFileSync(file, 'utf8').split('\n');
  const episode = JSON.parse(lines[line - 1]!) as Record<string, unknown>;
  edit(episode);
  lines[line - 1] = JSON.stringify(episode);
  writeFileSync(file, lines.join('\n'));
}

async function audit(run: string, ...options: string[]) {
  const { exitCode, stdout, stderr } = await runCli('audit', run, '--recompute', '--json', ...options);
  return {
    exitCode,
    stderr,
    ...(JSON.parse(stdout || '{}') as { findings: string[]; notes: string[]; recomputed: number; rollouts: number }),
  };
}

const nextF32 = (value: number) => {
  const word = new Uint32Array(Float32Array.of(value).buffer);
  word[0]! += 1;
  return new Float32Array(word.buffer)[0]!;
};

describe('shaderl audit --recompute', () => {
  test('finds a run in order: bits equal for the initial and the sealed weights', async () => {
    const { exitCode, findings, recomputed, rollouts, notes } = await audit(whole);
    expect({ exitCode, findings, recomputed, rollouts }).toEqual({
      exitCode: 0,
      findings: [],
      recomputed: 8,
      rollouts: 8,
    });
    expect(notes[0]).toMatch(
      /^log-probs recomputed on .* \(portable\), the device, kernels and shaders of the run: equal/,
    );
  });

  test('names file, line, token and both values of a log-prob that is one unit in the last place off', async () => {
    const run = copy('ulp');
    let token = 0;
    let values: [number, number] = [0, 0];
    editLine(run, 3, 2, (episode) => {
      const logprobs = episode['logprobs'] as (number | null)[];
      token = logprobs.findIndex((value) => value !== null) + 4;
      values = [logprobs[token]!, nextF32(logprobs[token]!)];
      logprobs[token] = values[1];
    });
    const { exitCode, findings } = await audit(run);
    expect(exitCode).toBe(1);
    const found = findings.filter((line) => line.includes('logprob-bits'));
    expect(found).toHaveLength(1);
    expect(found[0]).toMatch(
      /^rollouts\/step-000003\.jsonl line 2: \[logprob-bits\] step 3, group 0, member 1 \(.*\) at token /,
    );
    expect(found[0]).toContain(` at token ${token}: found sampled ${values[1]} (0x`);
    expect(found[0]).toContain(`; wanted ${values[0]} (0x`);
  });

  test('leaves out, and says so, what has no weights any more; a replay of the training covers it', async () => {
    const run = copy('removed');
    rmSync(join(run, 'checkpoints'), { recursive: true });
    const sealed = await audit(run);
    expect(sealed).toMatchObject({ exitCode: 0, recomputed: 4 });
    expect(sealed.notes).toContain(
      'log-probs of step 3 not recomputed: the checkpoint of the weights that sampled it was removed since',
    );
    const replayed = await audit(run, '--replay');
    expect(replayed).toMatchObject({ exitCode: 0, findings: [], recomputed: 8 });
  });

  test('leaves out a step with a record that no pass can run over: the audit has its findings', async () => {
    const run = copy('malformed');
    editLine(run, 1, 1, (episode) => {
      const ids = episode['ids'] as number[];
      ids[ids.length - 1] = 4_000_000;
    });
    // A line that is no episode at all: the group is not whole, so this step cannot be taken again.
    editLine(run, 3, 1, (episode) => {
      episode['ids'] = null;
    });
    const { exitCode, findings, notes, recomputed } = await audit(run, '--replay');
    expect({ exitCode, recomputed }).toEqual({ exitCode: 1, recomputed: 3 });
    expect(findings.join('\n')).toContain('[vocabulary] step 1, group 0, member 0');
    expect(findings.join('\n')).toContain('rollouts/step-000003.jsonl line 1: found "ids"');
    expect(notes).toContain('log-probs of step 1 not recomputed: a record of it is malformed, as its findings say');
  });

  test('finds by replay that the journaled adapter is not what the stored rollouts give', async () => {
    const run = copy('reward');
    editLine(run, 1, 1, (episode) => {
      const verdict = episode['verdict'] as { reward: number };
      verdict.reward += 0.5;
    });
    const { exitCode, findings } = await audit(run, '--replay');
    expect(exitCode).toBe(1);
    expect(findings).toContainEqual(
      expect.stringMatching(
        /^\[evidence\] journal\.jsonl: found adapterSha256 [0-9a-f]{64} of step 1; wanted [0-9a-f]{64}, as replayed$/,
      ),
    );
  });

  test('allows a stated bound where the shaders are not those of the run, and refuses to replay there', async () => {
    // What another program version would leave: the journal is rebuilt with one other digest.
    const run = copy('elsewhere');
    const { openJournal, readJournal } = await import('../../src/journal.ts');
    const { createNodeStorage } = await import('../../src/lib/storage-node.ts');
    const { entries } = await readJournal(createNodeStorage(run), 'journal.jsonl');
    rmSync(join(run, 'journal.jsonl'));
    const { journal } = await openJournal(createNodeStorage(run), 'journal.jsonl', () => '2026-01-01T00:00:00.000Z');
    for (const { kind, data } of entries) {
      const event = { kind, data } as Parameters<typeof journal.append>[0];
      if (event.kind === 'run-start')
        event.data.shaderDigests = { ...event.data.shaderDigests, 'more.wgsl': '0'.repeat(64) };
      await journal.append(event);
    }
    let off = 0;
    editLine(run, 1, 2, (episode) => {
      const logprobs = episode['logprobs'] as (number | null)[];
      const token = logprobs.findIndex((value) => value !== null);
      off = Math.fround(logprobs[token]! - 0.01);
      logprobs[token + 1] = nextF32(logprobs[token + 1]!);
      logprobs[token] = off;
    });
    const { findings, notes } = await audit(run);
    expect(notes[0]).toContain('other shaders: wanted within 0.001 nats');
    const found = findings.filter((line) => line.includes('logprob-bits'));
    expect(found).toHaveLength(1);
    expect(found[0]).toMatch(new RegExp(`found sampled ${off} .*, as recomputed, within 0\\.001$`));
    expect((await audit(run, '--replay')).stderr).toMatch(
      /DeviceError.*no-replay.*found other shaders; wanted those of the run.*leave --replay out/,
    );
  });

  test('refuses another base model, a changed checkpoint, another device and options that do nothing', async () => {
    const run = copy('refused');
    expect(await audit(run, '--device', 'no such adapter')).toMatchObject({ exitCode: 3 });
    const weights = join(run, 'checkpoints/step-000002/adapter_model.safetensors');
    const bytes = readFileSync(weights);
    bytes[bytes.length - 1]! ^= 1;
    writeFileSync(weights, bytes);
    expect((await audit(run)).stderr).toMatch(/digest-mismatch.*step-000002\/adapter_model\.safetensors/);
    expect(await runCli('audit', run, '--replay')).toMatchObject({ exitCode: 2, stdout: '' });
    const config = join(folder, 'model/generation_config.json');
    const original = readFileSync(config, 'utf8');
    writeFileSync(config, `${original}\n`);
    const { stderr, exitCode } = await audit(copy('other-base'));
    writeFileSync(config, original);
    expect(stderr).toMatch(/identity-mismatch.*found that baseModel is [0-9a-f]{64}, sealed with [0-9a-f]{64}/);
    expect(exitCode).not.toBe(0);
  });
});

describe('the canary of a sealed checkpoint', () => {
  const sealed = (run: string) => join(run, 'checkpoints/step-000004');
  const commands = (adapter: string): [string, string[]][] => [
    ['score', ['score', '--model', join(folder, 'model'), '--adapter', adapter, '--text', 'Guten Tag', '--json']],
    [
      'sample',
      ['sample', '--model', join(folder, 'model'), '--adapter', adapter, '--prompt', 'Hallo', '--max-tokens', '2'],
    ],
    [
      'evaluate',
      [
        'evaluate',
        '--model',
        join(folder, 'model'),
        '--adapter',
        adapter,
        '--suite',
        'agent',
        '--episodes',
        '1',
        '--seeds',
        '1',
        '--max-tokens',
        '8',
        '--output',
        join(adapter, '../../../evaluation.json'),
      ],
    ],
  ];

  test('is compared, and said to be equal, by score, sample and evaluate', async () => {
    for (const [name, argv] of commands(sealed(whole))) {
      const { exitCode, stderr } = await runCli(...argv);
      expect([name, exitCode]).toEqual([name, 0]);
      expect(stderr).toMatch(/note: canary: logits of base and adapter equal .*step-000004\/canary\.json bit for bit/);
    }
  });

  test('stops all three where the scale in adapter_config.json is another than was sealed', async () => {
    const run = copy('scale');
    const file = join(sealed(run), 'adapter_config.json');
    writeFileSync(file, readFileSync(file, 'utf8').replace('"lora_alpha": 4', '"lora_alpha": 8'));
    for (const [name, argv] of commands(sealed(run))) {
      const { exitCode, stderr } = await runCli(...argv);
      expect([name, exitCode === 0]).toEqual([name, false]);
      expect(stderr).toMatch(
        /adapter-mismatch.*step-000004\/canary\.json: found -?[\d.]+ as the .* \(.*\); wanted -?[\d.]+, bit for bit\. Load the adapter once/,
      );
    }
  });

  test('is not needed where another base is known by its hashes: case D7, on evaluation', async () => {
    const other = join(folder, 'other-model');
    cpSync(model, other, { recursive: true });
    const template = join(other, 'chat_template.jinja');
    writeFileSync(template, readFileSync(template, 'utf8').replace('<|im_start|>', '<|im_start|> '));
    const argv = commands(sealed(whole))[2]![1].map((word) => (word === join(folder, 'model') ? other : word));
    const { exitCode, stderr } = await runCli(...argv);
    expect(exitCode).not.toBe(0);
    expect(stderr).toMatch(/identity-mismatch.*step-000004: found that chatTemplate is [0-9a-f]{64}, sealed with/);
  });

  test('lets an older checkpoint through, and says that it has none', async () => {
    const run = copy('older');
    rmSync(join(sealed(run), 'canary.json'));
    const { exitCode, stderr } = await runCli(...commands(sealed(run))[0]![1]);
    expect(exitCode).toBe(0);
    expect(stderr).toMatch(
      /note: canary: none \(.*step-000004 was sealed before canaries were\); the adapter changes a logit/,
    );
  });
});
