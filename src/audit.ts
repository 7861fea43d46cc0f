// The strict audit of rollouts before they are trained on: tool stream, conditioning, mask, lengths, log-probs, score.
// Not a filter: one finding refuses the batch (refuseFindings). It shares nothing with the code that samples but the
// schemas. Invariant: pure; the same episodes and contexts give the same findings in the same order.
import { checkLengths, checkLogprobs, checkSources, checkVocabulary } from './audit/arrays.ts';
import type { AuditContext } from './audit/context.ts';
import { type Finding, findingText, type Report, reporter } from './audit/findings.ts';
import { checkInfrastructure, checkReplay, checkToolStream } from './audit/score.ts';
import { walkEpisode } from './audit/walk.ts';
import type { Episode } from './rollout/episode.ts';

/**
 * All findings of one rollout, but for point 5 (compareLogprobs). Points of the protocol: (1) the environment's log is
 * the tool calls in the ids; (2) the ids are exactly prompt, sampled turns and template suffixes; (3) mask and sources;
 * (4) lengths, and log-probs on sampled tokens alone; also the replayed score, stop reasons, budget, vocabulary.
 */
export function auditEpisode(episode: Episode, context: AuditContext): Finding[] {
  const findings: Finding[] = [];
  const report = reporter(findings);
  checkLabels(episode, context, report);
  checkLengths(episode, report);
  checkInfrastructure(episode, report);
  // Ids without a meaning cannot be read any further.
  if (!checkVocabulary(episode, context.text, report)) return findings;
  const walk = walkEpisode(episode, context, report);
  checkSources(episode, walk.expected, report);
  checkLogprobs(episode, walk.expected, report);
  const { verdict } = episode;
  if (verdict && walk.complete) {
    checkToolStream(verdict, walk, report);
    checkReplay(verdict, walk, context, report);
  }
  return findings;
}

function checkLabels(episode: Episode, context: AuditContext, report: Report): void {
  const { expected = {}, task } = context;
  if (episode.taskId !== task.id) report('task', null, `task ${episode.taskId}`, task.id);
  for (const field of ['temperature', 'seed', 'step'] as const) {
    const wanted = expected[field];
    if (wanted !== undefined && episode[field] !== wanted)
      report('settings', null, `${field} ${episode[field]}`, `${wanted}`);
  }
  if (expected.policy !== undefined && episode.policy !== expected.policy) {
    report('policy', null, `policy ${episode.policy}`, `${expected.policy}, the weights of this step`);
  }
  const { discardedTokens, capped, seconds } = episode;
  if (!(discardedTokens >= 0) || (discardedTokens > 0 && !capped)) {
    report('discarded', null, `${discardedTokens} discarded tokens, capped ${capped}`, 'none without a cap');
  }
  if (!(Number.isFinite(seconds) && seconds >= 0)) report('settings', null, `${seconds} seconds`, 'a duration');
}

const scratch = new DataView(new ArrayBuffer(4));

function bitsOf(value: number): string {
  scratch.setFloat32(0, value);
  return `0x${scratch.getUint32(0).toString(16).padStart(8, '0')}`;
}

/**
 * Point 5: the recomputed log-probs, f32, natural log, one a sampled token in the order of the ids, equal the sampled
 * ones bit for bit. The first difference is named. -0 counts as 0, because a JSON record cannot hold it. A `bound`
 * above 0 (nats) allows that much instead: for a device that does not promise the bits of the one that sampled.
 */
export function compareLogprobs(episode: Episode, recomputed: Float32Array, bound = 0): Finding[] {
  const findings: Finding[] = [];
  const report = reporter(findings);
  const trained = episode.mask.flatMap((bit, i) => (bit === 1 ? [i] : []));
  if (recomputed.length !== trained.length) {
    const index = trained[recomputed.length] ?? null;
    report('lengths', index, `${recomputed.length} recomputed log-probs`, `${trained.length}, one a sampled token`);
  }
  const bits = (value: number) => bitsOf(value + 0);
  for (const [n, index] of trained.entries()) {
    const again = recomputed[n];
    const sampled = episode.logprobs[index];
    if (again === undefined) break;
    if (typeof sampled === 'number' && Math.fround(sampled) === sampled) {
      if (bits(sampled) === bits(again) || (bound > 0 && Math.abs(sampled - again) <= bound)) continue;
    }
    const found = `sampled ${sampled}${typeof sampled === 'number' ? ` (${bitsOf(sampled)})` : ''}`;
    const within = bound > 0 ? `, within ${bound}` : '';
    report('logprob-bits', index, found, `${again} (${bitsOf(again)}), as recomputed${within}`);
    break;
  }
  return findings;
}

export interface StepAudit {
  rollouts: number;
  /** One line a finding; empty if the step may be trained on. */
  findings: string[];
  /** Members that repeat an earlier member's completion of the same group, and their share of all rollouts. */
  duplicates: { members: number; rate: number };
}

/**
 * Audits the rollouts of one step. `contextOf` gives an episode's context, or null for a task that is not known.
 * `recomputed`, if given, has one list an episode (see compareLogprobs). Over the step: session ids and
 * (group, member) are unique, all name one policy and one step, a group has one task.
 */
export function auditStep(
  episodes: readonly Episode[],
  contextOf: (episode: Episode) => AuditContext | null,
  recomputed?: readonly (Float32Array | null)[],
): StepAudit {
  const findings = episodes.flatMap((episode, i) => {
    const context = contextOf(episode);
    const again = recomputed?.[i];
    const unknown: Finding = { code: 'task', index: null, message: `found task ${episode.taskId}; wanted a known one` };
    const own = context ? auditEpisode(episode, context) : [unknown];
    if (again) own.push(...compareLogprobs(episode, again));
    return own.map((finding) => findingText(episode, finding));
  });
  findings.push(...acrossEpisodes(episodes));
  const members = duplicateMembers(episodes);
  const rate = episodes.length === 0 ? 0 : members / episodes.length;
  return { rollouts: episodes.length, findings, duplicates: { members, rate } };
}

function acrossEpisodes(episodes: readonly Episode[]): string[] {
  const lines: string[] = [];
  const sessions = new Set<string>();
  const places = new Set<string>();
  const tasks = new Map<number, string>();
  const [first] = episodes;
  for (const episode of episodes) {
    const findings: Finding[] = [];
    const report = reporter(findings);
    const { sessionId, group, member, taskId } = episode;
    if (sessions.has(sessionId)) report('session', null, `session ${sessionId} again`, 'one session a rollout');
    sessions.add(sessionId);
    const place = `${group} ${member}`;
    if (places.has(place)) report('member', null, `member ${member} of group ${group} again`, 'each member once');
    places.add(place);
    const task = tasks.get(group) ?? taskId;
    if (task !== taskId) report('group', null, `task ${taskId}`, `${task}, as the group's other members`);
    tasks.set(group, task);
    for (const [code, field] of [
      ['policy', 'policy'],
      ['settings', 'step'],
      ['settings', 'temperature'],
    ] as const) {
      const wanted = first![field];
      if (episode[field] !== wanted)
        report(code, null, `${field} ${episode[field]}`, `${wanted}, as the first rollout`);
    }
    lines.push(...findings.map((finding) => findingText(episode, finding)));
  }
  return lines;
}

function duplicateMembers(episodes: readonly Episode[]): number {
  const seen = new Set<string>();
  let repeated = 0;
  for (const { group, promptLength, ids } of episodes) {
    const completion = `${group}: ${ids.slice(promptLength).join(' ')}`;
    if (seen.has(completion)) repeated += 1;
    seen.add(completion);
  }
  return repeated;
}
