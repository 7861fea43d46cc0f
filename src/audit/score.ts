// The environment's own log against the calls in the sampled ids, and the verdict against the independent replayer.
// Not the environment. Invariant: strict score and shaped reward are computed anew from the sampled calls; what the
// record says of them is only compared.
import type { Episode, Verdict } from '../rollout/episode.ts';
import type { AuditContext } from './context.ts';
import type { Report } from './findings.ts';
import type { Walk } from './walk.ts';

const show = (value: unknown) => JSON.stringify(value) ?? 'nothing';

/** Either a verdict or the reason why there is none. Infrastructure is never a reward. */
export function checkInfrastructure({ verdict, infrastructure }: Episode, report: Report): void {
  if ((verdict === null) !== (infrastructure === null)) return;
  const found = verdict ? 'a verdict and an infrastructure failure' : 'neither a verdict nor a reason for its absence';
  report('infrastructure', null, found, 'exactly one of the two');
}

/** The native tool stream: name, arguments' text, order and count; the log's own numbering; the error flags. */
export function checkToolStream(verdict: Verdict, walk: Walk, report: Report): void {
  const { log } = verdict;
  for (const [i, { call, record }] of walk.dispatched.entries()) {
    const [index] = call.span;
    const entry = log[i];
    if (!entry) {
      report('tool-stream', index, `no log entry for ${call.name} ${call.argumentsJson}`, `one, number ${i}`);
      continue;
    }
    if (entry.tool !== call.name || entry.argumentsJson !== call.argumentsJson) {
      const found = `log entry ${i}: ${entry.tool} ${entry.argumentsJson}`;
      report('tool-stream', index, found, `${call.name} ${call.argumentsJson}, as sampled`);
    }
    if (record && record.environmentError !== entry.error) {
      report('tool-stream', index, `environment error ${record.environmentError}`, `${entry.error}, as logged`);
    }
  }
  for (const entry of log.slice(walk.dispatched.length)) {
    report(
      'tool-stream',
      null,
      `a log entry ${entry.tool} ${entry.argumentsJson}`,
      'none: no such call was dispatched',
    );
  }
  const misnumbered = log.findIndex((entry, i) => entry.index !== i);
  if (misnumbered >= 0)
    report('tool-stream', null, `log entry ${misnumbered} with index ${log[misnumbered]!.index}`, `${misnumbered}`);
  if (verdict.invalidDispatches !== walk.invalidDispatches) {
    report(
      'invalid-dispatches',
      null,
      `${verdict.invalidDispatches}`,
      `${walk.invalidDispatches}, as the ids have them`,
    );
  }
}

/** What must hold of the verdict of a service that cannot be replayed: a finite reward, and errors that it logged. */
function checkSense(verdict: Verdict, report: Report): void {
  const { reward, toolErrors, log } = verdict;
  if (!Number.isFinite(reward)) report('reward', null, `reward ${reward}`, 'a finite number');
  if (!(toolErrors >= 0 && toolErrors <= log.length)) {
    report('verdict', null, `toolErrors ${toolErrors}`, `at most the ${log.length} calls of the log`);
  }
}

/** Observations, strict score and shaped reward by the replayer, from the calls in the ids. */
export function checkReplay(verdict: Verdict, walk: Walk, context: AuditContext, report: Report): void {
  if (!context.replay) {
    checkSense(verdict, report);
    return;
  }
  const calls = walk.dispatched.map(({ call }, i) => ({
    tool: call.name ?? '',
    argumentsJson: call.argumentsJson ?? '',
    observation: verdict.log[i]?.observation ?? '',
  }));
  const replayed = context.replay(context.task, calls, walk.finalText, walk.invalidDispatches, verdict);
  const wanted = replayed.verdict;
  let differences = 0;
  const differ: Report = (...finding) => {
    differences += 1;
    report(...finding);
  };
  for (const [i, { call }] of walk.dispatched.entries()) {
    const [entry, again] = [verdict.log[i], wanted.log[i]];
    if (!entry || !again) continue;
    if (entry.observation !== again.observation || entry.error !== again.error) {
      const found = `observation ${show(entry.observation)}, error ${entry.error}`;
      differ('replay', call.span[0], found, `${show(again.observation)}, error ${again.error}, by replay`);
    }
  }
  if (verdict.strict !== wanted.strict)
    differ('strict', null, `strict ${verdict.strict}`, `${wanted.strict}, by replay`);
  if (verdict.reward !== wanted.reward)
    differ('reward', null, `reward ${verdict.reward}`, `${wanted.reward}, by replay`);
  for (const field of ['invalidDispatches', 'toolErrors', 'answer'] as const) {
    if (verdict[field] === wanted[field]) continue;
    differ('verdict', null, `${field} ${show(verdict[field])}`, `${show(wanted[field])}, by replay`);
  }
  for (const part of new Set([...Object.keys(verdict.parts), ...Object.keys(wanted.parts)])) {
    const [found, again] = [verdict.parts[part], wanted.parts[part]];
    if (found !== again) differ('verdict', null, `parts.${part} ${show(found)}`, `${show(again)}, by replay`);
  }
  if (!(verdict.reward >= 0 && verdict.reward <= 1) || (verdict.reward === 1 && !verdict.strict)) {
    differ(
      'reward',
      null,
      `reward ${verdict.reward} with strict ${verdict.strict}`,
      'in [0, 1], 1 only with strict success',
    );
  }
  // The replayer knows more of its own environment; what it alone sees still counts.
  const [first] = replayed.differences;
  if (differences === 0 && first !== undefined) differ('replay', null, first, 'agreement with the replay');
}
