// Audits the folder of a run: the journal's chain, the hashes of its rollout files, and every rollout in them.
// Not a replay of the training: log-probs are recomputed only if the caller can (point 5). It writes nothing.
// Invariant: what the journal names is checked in the journal's order; a missing or altered file is a finding.

import { findingText } from './audit/findings.ts';
import { type SuffixRule, suffixRule } from './audit/suffix.ts';
import { auditStep, compareLogprobs } from './audit.ts';
import { evidence, runContexts } from './audit-contexts.ts';
import { effectiveEntries, readJournal } from './journal.ts';
import { type JournalEntry, withoutTimings } from './journal-events.ts';
import { canonicalBytes } from './lib/canonical-json.ts';
import { AuditError } from './lib/errors.ts';
import { sha256Hex } from './lib/sha256-node.ts';
import type { Storage } from './lib/storage.ts';
import { createNodeStorage } from './lib/storage-node.ts';
import { issuesText } from './lib/zod-issues.ts';
import { folderSource } from './model/file-source-node.ts';
import { loadText, type Text } from './model/text.ts';
import { type Episode, episode as episodeSchema } from './rollout/episode.ts';
import { type RunConfig, resolveRunConfig } from './run-config.ts';

const JOURNAL = 'journal.jsonl';
const CONFIG = 'run-config.json';

export interface AuditRunOptions {
  /** The tokenizer; by default that of the model folder which run-config.json names. */
  text?: Text;
  /** Opens what recomputes log-probs (point 5); without it they are not compared. It is closed before the end. */
  recompute?: (run: AuditedRun) => Promise<Recomputer>;
  onStep?: (step: number, findings: number) => void;
}

/** The run that is audited, as its files say. */
export interface AuditedRun {
  storage: Storage;
  config: RunConfig;
  /** The journal's effective entries. */
  entries: readonly JournalEntry[];
}

/** Log-probs of stored rollouts, computed again under the weights that sampled them. */
export interface Recomputer {
  /** Largest difference allowed, in nats; 0: equal bits. */
  bound: number;
  /** What the comparison rests on, as a sentence. */
  basis: string;
  /**
   * One list an episode, one f32 a sampled token; or, as a text, why the weights after `step` completed steps are not
   * at hand. `adapterSha256`: what the journal says of them, null before the first step.
   */
  logprobs(
    episodes: readonly Episode[],
    weights: { step: number; adapterSha256: string | null },
  ): Promise<readonly Float32Array[] | string>;
  /**
   * If the training is replayed: takes the step on its rollouts, so that the weights after it are at hand, and returns
   * the SHA-256 of adapter and optimizer then; null where the weights before it are not at hand.
   */
  advance?(
    step: number,
    episodes: readonly Episode[],
  ): Promise<{ adapterSha256: string; optimizerSha256: string } | null>;
  close(): void;
}

export interface RunAudit {
  steps: number;
  rollouts: number;
  /** One line a finding. */
  findings: string[];
  /** Rollouts that repeat an earlier completion of their group. */
  duplicates: { members: number; rate: number };
  /** Rollouts whose log-probs were recomputed and compared. */
  recomputed: number;
  journalLines: number;
  /** Whether the text between turns was rebuilt by the audit's own rule. */
  suffixes: SuffixRule['kind'];
  /** What is worth knowing and no finding. */
  notes: string[];
}

type StepEntry = Extract<JournalEntry, { kind: 'step' }>;

/**
 * Audits a run's folder. Throws CheckpointError for a journal that was altered, PlanError for an unreadable
 * run-config.json, ModelFileError for a missing tokenizer, AuditError `no-run` for a folder without a run.
 */
