// The audit of a step and of a run's folder, and of rollouts as the rollout code itself records them.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { refuseFindings } from '../../src/audit/findings.ts';
import { germanContexts } from '../../src/audit/german.ts';
import { auditEpisode, auditStep } from '../../src/audit.ts';
import { auditRun, type Recomputer } from '../../src/audit-node.ts';
import { createGermanEnvironment } from '../../src/environments/german-environment.ts';
import { expertTranscript, MISTAKES } from '../../src/environments/german-expert.ts';
import { trainTasks } from '../../src/environments/german-task.ts';
import { openJournal } from '../../src/journal.ts';
import { withoutTimings } from '../../src/journal-events.ts';
import { canonicalBytes } from '../../src/lib/canonical-json.ts';
import { takePrompts } from '../../src/lib/data-order.ts';
import { AuditError } from '../../src/lib/errors.ts';
import { sha256Hex } from '../../src/lib/sha256-node.ts';
import { createNodeStorage } from '../../src/lib/storage-node.ts';
import type { Text } from '../../src/model/text.ts';
import type { Episode } from '../../src/rollout/episode.ts';
import { addDrawn, endTurn, startMember, toEpisode } from '../../src/rollout/member.ts';
import { resolveRunConfig } from '../../src/run-config.ts';
import { places, recompute, roll, SETTINGS, script, toyLogprobs } from '../support/audit-fixture.ts';
import { qwen3Text } from '../support/qwen3-tokenizer.ts';

let text: Text;
beforeAll(async () => {
  text = await qwen3Text();
});

const TASKS = trainTasks(20261020, 4);

/** Members of one group, each in a session of its own. */
async function group(step: number, index: number, members: number, policy = 'base'): Promise<Episode[]> {
  const taken = Array.from({ length: step }).reduce<ReturnType<typeof takePrompts>>(
    ({ cursor }) => takePrompts(42, TASKS.length, cursor, 1),
    { indices: [], cursor: { epoch: 0, index: 0 } },
  );
  const task = TASKS[taken.indices[index]!]!;
  const rolled = await Promise.all(
    Array.from({ length: members }, async (_, member) => {
      const turns = script(task);
      turns[0]!.text = turns[0]!.text.replace('Erst', `Erst ${'ja '.repeat(member)}`);
      return roll(text, turns, { task, label: { step, group: index, member, policy } });
    }),
  );
  return rolled.map(({ episode }, member) => ({ ...episode, sessionId: `${task.id}#${member + 1}` }));
}

describe('a step', () => {
  const contexts = (episode: Episode) => {
    const task = TASKS.find(({ id }) => id === episode.taskId);
    return task ? germanContexts(text, SETTINGS)(task) : null;
  };

  test('passes with its log-probs, and repeated completions are counted but are no finding', async () => {
    const episodes = await group(1, 0, 3);
    const clean = auditStep(episodes, contexts, episodes.map(recompute));
    expect(clean).toEqual({ rollouts: 3, findings: [], duplicates: { members: 0, rate: 0 } });
    const { ids, sources, mask, logprobs, truncatedLogprobs, turns } = episodes[0]!;
    Object.assign(episodes[2]!, { ids, sources, mask, logprobs, truncatedLogprobs, turns });
    expect(auditStep(episodes, contexts)).toEqual({
      rollouts: 3,
      findings: [],
      duplicates: { members: 1, rate: 1 / 3 },
    });
  });

  test.each([
    ['session', (episode: Episode, first: Episode) => Object.assign(episode, { sessionId: first.sessionId })],
    ['member', (episode: Episode, first: Episode) => Object.assign(episode, { member: first.member })],
    ['policy', (episode: Episode) => Object.assign(episode, { policy: 'a'.repeat(64) })],
    ['settings', (episode: Episode) => Object.assign(episode, { step: 9 })],
    ['logprob-bits', (episode: Episode) => void (episode.ids[episode.turns[0]!.span[0] + 1]! += 1)],
    ['task', (episode: Episode) => Object.assign(episode, { taskId: 'other' })],
  ] as const)('with a wrong %s is refused by a message that names the rollout', async (code, change) => {
    const episodes = await group(1, 0, 2);
    const recomputed = episodes.map(recompute);
    if (code === 'logprob-bits') recomputed[1]![3]! -= 1e-3;
    else change(episodes[1]!, episodes[0]!);
    const { findings } = auditStep(episodes, contexts, recomputed);
    expect(findings[0]).toContain(`[${code}] step `);
    expect(() => refuseFindings(findings, 'step 1')).toThrow(AuditError);
    expect(() => refuseFindings([], 'step 1')).not.toThrow();
  });

  test('reports in four parts', () => {
    expect(() =>
      refuseFindings(['[mask] step 1, group 0, member 0 (t) at token 3: found 0; wanted 1'], 'step 1'),
    ).toThrowErrorMatchingInlineSnapshot(`
      [AuditError: auditing step 1: found 1 finding; wanted none.
      [mask] step 1, group 0, member 0 (t) at token 3: found 0; wanted 1
      Nothing was trained on: mend what the finding names, then resume from the last checkpoint.]
    `);
  });
});

