// The strict audit as the training loop takes it, for the German task. The rules are in src/audit.ts.
import { germanContexts } from '../src/audit/german.ts';
import { auditStep, compareLogprobs } from '../src/audit.ts';
import { INVALID_CALL_OBSERVATION } from '../src/environments/german-expert.ts';
import type { Text } from '../src/model/text.ts';
import type { RunConfig } from '../src/run-config.ts';
import type { AuditLogprobs, AuditRollouts } from '../src/train.ts';

/** Points 1 to 4 and the replay before the step, point 5 with the trainer's recomputed log-probs. */
export function auditPorts(
  text: Text,
  config: RunConfig,
): { auditRollouts: AuditRollouts; auditLogprobs: AuditLogprobs } {
  const { maxCompletionTokens, maxToolRounds, enableThinking, temperature } = config.generation;
  const settings = {
    maxCompletionTokens,
    maxToolRounds,
    enableThinking,
    invalidCallObservation: INVALID_CALL_OBSERVATION,
  };
  const contextOf = germanContexts(text, settings);
  return {
    async auditRollouts(episodes, tasks, expected) {
      return auditStep(episodes, (episode) => {
        const task = tasks.get(episode.taskId);
        return task ? contextOf(task, { temperature, seed: config.seed, ...expected }) : null;
      });
    },
    auditLogprobs: (episodes, recomputed) =>
      episodes.flatMap((episode, i) =>
        compareLogprobs(episode, recomputed[i]!).map(
          ({ code, message }) => `rollout ${episode.member} of group ${episode.group} [${code}]: ${message}`,
        ),
      ),
  };
}