export async function auditRun(folder: string, options: AuditRunOptions = {}): Promise<RunAudit> {
  const storage = createNodeStorage(folder);
  await requireRun(storage);
  const { entries: all, tail, position } = await readJournal(storage, JOURNAL);
  const entries = effectiveEntries(all);
  const { config, sha256 } = await resolveRunConfig(await storage.readText(CONFIG), `${storage.label}/${CONFIG}`);
  const text = options.text ?? (await loadText(folderSource(config.model)));
  const findings = checkStart(entries, sha256);
  const steps = entries.filter((entry): entry is StepEntry => entry.kind === 'step');
  const notes = tail.length > 0 ? [`${JOURNAL} ends in a torn line of ${tail.length} bytes, which was not read`] : [];
  notes.push(...(await unjournaled(storage, steps)));

  const { generation } = config;
  const start = entries.find((entry) => entry.kind === 'run-start');
  const contexts = await runContexts(storage, config, text, start?.kind === 'run-start' ? start.data.versions : {});
  findings.push(...contexts.findings);
  const recomputer = (await options.recompute?.({ storage, config, entries })) ?? null;
  if (recomputer) notes.push(recomputer.basis);
  const withoutWeights = new Map<string, number[]>();
  const policies = new Map(steps.map(({ data }) => [data.step, data.adapterSha256]));
  const audited = new Map<string, number>();
  let batch: Episode[] = [];
  let rollouts = 0;
  let recomputed = 0;
  let repeated = 0;
  try {
    for (const [i, { data }] of steps.entries()) {
      const before = findings.length;
      if (data.step !== i + 1)
        findings.push(evidence(JOURNAL, `step ${data.step} as number ${i + 1}`, `step ${i + 1}`));
      // A batch that is used for several optimizer steps is audited once, at its first.
      const first = data.step - ((data.step - 1) % config.grpo.numIterations);
      const { file } = data.rollouts;
      if (audited.has(file) && audited.get(file) === first) {
        findings.push(...(await replayed(recomputer, data, batch)));
        continue;
      }
      audited.set(file, first);
      const read = await readRollouts(storage, data, findings);
      const episodes = read.map(({ episode }) => episode);
      batch = episodes;
      const policy = policies.get(first - 1);
      const expected = {
        step: first,
        seed: config.seed,
        temperature: generation.temperature,
        ...(policy === undefined ? {} : { policy }),
      };
      const { contextOf, findings: lost } = await contexts.ofStep(first, expected);
      const step = auditStep(episodes, contextOf);
      findings.push(...lost, ...step.findings, ...checkCounts(entries, data.step, file, episodes, config));
      if (recomputer && episodes.length > 0) {
        const again = await recomputer.logprobs(episodes, { step: first - 1, adapterSha256: policy ?? null });
        if (typeof again === 'string') withoutWeights.set(again, [...(withoutWeights.get(again) ?? []), first]);
        else {
          findings.push(...checkAgain(file, read, again, recomputer.bound));
          recomputed += again.length;
        }
      }
      findings.push(...(await replayed(recomputer, data, episodes)));
      rollouts += step.rollouts;
      repeated += step.duplicates.members;
      options.onStep?.(data.step, findings.length - before);
    }
  } finally {
    recomputer?.close();
  }
  for (const [why, list] of withoutWeights) notes.push(`log-probs of step ${list.join(', ')} not recomputed: ${why}`);
  return {
    steps: steps.length,
    rollouts,
    findings,
    duplicates: { members: repeated, rate: rollouts === 0 ? 0 : repeated / rollouts },
    recomputed,
    journalLines: position.lines,
    suffixes: suffixRule(text, generation.enableThinking).kind,
    notes,
  };
}

async function requireRun(storage: Storage): Promise<void> {
  for (const file of [JOURNAL, CONFIG]) {
    if (await storage.exists(file)) continue;
    throw new AuditError(
      'no-run',
      `auditing ${storage.label}: found no ${file}; wanted the folder of a training run. ` +
        'Give the folder that `shaderl train` wrote (its "output").',
    );
  }
}

function checkStart(entries: readonly JournalEntry[], sha256: string): string[] {
  const start = entries.find((entry) => entry.kind === 'run-start');
  if (!start) return [evidence(JOURNAL, 'no run-start', 'one, with the hash of the configuration')];
  const { planSha256 } = start.data;
  if (planSha256 === sha256) return [];
  return [evidence(CONFIG, `a configuration with SHA-256 ${sha256}`, `${planSha256}, as the journal says`)];
}