test('rollouts that the rollout code makes of expert transcripts with every mistake have no findings', async () => {
  const [task] = TASKS;
  const settings = { ...SETTINGS, temperature: 0.6, policy: 'base' };
  for (const maxCompletionTokens of [400, 150, 90]) {
    for (const mistake of [null, ...MISTAKES]) {
      const { turns } = expertTranscript(task!, { imperfection: mistake && { mistake, seed: 3 } });
      const environment = createGermanEnvironment();
      const { sessionId, messages, tools } = await environment.open(task!);
      const prompt = text.renderPrompt({ messages, tools, enableThinking: true });
      const member = startMember({ task: task!, step: 1, group: 0, member: 0, seed: 1 }, sessionId, prompt, tools, 0);
      const budgeted = { ...settings, maxCompletionTokens };
      for (const { assistant } of turns) {
        for (const id of text.encodeTrusted(`${assistant}<|im_end|>`)) {
          const logprob = toyLogprobs([...member.stream.ids, id]).at(-1)!;
          const stop = addDrawn(member, { id, logprob, truncatedLogprob: 0, entropy: 1 }, text, budgeted);
          if (stop === null) continue;
          await endTurn(member, stop, environment, text, budgeted);
          break;
        }
        if (member.done) break;
      }
      const verdict = await environment.verify(sessionId, member.finalText, member.invalidDispatches);
      const episode = toEpisode(member, budgeted, { verdict }, 1);
      const context = germanContexts(text, budgeted)(task!);
      expect(places(auditEpisode(episode, context)), `${mistake} in ${maxCompletionTokens}`).toEqual([]);
    }
  }
});

