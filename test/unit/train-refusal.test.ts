// A rollout that contradicts itself is never learnt from: the step is refused, journalled, and nothing is updated.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openJournal } from '../../src/journal.ts';
import { comparablePart } from '../../src/journal-events.ts';
import { EnvError } from '../../src/lib/errors.ts';
import { createNodeStorage } from '../../src/lib/storage-node.ts';
import type { Episode } from '../../src/rollout/episode.ts';
import { resolveRunConfig } from '../../src/run-config.ts';
import { type AuditLogprobs, type AuditRollouts, train } from '../../src/train.ts';
import { stubPorts } from '../support/train-ports.ts';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'shaderl-refusal-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function ports(name: string, auditRollouts: AuditRollouts, auditLogprobs: AuditLogprobs) {
  const storage = createNodeStorage(join(folder, name));
  const { journal } = await openJournal(storage, 'journal.jsonl', () => new Date(0).toISOString());
  return { ...stubPorts(storage, journal, auditRollouts, auditLogprobs), journal };
}

const clean: AuditRollouts = async () => ({ findings: [], duplicates: { rate: 0 } });
const start = { step: 0, cursor: { epoch: 0, index: 0 } };

async function config() {
  const text = JSON.stringify({
    model: 'm',
    output: 'o',
    steps: 1,
    data: { count: 1 },
    grpo: { groupSize: 2 },
    generation: { maxCompletionTokens: 8 },
  });
  return (await resolveRunConfig(text, 'run.json')).config;
}

test('a finding in the record refuses the step before the trainer sees it, and stays in the journal', async () => {
  const findings = ['[mask] step 1, group 0, member 1: found mask 0; wanted 1'];
  const { made, updates, journal } = await ports(
    'record',
    async () => ({ findings, duplicates: { rate: 0 } }),
    () => [],
  );
  await expect(train(await config(), made, start)).rejects.toMatchObject({ name: 'AuditError', code: 'audit-failed' });
  expect(updates).toEqual([]);
  expect(journal.entries.map(({ kind, data }) => [kind, data])).toEqual([
    ['audit', { step: 1, rollouts: 2, findings }],
  ]);
});

test('a log-prob that the trainer does not get again refuses the step before the update', async () => {
  const seen: (readonly Episode[])[] = [];
  const { made, updates, journal } = await ports('logprobs', clean, (episodes) => {
    seen.push(episodes);
    return ['rollout 0 of group 0 [logprob-bits]: -1 (bf800000), recomputed -1.0000001 (bf800001)'];
  });
  await expect(train(await config(), made, start)).rejects.toThrow(/1 findings; a rollout must have none/);
  expect(seen[0]).toHaveLength(2);
  expect(updates).toEqual([]);
  expect(journal.entries.map(({ kind }) => kind)).toEqual(['audit']);
});

test('without findings the same step is taken', async () => {
  const { made, updates } = await ports('clean', clean, () => []);
  await train(await config(), made, start);
  expect(updates).toEqual([1]);
});

test('tokens of a rollout that was made again are counted with the step, apart from what equal runs share', async () => {
  const { made, journal } = await ports('again', clean, () => []);
  const { environment } = made;
  let failed = false;
  const verify: typeof environment.verify = async (...asked) => {
    if (failed) return environment.verify(...asked);
    failed = true;
    throw new EnvError('service-died', 'verifying: the service died');
  };
  await train(await config(), { ...made, environment: { ...environment, verify } }, start);
  const step = journal.entries.find(({ kind }) => kind === 'step')!;
  expect(step.data).toMatchObject({ metrics: { 'completions/dropped_tokens': 1, 'completions/mean_length': 1 } });
  expect(JSON.stringify(comparablePart(step))).toMatch(/mean_length/);
  expect(JSON.stringify(comparablePart(step))).not.toMatch(/dropped_tokens/);
});