/** Takes a step again, where the recomputer can, and compares what came out with the journal. */
async function replayed(
  recomputer: Recomputer | null,
  data: StepEntry['data'],
  episodes: readonly Episode[],
): Promise<string[]> {
  const found = (await recomputer?.advance?.(data.step, episodes)) ?? null;
  if (found === null) return [];
  return (['adapterSha256', 'optimizerSha256'] as const)
    .filter((item) => found[item] !== data[item])
    .map((item) => evidence(JOURNAL, `${item} ${data[item]} of step ${data.step}`, `${found[item]}, as replayed`));
}

/** Point 5 of a file's rollouts: each difference with file, line, token and both values. */
function checkAgain(
  file: string,
  read: readonly ReadEpisode[],
  again: readonly Float32Array[],
  bound: number,
): string[] {
  return read.flatMap(({ episode, line }, i) =>
    compareLogprobs(episode, again[i]!, bound).map(
      (finding) => `${file} line ${line}: ${findingText(episode, finding)}`,
    ),
  );
}

interface ReadEpisode {
  episode: Episode;
  /** Line of the file, from 1. */
  line: number;
}

/** The episodes of a rollout file; what is wrong with the file or a line becomes a finding. */
async function readRollouts(storage: Storage, data: StepEntry['data'], findings: string[]): Promise<ReadEpisode[]> {
  const { file, sha256, evidenceSha256 } = data.rollouts;
  if (!(await storage.exists(file))) {
    findings.push(evidence(file, 'no such file', `the rollouts of step ${data.step}`));
    return [];
  }
  const bytes = await storage.read(file);
  const hash = sha256Hex(bytes);
  if (hash !== sha256) findings.push(evidence(file, `SHA-256 ${hash}`, `${sha256}, as the journal says`));
  const lines = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes).split('\n');
  if (lines.pop() !== '') findings.push(evidence(file, 'a last line without its end', 'whole lines'));
  const episodes: ReadEpisode[] = [];
  for (const [i, line] of lines.entries()) {
    let value: unknown;
    try {
      value = JSON.parse(line);
    } catch {
      findings.push(evidence(`${file} line ${i + 1}`, `${JSON.stringify(line.slice(0, 40))}`, 'one JSON object'));
      continue;
    }
    const parsed = episodeSchema.safeParse(value);
    if (parsed.success) episodes.push({ episode: parsed.data, line: i + 1 });
    else findings.push(evidence(`${file} line ${i + 1}`, issuesText(parsed.error, value), 'an episode'));
  }
  const again = sha256Hex(canonicalBytes(episodes.map(({ episode }) => withoutTimings(episode))));
  if (again !== evidenceSha256)
    findings.push(evidence(file, `evidence hash ${again}`, `${evidenceSha256}, as journaled`));
  return episodes;
}

/** Every group has all its members, and the journal says that as many were audited before they were trained on. */
function checkCounts(
  entries: readonly JournalEntry[],
  step: number,
  file: string,
  episodes: readonly Episode[],
  { grpo }: RunConfig,
): string[] {
  const found: string[] = [];
  const wanted = grpo.groupsPerStep * grpo.groupSize;
  const members = episodes.filter(({ group, member }) => group < grpo.groupsPerStep && member < grpo.groupSize);
  if (members.length !== wanted || episodes.length !== wanted) {
    const counts = `${grpo.groupsPerStep} groups of ${grpo.groupSize}`;
    found.push(
      evidence(file, `${episodes.length} rollouts, ${members.length} of them in place`, `${wanted}: ${counts}`),
    );
  }
  const audit = entries.find((entry) => entry.kind === 'audit' && entry.data.step === step);
  const said =
    audit?.kind === 'audit' ? `${audit.data.rollouts} rollouts, ${audit.data.findings.length} findings` : 'none';
  if (said !== `${wanted} rollouts, 0 findings`) {
    found.push(evidence(JOURNAL, `${said} in the audit of step ${step}`, `${wanted} rollouts, 0 findings`));
  }
  return found;
}

/** Rollout files that no journal line names: a stop between the two leaves one. */
async function unjournaled(storage: Storage, steps: readonly StepEntry[]): Promise<string[]> {
  const named = new Set(steps.map(({ data }) => data.rollouts.file));
  const files = (await storage.list('rollouts')).map(({ name }) => `rollouts/${name}`);
  return files.filter((file) => !named.has(file)).map((file) => `${file} is in no journal line and was not audited`);
}