describe('the folder of a run', () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'shaderl-audit-'));
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  const adapter = (step: number) => sha256Hex(`adapter ${step}`);

  /** A run of two steps; `change` sees the episodes before they are written. */
  async function writeRun(change: (episodes: Episode[], step: number) => void = () => {}) {
    const storage = createNodeStorage(folder);
    const source = { model: 'unused', output: folder, seed: 42, steps: 2, data: { count: 4 }, grpo: { groupSize: 2 } };
    const generation = { maxCompletionTokens: SETTINGS.maxCompletionTokens };
    const run = await resolveRunConfig(JSON.stringify({ ...source, generation }), 'test');
    await storage.write('run-config.json', new TextEncoder().encode(JSON.stringify(run.config, null, 2)));
    const { journal } = await openJournal(storage, 'journal.jsonl', () => '2026-01-01T00:00:00.000Z');
    const start = { runId: 'r', planSha256: run.sha256, device: {}, versions: {}, shaderDigests: {} };
    await journal.append({ kind: 'run-start', data: { ...start, kernelFamily: 'portable' } });
    for (const step of [1, 2]) {
      const episodes = await group(step, 0, 2, adapter(step - 1));
      change(episodes, step);
      const bytes = new TextEncoder().encode(episodes.map((episode) => `${JSON.stringify(episode)}\n`).join(''));
      const file = `rollouts/step-00000${step}.jsonl`;
      await storage.write(file, bytes);
      const evidenceSha256 = sha256Hex(canonicalBytes(episodes.map(withoutTimings)));
      const rollouts = { file, sha256: sha256Hex(bytes), evidenceSha256 };
      await journal.append({ kind: 'audit', data: { step, rollouts: episodes.length, findings: [] } });
      const digests = { adapterSha256: adapter(step), optimizerSha256: adapter(step) };
      await journal.append({ kind: 'step', data: { step, metrics: {}, ...digests, rollouts, seconds: {} } });
    }
    return storage;
  }

  /** What recomputes by the toy policy. */
  const recomputer = (logprobs: (episode: Episode) => Float32Array, bound = 0): Recomputer => ({
    bound,
    basis: 'on a toy policy',
    logprobs: async (episodes) => episodes.map(logprobs),
    close() {},
  });

  test('passes, and says what was checked', async () => {
    await writeRun();
    expect(await auditRun(folder, { text })).toEqual({
      steps: 2,
      rollouts: 4,
      findings: [],
      duplicates: { members: 0, rate: 0 },
      recomputed: 0,
      journalLines: 5,
      suffixes: 'by-hand',
      notes: [],
    });
    const again = await auditRun(folder, { text, recompute: async () => recomputer(recompute) });
    expect(again).toMatchObject({ recomputed: 4, findings: [], notes: ['on a toy policy'] });
  });

  test('compares log-probs if it is given a way to recompute them', async () => {
    await writeRun();
    const wrong = (episode: Episode) =>
      recompute(episode).map((value, i) => (episode.step === 2 && i === 3 ? value - 0.25 : value));
    const { findings } = await auditRun(folder, { text, recompute: async () => recomputer(wrong) });
    expect(findings).toHaveLength(2);
    expect(findings[1]).toMatch(
      /^rollouts\/step-000002\.jsonl line 2: \[logprob-bits\] step 2, group 0, member 1 \(.*\) at token \d+: found sampled -[\d.]+ \(0x[0-9a-f]{8}\); wanted -[\d.]+ \(0x[0-9a-f]{8}\), as recomputed$/,
    );
    const within = await auditRun(folder, { text, recompute: async () => recomputer(wrong, 0.26) });
    expect(within.findings).toEqual([]);
    const beyond = await auditRun(folder, { text, recompute: async () => recomputer(wrong, 0.2) });
    expect(beyond.findings[0]).toContain(', as recomputed, within 0.2');
  });

  test('says which steps it could not recompute, and why', async () => {
    await writeRun();
    const seen: unknown[] = [];
    const partial = recomputer(recompute);
    const { recomputed, notes } = await auditRun(folder, {
      text,
      recompute: async ({ config, entries }) => ({
        ...partial,
        async logprobs(episodes, weights) {
          seen.push(weights);
          return weights.step === 0 ? partial.logprobs(episodes, weights) : `no weights of ${entries.length} entries`;
        },
        basis: `on ${config.steps} steps`,
      }),
    });
    expect({ recomputed, notes }).toEqual({
      recomputed: 2,
      notes: ['on 2 steps', 'log-probs of step 2 not recomputed: no weights of 5 entries'],
    });
    expect(seen).toEqual([
      { step: 0, adapterSha256: null },
      { step: 1, adapterSha256: adapter(1) },
    ]);
  });

  test('finds rollouts of other weights, of another task, and a member too few', async () => {
    await writeRun(([first, second], step) => {
      if (step === 2) for (const episode of [first!, second!]) episode.policy = adapter(0);
    });
    const stale = await auditRun(folder, { text });
    expect(stale.findings.map((line) => line.split(' ')[0])).toEqual(['[policy]', '[policy]']);
    rmSync(folder, { recursive: true });
    await writeRun((episodes, step) => void (step === 1 && episodes.pop()));
    const short = await auditRun(folder, { text });
    expect(short.findings.join('\n')).toContain('[evidence] rollouts/step-000001.jsonl: found 1 rollouts');
    rmSync(folder, { recursive: true });
    await writeRun((episodes, step) => {
      if (step === 2) for (const episode of episodes) Object.assign(episode, { step: 1, taskId: TASKS[0]!.id });
    });
    expect((await auditRun(folder, { text })).findings.join('\n')).toContain('[settings] step 1, group 0');
  });

  test('finds a changed, a torn and a missing rollout file', async () => {
    const storage = await writeRun();
    const file = 'rollouts/step-000001.jsonl';
    const original = await storage.readText(file);
    const write = (content: string) => storage.write(file, new TextEncoder().encode(content));
    await write(original.replace('"capped":false', '"capped":true'));
    const changed = (await auditRun(folder, { text })).findings.join('\n');
    expect(changed).toMatch(/\[evidence\] rollouts\/step-000001.jsonl: found SHA-256 [0-9a-f]{64}; wanted/);
    expect(changed).toContain('[capped] step 1, group 0, member 0');
    await write(original.slice(0, -20));
    expect((await auditRun(folder, { text })).findings.join('\n')).toContain('a last line without its end');
    await write(original.replace('"capped":false', '"capped":0'));
    expect((await auditRun(folder, { text })).findings.join('\n')).toContain(
      'step-000001.jsonl line 1: found "capped"',
    );
    await storage.remove(file);
    expect((await auditRun(folder, { text })).findings.join('\n')).toContain('found no such file');
  });

  test('notes a file that no journal line names; refuses an altered journal and a folder without a run', async () => {
    const storage = await writeRun();
    await storage.write('rollouts/step-000003.jsonl', new Uint8Array());
    const { notes, findings } = await auditRun(folder, { text });
    expect({ notes, findings }).toEqual({
      notes: ['rollouts/step-000003.jsonl is in no journal line and was not audited'],
      findings: [],
    });
    const journal = await storage.readText('journal.jsonl');
    await storage.write('journal.jsonl', new TextEncoder().encode(journal.replace('"rollouts":2', '"rollouts":3')));
    await expect(auditRun(folder, { text })).rejects.toThrow(/journal.jsonl line 2: found content with sha256/);
    await storage.remove('journal.jsonl');
    await expect(auditRun(folder, { text })).rejects.toThrow(
      /found no journal.jsonl; wanted the folder of a training run/,
    );
  });

  test('finds a configuration that is not the one of the journal', async () => {
    const storage = await writeRun();
    const config = await storage.readText('run-config.json');
    await storage.write('run-config.json', new TextEncoder().encode(config.replace('"steps": 2', '"steps": 3')));
    const { findings } = await auditRun(folder, { text });
    expect(findings).toEqual([
      expect.stringMatching(/^\[evidence\] run-config.json: found a configuration with SHA-256/),
    ]);
  });
});
