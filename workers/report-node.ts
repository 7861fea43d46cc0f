// Builds the report of a run folder from its journal, its evaluations and their rollouts, and writes it.
// Not the rendering (src/report). Invariant: every number comes from a file that the journal names or verifies.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { readEvaluation } from '../src/evaluation/files-node.ts';
import type { EvaluationFile } from '../src/evaluation/results.ts';
import { isSoftware } from '../src/gpu/device.ts';
import { effectiveEntries, readJournal } from '../src/journal.ts';
import type { JournalEntry } from '../src/journal-events.ts';
import { PlanError } from '../src/lib/errors.ts';
import { createNodeStorage } from '../src/lib/storage-node.ts';
import { folderSource } from '../src/model/file-source-node.ts';
import { loadText, type Text } from '../src/model/text.ts';
import type { AuditTotals, ReportInput, ReportJson, SampleRollout } from '../src/report/schema.ts';
import { writeReport } from '../src/report/write-node.ts';
import { buildReport } from '../src/report.ts';
import { type Episode, episode as episodeSchema } from '../src/rollout/episode.ts';
import { runConfigSchema } from '../src/run-config.ts';

const shownRollouts = 3;
/** The points of the audit, with the codes of the findings that break each; any other code is the last point's. */
const auditPoints: { name: string; codes: string[] }[] = [
  {
    name: "the environment's log equals the tool calls in the sampled ids",
    codes: ['tool-stream', 'tool-call', 'dispatch', 'observation', 'dropped'],
  },
  {
    name: 'every sampled token was conditioned on exactly the recorded prefix',
    codes: ['prompt', 'prompt-length', 'suffix', 'turn-span', 'after-end', 'stop-reason', 'vocabulary'],
  },
  { name: 'the mask is 1 on sampled tokens and 0 elsewhere', codes: ['mask', 'source'] },
  { name: 'ids, mask, log-probs and sources agree in length', codes: ['lengths', 'logprob', 'truncated-logprob'] },
  { name: 'recomputed log-probs equal the sampled ones bit for bit', codes: ['logprob-bits', 'recomputed-length'] },
  { name: 'verdict, budget, policy and settings agree with a replay and the plan', codes: [] },
];

/** Findings by point; a finding's text starts with its code in brackets, or has it after the rollout's name. */
function findingsByPoint(findings: readonly string[]): AuditTotals['points'] {
  const counts = auditPoints.map(() => 0);
  for (const finding of findings) {
    const code = /\[([a-z-]+)\]/.exec(finding)?.[1] ?? '';
    const at = auditPoints.findIndex(({ codes }) => codes.includes(code));
    counts[at < 0 ? auditPoints.length - 1 : at]! += 1;
  }
  return auditPoints.map(({ name }, i) => ({ name, findings: counts[i]! }));
}

const bootstrapSeed = 20261020;

/** Stretches of one source as text: characters are never cut, because a stretch ends where its source does. */
function shownTokens(episode: Episode, text: Text): SampleRollout['tokens'] {
  const tokens: SampleRollout['tokens'] = [];
  let from = 0;
  for (let i = 1; i <= episode.ids.length; i++) {
    if (i < episode.ids.length && episode.sources[i] === episode.sources[from]) continue;
    tokens.push({ text: text.decode(episode.ids.slice(from, i)), source: episode.sources[from]! });
    from = i;
  }
  return tokens;
}

/** Rollouts kept beside an evaluation; none where the file is missing. */
function keptEpisodes(dir: string, name: string): Episode[] {
  let content: string;
  try {
    content = readFileSync(join(dir, `evaluations/${name}.rollouts.jsonl`), 'utf8');
  } catch {
    return [];
  }
  return content
    .trim()
    .split('\n')
    .slice(0, shownRollouts)
    .map((line) => episodeSchema.parse(JSON.parse(line)));
}

function namedEvaluation(dir: string, entries: readonly JournalEntry[], name: string): EvaluationFile | null {
  const entry = entries.findLast((e) => e.kind === 'evaluation' && e.data.name === name);
  return entry?.kind === 'evaluation' ? readEvaluation(join(dir, entry.data.result.file)) : null;
}

/** Rollouts of completed steps, and every finding of the journal: those of refused steps too, which `resume` takes back. */
function auditTotals(all: readonly JournalEntry[], effective: readonly JournalEntry[], tokens: number): AuditTotals {
  const audits = (entries: readonly JournalEntry[]) =>
    entries.flatMap((entry) => (entry.kind === 'audit' ? [entry.data] : []));
  const findings = audits(all).flatMap((audit) => audit.findings);
  return {
    rollouts: audits(effective).reduce((sum, { rollouts }) => sum + rollouts, 0),
    sampledTokens: tokens,
    findings: findings.length,
    points: findingsByPoint(findings),
  };
}

