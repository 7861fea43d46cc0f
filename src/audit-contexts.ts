// Audit contexts of a stored run: the task of each group by the seeded schedule, and how it began.
// Not the run's own memory: tasks are made anew, or read from the files beside the journal. Invariant: a missing or
// altered file is a finding, and the rollouts that need it are findings too.

import type { AuditContext, ExpectedLabels } from './audit/context.ts';
import { germanContexts } from './audit/german.ts';
import { OWN_INVALID_CALL, openedContexts } from './audit/opened.ts';
import { INVALID_CALL_OBSERVATION } from './environments/german-expert.ts';
import { trainTasks } from './environments/german-task.ts';
import type { Task } from './environments/port.ts';
import { type Opening, openingsFile, openingsOfStep } from './environments/service/openings.ts';
import { readTasks } from './environments/service/task-file.ts';
import { SERVICE_FILE } from './experiment/service-facts.ts';
import { type DataCursor, takePrompts } from './lib/data-order.ts';
import { PlanError } from './lib/errors.ts';
import { sha256HexAsync } from './lib/sha256.ts';
import type { Storage } from './lib/storage.ts';
import type { Text } from './model/text.ts';
import type { Episode } from './rollout/episode.ts';
import type { RunConfig } from './run-config.ts';

/** The tasks of a service in the folder of a run: the bytes of the file that it was started with. */
export const TASKS_FILE = 'tasks.jsonl';

/** A finding about the evidence itself. */
export const evidence = (file: string, found: string, wanted: string) =>
  `[evidence] ${file}: found ${found}; wanted ${wanted}`;

export type ContextOf = (episode: Episode) => AuditContext | null;

export interface RunContexts {
  /** About the run's files. */
  findings: string[];
  /** Contexts of the rollouts that were made for a step. */
  ofStep(step: number, expected: ExpectedLabels): Promise<{ contextOf: ContextOf; findings: string[] }>;
}

/** The task of a group of a step, by the seeded schedule; null for a group that the schedule does not have. */
function schedule({ seed, grpo }: RunConfig, tasks: readonly Task[]) {
  const { groupsPerStep, numIterations } = grpo;
  const taken: number[][] = [];
  let cursor: DataCursor = { epoch: 0, index: 0 };
  return (step: number, group: number): Task | null => {
    const batch = Math.floor((step - 1) / numIterations);
    while (taken.length <= batch && tasks.length >= groupsPerStep) {
      const next = takePrompts(seed, tasks.length, cursor, groupsPerStep);
      taken.push(next.indices);
      cursor = next.cursor;
    }
    const index = taken[batch]?.[group];
    return index === undefined ? null : tasks[index]!;
  };
}

/** A finding where a file of the folder is not the one that the journal names. */
async function keptFile(
  storage: Storage,
  file: string,
  wanted: string,
  versions: Readonly<Record<string, string>>,
): Promise<string | null> {
  if (!(await storage.exists(file))) return evidence(file, 'no such file', wanted);
  const sha256 = await sha256HexAsync(await storage.read(file));
  return sha256 === versions[file]
    ? null
    : evidence(file, `SHA-256 ${sha256}`, `${versions[file]}, as the journal says`);
}

/** The tasks of a service that the run was started with; none, and a finding, where the file is not that one. */
async function ownTasks(
  storage: Storage,
  { data }: RunConfig,
  versions: Readonly<Record<string, string>>,
): Promise<{ tasks: Task[]; findings: string[] }> {
  const { environment, tasks: path, count } = data;
  if (environment === 'german' || path === undefined) return { tasks: [], findings: [] };
  const service = await keptFile(storage, SERVICE_FILE, 'the facts of the service', versions);
  const lost = await keptFile(storage, TASKS_FILE, 'the tasks of the run', versions);
  const findings = [service, lost].filter((finding) => finding !== null);
  if (lost !== null) return { tasks: [], findings };
  const tasks = readTasks(environment, path, await storage.readText(TASKS_FILE));
  return { tasks: count === 0 ? tasks : tasks.slice(0, count), findings };
}

async function readOpenings(
  storage: Storage,
  step: number,
): Promise<{ openings: Record<string, Opening>; findings: string[] }> {
  const file = openingsFile(step);
  const lost = (found: string) => ({
    openings: {},
    findings: [evidence(file, found, `how the tasks of step ${step} began`)],
  });
  if (!(await storage.exists(file))) return lost('no such file');
  try {
    return { openings: openingsOfStep.parse(JSON.parse(await storage.readText(file))), findings: [] };
  } catch (error) {
    return lost((error as Error).message.split('\n')[0]!);
  }
}

/**
 * The contexts of a run. `versions` are those of the journal's run-start. Throws PlanError for tasks that do not read
 * although they have the journal's hash.
 */
export async function runContexts(
  storage: Storage,
  config: RunConfig,
  text: Text,
  versions: Readonly<Record<string, string>>,
): Promise<RunContexts> {
  const { generation, data } = config;
  if (data.environment === 'german') {
    const contexts = germanContexts(text, { ...generation, invalidCallObservation: INVALID_CALL_OBSERVATION });
    const taskAt = schedule(config, trainTasks(data.seeds.train, data.count));
    return {
      findings: [],
      async ofStep(step, expected) {
        const contextOf: ContextOf = ({ group }) => {
          const task = taskAt(step, group);
          return task ? contexts(task, expected) : null;
        };
        return { contextOf, findings: [] };
      },
    };
  }
  const { tasks, findings } = await ownTasks(storage, config, versions);
  if (findings.length === 0 && tasks.length < config.grpo.groupsPerStep) {
    const found = `${tasks.length} tasks for ${config.grpo.groupsPerStep} groups`;
    throw new PlanError('too-few-tasks', `reading ${storage.label}/${TASKS_FILE}: found ${found}. Restore the file.`);
  }
  const contexts = openedContexts(text, { ...generation, invalidCallObservation: OWN_INVALID_CALL });
  const taskAt = schedule(config, tasks);
  return {
    findings,
    async ofStep(step, expected) {
      const { openings, findings: lost } = await readOpenings(storage, step);
      const contextOf: ContextOf = ({ group }) => {
        const task = taskAt(step, group);
        return task ? contexts(task, openings[task.id], expected) : null;
      };
      return { contextOf, findings: lost };
    },
  };
}
