// What the measurements of services share: a service started as a run starts it, scripted episodes, what Linux tells of
// a process. Not a measurement. Invariant: an episode that differs from its transcript is an error and never a time.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { chooseImperfection, type ExpertTranscript, expertTranscript } from '../src/environments/german-expert.ts';
import { trainTasks } from '../src/environments/german-task.ts';
import type { EnvironmentPort, Task } from '../src/environments/port.ts';
import type { EnvironmentChoice, ServiceProtocolName } from '../src/environments/service/choice.ts';
import type { Verdict } from '../src/rollout/episode.ts';
import { withEnvironment } from '../workers/services/run-environment.ts';

/** The number that an option gives. Throws Error below 1 and above `most`. */
export function countOf(name: string, text: string, most = Number.MAX_SAFE_INTEGER): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value > 0 && value <= most) return value;
  const wanted = most === Number.MAX_SAFE_INTEGER ? 'of at least 1' : `from 1 to ${most}`;
  throw new Error(`reading --${name}: found ${text}; wanted a count ${wanted}. Correct it.`);
}

export interface Script {
  task: Task;
  expert: ExpertTranscript;
}

/** Episodes of the scripted expert, faulty in every second one on average. */
export function scriptsOf(count: number): Script[] {
  return trainTasks(20261020, count).map((task, i) => ({
    task,
    expert: expertTranscript(task, { imperfection: chooseImperfection(5, i) }),
  }));
}

/** The tool calls of an episode. Throws Error where the service answers one otherwise than in process. */
export async function playCalls(port: EnvironmentPort, sessionId: string, { expert }: Script): Promise<void> {
  for (const { tool, argumentsJson, observation } of expert.calls) {
    const { content } = await port.call(sessionId, tool, argumentsJson);
    if (content === observation) continue;
    throw new Error(`calling ${tool} in ${sessionId}: found ${content}; wanted ${observation}, as in process.`);
  }
}

/** A whole episode. */
export async function play(port: EnvironmentPort, script: Script): Promise<Verdict> {
  const { sessionId } = await port.open(script.task);
  await playCalls(port, sessionId, script);
  const verdict = await port.verify(sessionId, script.expert.finalText, script.expert.invalidDispatches);
  await port.close(sessionId);
  return verdict;
}

/** Milliseconds of CPU time of a process, all its threads together; of another one in ticks of 10 ms. Null: nothing. */
export function cpuMs(pid: number | null): number {
  if (pid === null) return 0;
  if (pid === process.pid) {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1000;
  }
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /, '')
    .split(' ');
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

/** The most memory that a process was resident in, in MiB. */
export function peakMiB(pid: number): number {
  const [, kB] = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))!;
  return Number(kB) / 1024;
}

export const openFiles = (pid: number): number => readdirSync(`/proc/${pid}/fd`).length;

/** Work with a reference service in a process of its own, or in process (`local`). `pid`: null without one to ask. */
export function withServed<T>(
  env: 'local' | ServiceProtocolName,
  sessions: number,
  logs: string,
  work: (choice: EnvironmentChoice, pid: number | null) => Promise<T>,
): Promise<T> {
  return withEnvironment({ env, url: null, sessions, folder: logs, name: env }, (choice) => {
    const asked = env !== 'local' && process.platform === 'linux';
    const record = asked ? (JSON.parse(readFileSync(join(logs, 'child.json'), 'utf8')) as { pid: number }) : null;
    return work(choice, record?.pid ?? null);
  });
}
