// What the checks of a smoke proof share.
// Not a check. Invariant: every port that a check makes is disposed of, so a check leaves no session behind.
import { createGermanEnvironment } from '../../../src/environments/german-environment.ts';
import {
  chooseImperfection,
  type ExpertTranscript,
  expertTranscript,
} from '../../../src/environments/german-expert.ts';
import { trainTasks } from '../../../src/environments/german-task.ts';
import { createNemoGymPort, type NemoGymOptions } from '../../../src/environments/nemo-gym/client.ts';
import { createOpenEnvPort } from '../../../src/environments/openenv/client.ts';
import type { EnvironmentPort, Observation, OpenedSession, Task } from '../../../src/environments/port.ts';
import { DEFAULT_DEADLINES, type Deadlines } from '../../../src/environments/service/deadlines.ts';
import { nodeHttp } from '../../../src/environments/service/http-node.ts';
import type { ServicePort } from '../../../src/environments/service/port.ts';
import { nodeSocket } from '../../../src/environments/service/socket-node.ts';
import type { HttpReply } from '../../../src/environments/service/transport.ts';
import type { Verdict } from '../../../src/rollout/episode.ts';
import { GERMAN_VERDICT_TOOL } from '../german-openenv.ts';
import type { Protocol } from '../german-service.ts';

export interface SmokeContext {
  protocol: Protocol;
  url: string;
  concurrency: number;
  tasks: readonly Task[];
  transcripts: readonly ExpertTranscript[];
  /** Runs `use` with a client of the service (or of a proxy before it) and ends its sessions. */
  withPort<T>(
    use: (port: ServicePort) => Promise<T>,
    options?: { url?: string; deadlines?: Partial<Deadlines> },
  ): Promise<T>;
  get(path: string): Promise<HttpReply>;
  post(path: string, body: string): Promise<HttpReply>;
}

/** A failed check says what it found and what it wanted. */
export interface CheckOutcome {
  ok: boolean;
  found: string;
  wanted: string;
  /** Figures of this run. */
  measured?: Record<string, number>;
}

export interface Check {
  name: string;
  run(context: SmokeContext): Promise<CheckOutcome>;
}

/** Episodes of the proof: a mixture of faultless and faulty ones. */
const EPISODES = 16;
/** How long an opening may wait for a full or absent service, plus 20 ms for each session that opens with it. */
const OPEN_MS = 2_000;
const TASK_SEED = 20261020;
const TRANSCRIPT_SEED = 5;

/** `mcp`: as NemoGymOptions has it. */
export function createContext(
  protocol: Protocol,
  url: string,
  concurrency: number,
  mcp: NonNullable<NemoGymOptions['mcp']> = 'auto',
): SmokeContext {
  const tasks = trainTasks(TASK_SEED, EPISODES);
  const transcripts = tasks.map((task, i) =>
    expertTranscript(task, { imperfection: chooseImperfection(TRANSCRIPT_SEED, i) }),
  );
  const makePort = (target: string, deadlines: Partial<Deadlines>): ServicePort => {
    const options = { url: target, maxSessions: Math.max(concurrency, 4), deadlines };
    if (protocol === 'nemo-gym') return createNemoGymPort({ ...options, tasks: 'german', mcp }, nodeHttp);
    const transports = { connect: nodeSocket, http: nodeHttp };
    return createOpenEnvPort({ ...options, tasks: 'german', verdictTool: GERMAN_VERDICT_TOOL }, transports);
  };
  const exchange = (method: 'GET' | 'POST', path: string, body: string | null): Promise<HttpReply> => {
    const headers: Record<string, string> = body === null ? {} : { 'content-type': 'application/json' };
    return nodeHttp(`${method} ${path}`, { method, url: `${url}${path}`, headers, body }, DEFAULT_DEADLINES);
  };
  return {
    protocol,
    url,
    concurrency,
    tasks,
    transcripts,
    async withPort(use, { url: other = url, deadlines = {} } = {}) {
      const port = makePort(other, { openMs: OPEN_MS + 20 * concurrency, ...deadlines });
      try {
        return await use(port);
      } finally {
        await port.dispose();
      }
    },
    get: (path) => exchange('GET', path, null),
    post: (path, body) => exchange('POST', path, body),
  };
}

export interface Played {
  opened: OpenedSession;
  observations: Observation[];
  verdict: Verdict;
}

/** A whole episode through any environment. */
export async function playEpisode(port: EnvironmentPort, task: Task, expert: ExpertTranscript): Promise<Played> {
  const opened = await port.open(task);
  const observations: Observation[] = [];
  for (const { tool, argumentsJson } of expert.calls) {
    observations.push(await port.call(opened.sessionId, tool, argumentsJson));
  }
  const verdict = await port.verify(opened.sessionId, expert.finalText, expert.invalidDispatches);
  await port.close(opened.sessionId);
  return { opened, observations, verdict };
}

/** The same episodes in process. */
export async function playInProcess({ tasks, transcripts }: SmokeContext): Promise<Played[]> {
  const local = createGermanEnvironment();
  const played: Played[] = [];
  for (const [i, task] of tasks.entries()) played.push(await playEpisode(local, task, transcripts[i]!));
  return played;
}
