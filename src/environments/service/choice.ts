// Which environment a run meets: the German task in process, or a service that speaks one of the two protocols.
// Not a client and not a process: plain data, so that it can be posted to workers and child processes.
// Invariant: it names where an environment is, how it is talked to and how much of it may be used.
import type { Deadlines } from './deadlines.ts';

export const SERVICE_PROTOCOLS = ['nemo-gym', 'openenv'] as const;
export type ServiceProtocolName = (typeof SERVICE_PROTOCOLS)[number];

/** How the client talks to a service; what is left out is as in NemoGymOptions and OpenEnvOptions. */
export interface ClientOptions {
  /** `german`: the service is asked for the German task's episodes; `own`: tasks are the service's own, from a file. */
  tasks: 'german' | 'own';
  mcp?: 'auto' | 'always' | 'never';
  style?: 'resources' | 'gymnasium';
  closeSession?: boolean;
  verdictTool?: string;
  rewardRule?: 'last' | 'sum';
  rewardWithoutSteps?: number;
  strictReward?: number;
}

export interface ServiceAddress {
  kind: 'service';
  protocol: ServiceProtocolName;
  /** http(s)://host:port. */
  url: string;
  /** Sessions that one client may hold at once. */
  maxSessions: number;
  deadlines: Partial<Deadlines>;
  client: ClientOptions;
}

export type EnvironmentChoice = { kind: 'local' } | ServiceAddress;

export const LOCAL: EnvironmentChoice = { kind: 'local' };

/** Sequences that may be rolled out side by side: each holds a session, and one that waits for a place stops the rest. */
export function slotsFor(environment: EnvironmentChoice, wanted: number): number {
  return environment.kind === 'local' ? wanted : Math.min(wanted, environment.maxSessions);
}
