// What the tests of the German services share: tasks, transcripts, ports, and an episode through any port.
import { createGermanEnvironment } from '../../../src/environments/german-environment.ts';
import {
  chooseImperfection,
  type ExpertTranscript,
  expertTranscript,
} from '../../../src/environments/german-expert.ts';
import { trainTasks } from '../../../src/environments/german-task.ts';
import { createNemoGymPort } from '../../../src/environments/nemo-gym/client.ts';
import { createOpenEnvPort } from '../../../src/environments/openenv/client.ts';
import type { EnvironmentPort, Task } from '../../../src/environments/port.ts';
import type { Deadlines } from '../../../src/environments/service/deadlines.ts';
import { nodeHttp } from '../../../src/environments/service/http-node.ts';
import type { ServicePort } from '../../../src/environments/service/port.ts';
import { nodeSocket } from '../../../src/environments/service/socket-node.ts';
import { EnvError } from '../../../src/lib/errors.ts';
import type { Verdict } from '../../../src/rollout/episode.ts';
import { GERMAN_VERDICT_TOOL } from '../../../workers/services/german-openenv.ts';
import type { Protocol } from '../../../workers/services/german-service.ts';

export const tasks: readonly Task[] = trainTasks(20261020, 64);

/** A transcript of a task, faulty in every second one on average. */
export const transcriptOf = (task: Task, index: number): ExpertTranscript =>
  expertTranscript(task, { imperfection: chooseImperfection(5, index) });

/** The client of a German service. */
export function germanPort(
  protocol: Protocol,
  url: string,
  deadlines: Partial<Deadlines> = {},
  maxSessions = 64,
): ServicePort {
  if (protocol === 'nemo-gym') return createNemoGymPort({ url, maxSessions, deadlines, tasks: 'german' }, nodeHttp);
  return createOpenEnvPort(
    { url, maxSessions, deadlines, tasks: 'german', verdictTool: GERMAN_VERDICT_TOOL },
    { connect: nodeSocket, http: nodeHttp },
  );
}

/** Plays a whole episode: the verdict, or the code of the fault that ended it. Always closes what it opened. */
export async function play(port: EnvironmentPort, task: Task, expert: ExpertTranscript): Promise<Verdict | string> {
  let sessionId: string | null = null;
  try {
    ({ sessionId } = await port.open(task));
    for (const { tool, argumentsJson } of expert.calls) await port.call(sessionId, tool, argumentsJson);
    return await port.verify(sessionId, expert.finalText, expert.invalidDispatches);
  } catch (error) {
    if (error instanceof EnvError) return error.code;
    throw error;
  } finally {
    if (sessionId !== null) await port.close(sessionId);
  }
}

/** The verdict that the episode has in process. */
export async function trueVerdict(task: Task, expert: ExpertTranscript): Promise<Verdict> {
  const verdict = await play(createGermanEnvironment(), task, expert);
  if (typeof verdict === 'string') throw new Error(`the environment in process failed with ${verdict}`);
  return verdict;
}
