// What an audit can say: one code a rule, the token it was seen at, and a sentence.
// Not an error: a caller that is about to train refuses on the first finding (refuseFindings).
// Invariant: a finding names what was found and what was wanted; codes are stable.
import { AuditError } from '../lib/errors.ts';
import type { Episode } from '../rollout/episode.ts';

/** The rule that was broken. */
export type FindingCode =
  // the record itself
  | 'lengths'
  | 'vocabulary'
  | 'task'
  | 'settings'
  | 'discarded'
  | 'infrastructure'
  // conditioning
  | 'prompt-length'
  | 'prompt'
  | 'suffix'
  | 'turn-span'
  | 'stop-reason'
  | 'after-end'
  | 'budget'
  | 'capped'
  // masks and log-probs
  | 'mask'
  | 'source'
  | 'logprob'
  | 'truncated-logprob'
  | 'logprob-bits'
  // the tool stream
  | 'tool-call'
  | 'dispatch'
  | 'observation'
  | 'dropped'
  | 'tool-stream'
  | 'invalid-dispatches'
  // the score
  | 'replay'
  | 'strict'
  | 'reward'
  | 'verdict'
  // a step, a run
  | 'policy'
  | 'session'
  | 'member'
  | 'group'
  | 'evidence';

export interface Finding {
  code: FindingCode;
  /** Index of the token in the episode's ids, or null where no token is at fault. */
  index: number | null;
  message: string;
}

/** Takes a finding: found and wanted make its sentence. */
export type Report = (code: FindingCode, index: number | null, found: string, wanted: string) => void;

/** A report that fills `findings`. */
export function reporter(findings: Finding[]): Report {
  return (code, index, found, wanted) => {
    findings.push({ code, index, message: `found ${found}; wanted ${wanted}` });
  };
}

/** A finding as one line, with the rollout it is of. */
export function findingText(episode: Episode, { code, index, message }: Finding): string {
  const { step, group, member, taskId } = episode;
  const at = index === null ? '' : ` at token ${index}`;
  return `[${code}] step ${step}, group ${group}, member ${member} (${taskId})${at}: ${message}`;
}

/** Throws AuditError `audit-failed` if there is any finding. `label` names the batch, which is not trained on. */
export function refuseFindings(findings: readonly string[], label: string): void {
  if (findings.length === 0) return;
  const shown = findings.slice(0, 3).join('\n');
  const more = findings.length > 3 ? `\n... and ${findings.length - 3} more` : '';
  throw new AuditError(
    'audit-failed',
    `auditing ${label}: found ${findings.length} finding${findings.length === 1 ? '' : 's'}; wanted none.\n` +
      `${shown}${more}\nNothing was trained on: mend what the finding names, then resume from the last checkpoint.`,
  );
}
