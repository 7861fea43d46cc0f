// The strict audit as the training loop takes it. The rules are in src/audit.ts.
import type { AuditContext, ExpectedLabels } from '../src/audit/context.ts';
import { auditStep, compareLogprobs } from '../src/audit.ts';
import type { Task } from '../src/environments/port.ts';
import type { RunConfig } from '../src/run-config.ts';
import type { AuditLogprobs, AuditRollouts } from '../src/train.ts';

/** What a rollout of a task is audited against; null where nothing is known of it. */
export type AuditOf = (task: Task, expected: ExpectedLabels) => AuditContext | null;

/** Points 1 to 4 and the replay before the step, point 5 with the trainer's recomputed log-probs. */
export function auditPorts(
  config: RunConfig,
  contextOf: AuditOf,
): { auditRollouts: AuditRollouts; auditLogprobs: AuditLogprobs } {
  const { temperature } = config.generation;
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
