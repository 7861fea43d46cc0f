// The audit's findings of one rollout, for the view: the whole audit where task and tokenizer are known, else what the
// record alone can say. Not the training gate (src/audit.ts). Invariant: a finding keeps its token.

import { checkLengths } from '../audit/arrays.ts';
import type { AuditContext } from '../audit/context.ts';
import { type Finding, reporter } from '../audit/findings.ts';
import { suffixRule } from '../audit/suffix.ts';
import { auditEpisode } from '../audit.ts';
import { germanTools } from '../environments/german-data.ts';
import { INVALID_CALL_OBSERVATION } from '../environments/german-expert.ts';
import { replayEpisode } from '../environments/german-replay.ts';
import { promptOf, readPayload, trainTasks } from '../environments/german-task.ts';
import type { Text } from '../model/text.ts';
import type { Episode } from '../rollout/episode.ts';
import type { RunConfig } from '../run-config.ts';

/** Makes contexts for the rollouts of one run; null for a task that the run's settings do not give. */
export function auditContexts(config: RunConfig, text: Text): (episode: Episode) => AuditContext | null {
  // What a service's own tasks began with is no setting of the run; `shaderl audit` reads it from the openings.
  if (config.data.environment !== 'german') return () => null;
  const tasks = new Map(trainTasks(config.data.seeds.train, config.data.count).map((task) => [task.id, task]));
  const { maxCompletionTokens, maxToolRounds, enableThinking, temperature } = config.generation;
  const suffixes = suffixRule(text, enableThinking);
  const tools = germanTools();
  return ({ taskId }) => {
    const task = tasks.get(taskId);
    if (!task) return null;
    const messages = promptOf(readPayload(task));
    return {
      text,
      task,
      promptIds: text.renderPrompt({ messages, tools, enableThinking }),
      tools: tools.map((tool) => tool.function.name),
      stopIds: text.stopIds,
      endIds: text.endIds,
      settings: {
        maxCompletionTokens,
        maxToolRounds,
        enableThinking,
        invalidCallObservation: INVALID_CALL_OBSERVATION,
      },
      replay: replayEpisode,
      expected: { temperature, seed: config.seed },
      suffixes,
    };
  };
}

/** What the record alone contradicts: lengths, mask against source, log-probs where none was sampled. */
function recordFindings(episode: Episode): Finding[] {
  const findings: Finding[] = [];
  const report = reporter(findings);
  checkLengths(episode, report);
  const first = (wrong: (i: number) => boolean) => episode.ids.findIndex((_, i) => wrong(i));
  const mask = first((i) => episode.mask[i] !== Number(episode.sources[i] === 'sampled'));
  if (mask >= 0) {
    const source = episode.sources[mask];
    report('mask', mask, `mask ${episode.mask[mask]}`, `${Number(source === 'sampled')} on a ${source} token`);
  }
  const logprob = first((i) => (episode.logprobs[i] === null) !== (episode.sources[i] !== 'sampled'));
  if (logprob >= 0) {
    report('logprob', logprob, `log-prob ${episode.logprobs[logprob]}`, 'one on sampled tokens alone');
  }
  return findings;
}

export interface RolloutFindings {
  findings: Finding[];
  /** What was checked, as a sentence. */
  scope: string;
}

/** The findings of a rollout; `context` null where task or tokenizer are not known. */
export function findingsOf(episode: Episode, context: AuditContext | null): RolloutFindings {
  if (!context) {
    const scope =
      'Checked: lengths, mask and log-probs of the record. The rest needs the run’s settings and tokenizer.';
    return { findings: recordFindings(episode), scope };
  }
  return { findings: auditEpisode(episode, context), scope: 'Checked: everything but the recomputed log-probs.' };
}