function taskFacts({ data, service }: z.infer<typeof runConfigSchema>): ReportInput['task'] {
  if (data.environment !== 'german') {
    return {
      description: `Tasks of a ${data.environment} service, which gives tools, observations and rewards.`,
      facts: [`tasks: ${data.tasks}`, `service: ${service?.command?.join(' ') ?? service?.url}`],
    };
  }
  return {
    description:
      'German lookup and calculator task: look two goods up, calculate with the calculator, answer with a final line. Strict success needs all of it, in order, without a tool error.',
    facts: ['80 operand pairs; new ids and templates do not make new tasks', 'values are drawn anew in every episode'],
  };
}

/** Reads a run folder and builds its report. @throws PlanError `no-run` for a folder without a run. */
export async function runReport(dir: string): Promise<ReportJson> {
  const storage = createNodeStorage(dir);
  if (!(await storage.exists('journal.jsonl'))) {
    throw new PlanError(
      'no-run',
      `reporting ${dir}: it has no journal.jsonl; wanted the folder of a run. Give the output folder of train or quickstart.`,
    );
  }
  const { entries: all } = await readJournal(storage, 'journal.jsonl');
  const entries = effectiveEntries(all);
  const config = runConfigSchema.parse(JSON.parse(await storage.readText('run-config.json')));
  const start = entries.find((entry) => entry.kind === 'run-start');
  if (start?.kind !== 'run-start')
    throw new PlanError('no-run', `reporting ${dir}: its journal has no run-start. The run never began.`);
  const text = await loadText(folderSource(config.model));
  const steps = entries.flatMap((entry) =>
    entry.kind === 'step'
      ? [
          {
            step: entry.data.step,
            metrics: {
              ...entry.data.metrics,
              ...Object.fromEntries(Object.entries(entry.data.seconds).map(([name, value]) => [`time/${name}`, value])),
            },
            journal: { index: entry.index, hash: entry.sha256 },
          },
        ]
      : [],
  );
  const rolloutsOf = (phase: 'before' | 'after') =>
    keptEpisodes(dir, phase).map(
      (episode): SampleRollout => ({
        phase,
        taskId: episode.taskId,
        seed: episode.seed,
        strict: episode.verdict?.strict ?? false,
        reward: episode.verdict?.reward ?? null,
        tokens: shownTokens(episode, text),
      }),
    );
  const tokens = entries.reduce(
    (sum, entry) =>
      sum +
      (entry.kind === 'step'
        ? (entry.data.metrics['completions/mean_length'] ?? 0) * config.grpo.groupSize * config.grpo.groupsPerStep
        : 0),
    0,
  );
  const { device, versions } = start.data;
  const begun = Date.parse(all[0]!.time);
  const input: ReportInput = {
    title: `GRPO run ${config.output}`,
    task: taskFacts(config),
    config: z.record(z.string(), z.unknown()).parse(config),
    device: {
      name: device['description'] || device['device'] || 'unknown',
      software: isSoftware(Object.values(device)),
      family: start.data.kernelFamily,
      facts: Object.entries(versions),
    },
    trainingSeed: config.seed,
    steps,
    before: namedEvaluation(dir, entries, 'before'),
    after: namedEvaluation(dir, entries, 'after'),
    bootstrapSeed,
    audit: auditTotals(all, entries, Math.round(tokens)),
    checkpoints: entries.flatMap((entry) =>
      entry.kind === 'checkpoint'
        ? [
            {
              step: entry.data.step,
              path: entry.data.folder,
              adapterSha256: stepAdapter(entries, entry.data.step),
              journal: { index: entry.index, hash: entry.sha256 },
            },
          ]
        : [],
    ),
    rollouts: [...rolloutsOf('before'), ...rolloutsOf('after')],
    seconds: (Date.parse(all.at(-1)!.time) - begun) / 1000,
  };
  return buildReport(input);
}

function stepAdapter(entries: readonly JournalEntry[], step: number): string {
  const entry = entries.findLast((e) => e.kind === 'step' && e.data.step === step);
  return entry?.kind === 'step' ? entry.data.adapterSha256 : '';
}

/** Writes report.json and report.html into the run folder. */
export async function reportRun(dir: string): Promise<{ report: ReportJson; json: string; html: string }> {
  const report = await runReport(dir);
  return { report, ...writeReport(dir, report) };
}
