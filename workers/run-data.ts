// What a run is trained on: its tasks, the environment that gives them, and how its rollouts are audited. The German
// task is part of the program; the tasks of a service come from a file, whose bytes are kept in the run's folder.
// Not the loop and not a service's process. Invariant: a run that resumes has the tasks that it was started with.
import { readFileSync } from 'node:fs';
import { germanContexts } from '../src/audit/german.ts';
import { OWN_INVALID_CALL, openedContexts } from '../src/audit/opened.ts';
import { INVALID_CALL_OBSERVATION } from '../src/environments/german-expert.ts';
import { trainTasks } from '../src/environments/german-task.ts';
import type { EnvironmentPort, Task } from '../src/environments/port.ts';
import { openingsFile, recordOpenings } from '../src/environments/service/openings.ts';
import { readTasks } from '../src/environments/service/task-file.ts';
import { EnvError, PlanError } from '../src/lib/errors.ts';
import { sha256Hex } from '../src/lib/sha256-node.ts';
import type { Storage } from '../src/lib/storage.ts';
import type { Text } from '../src/model/text.ts';
import type { Episode } from '../src/rollout/episode.ts';
import type { RunConfig } from '../src/run-config.ts';
import type { AuditLogprobs, AuditRollouts } from '../src/train.ts';
import { type AuditOf, auditPorts } from './audit-ports.ts';

export interface RunData {
  tasks: readonly Task[];
  /** Name and version of the environment, as seals have it. */
  environment: string;
  /** Bytes of the tasks' file; null where the program makes them. */
  file: Uint8Array | null;
  invalidCallObservation: string;
  /** How rollouts meet this environment and are audited. */
  connect(
    environment: EnvironmentPort,
    text: Text,
    storage: Storage,
  ): { port: EnvironmentPort; auditRollouts: AuditRollouts; auditLogprobs: AuditLogprobs };
}

function readFile(path: string): Uint8Array {
  try {
    return readFileSync(path);
  } catch (error) {
    throw new PlanError(
      'no-tasks',
      `reading the tasks of the run: found ${(error as Error).message}; wanted a JSONL file. Correct data.tasks.`,
      { cause: error },
    );
  }
}

function decode(path: string, bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (error) {
    const message = `reading ${path}: found bytes that are no UTF-8; wanted JSONL text. Save the file as UTF-8.`;
    throw new PlanError('not-utf8', message, { cause: error });
  }
}

/** The tasks that a configuration names. Throws PlanError for a file that cannot be read or has too few of them. */
export function openRunData(config: RunConfig): RunData {
  const { environment, tasks: path, count, seeds } = config.data;
  if (environment === 'german' || path === undefined) {
    return {
      tasks: trainTasks(seeds.train, count),
      environment: 'german/1',
      file: null,
      invalidCallObservation: INVALID_CALL_OBSERVATION,
      connect: (port, text) => ({ port, ...withoutLosses(auditPorts(config, germanAudit(text, config)), () => false) }),
    };
  }
  const file = readFile(path);
  const all = readTasks(environment, path, decode(path, file));
  const wanted = Math.max(count, config.grpo.groupsPerStep);
  if (all.length < wanted) {
    const key = count > config.grpo.groupsPerStep ? 'data.count' : 'grpo.groupsPerStep';
    throw new PlanError(
      'too-few-tasks',
      `reading ${path}: found ${all.length} tasks; wanted at least ${key}, ${wanted}. Add tasks, or lower ${key}.`,
    );
  }
  const sha256 = sha256Hex(file);
  return {
    tasks: count === 0 ? all : all.slice(0, count),
    environment: `${environment}/1, tasks ${sha256}`,
    file,
    invalidCallObservation: OWN_INVALID_CALL,
    connect: (inner, text, storage) => connectOwn(config, inner, text, storage),
  };
}

function auditSettings({ generation }: RunConfig, invalidCallObservation: string) {
  const { maxCompletionTokens, maxToolRounds, enableThinking } = generation;
  return { maxCompletionTokens, maxToolRounds, enableThinking, invalidCallObservation };
}

function germanAudit(text: Text, config: RunConfig): AuditOf {
  return germanContexts(text, auditSettings(config, INVALID_CALL_OBSERVATION));
}

function connectOwn(config: RunConfig, inner: EnvironmentPort, text: Text, storage: Storage) {
  const { port, openings, clear } = recordOpenings(inner);
  const contextOf = openedContexts(text, auditSettings(config, OWN_INVALID_CALL));
  const audit = auditPorts(config, (task, expected) => contextOf(task, openings.get(task.id), expected));
  const { auditRollouts, auditLogprobs } = withoutLosses(audit, isMasked);
  return {
    port,
    auditLogprobs,
    async auditRollouts(...[episodes, tasks, expected]: Parameters<AuditRollouts>) {
      const outcome = await auditRollouts(episodes, tasks, expected);
      const began = new TextEncoder().encode(`${JSON.stringify(Object.fromEntries(openings))}\n`);
      if (outcome.findings.length === 0) await storage.write(openingsFile(expected.step), began);
      clear();
      return outcome;
    },
  };
}

/** Whether the service itself said that a rollout has no reward: mask_sample, a failed judge, none at all. */
const isMasked = ({ infrastructure }: Episode): boolean => infrastructure?.startsWith('no-verdict:') === true;

/**
 * Refuses a step whose environment failed a rollout for good: the group that is left would be another one than an
 * uninterrupted run trains on, and a failed service is no reward. A rollout that its service masked is left out of its
 * group, which must have another one.
 */
function withoutLosses(
  { auditRollouts, ...ports }: ReturnType<typeof auditPorts>,
  masked: (episode: Episode) => boolean,
): ReturnType<typeof auditPorts> {
  return {
    ...ports,
    async auditRollouts(episodes, tasks, expected) {
      const lost = episodes.filter((episode) => episode.infrastructure !== null && !masked(episode));
      const scored = new Set(episodes.filter(({ verdict }) => verdict !== null).map(({ group }) => group));
      const unscored = episodes.filter(({ group }) => !scored.has(group));
      const [first] = [...lost, ...unscored];
      if (!first) return auditRollouts(episodes, tasks, expected);
      const failed = new Set([...lost, ...unscored]).size;
      throw new EnvError(
        'lost-rollouts',
        `rolling out step ${expected.step}: the environment failed ${failed} of ${episodes.length} rollouts, first ` +
          `${first.taskId} with ${first.infrastructure}; wanted a verdict of every one, or of one in each group where ` +
          'the service masked the others. Nothing was trained on: restore the service, then resume from the last ' +
          'checkpoint.',
      );
    },
  };
}
