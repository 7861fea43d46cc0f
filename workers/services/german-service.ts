// The German task served over either protocol: what `serve-env` starts and what tests talk to.
// Not for the open network: there is no authentication, so it listens on loopback unless told otherwise.
// Invariant: `stop` ends every session.
import { germanTools } from '../../src/environments/german-data.ts';
import type { Faults } from './fault-switches.ts';
import { germanResourcesServer } from './german-nemo-gym.ts';
import { germanEnvironmentClass } from './german-openenv.ts';
import { serveNemoGym } from './nemo-gym-server.ts';
import { type ServiceHandle, serveOpenEnv } from './openenv-server.ts';

export const PROTOCOLS = ['nemo-gym', 'openenv'] as const;
export type Protocol = (typeof PROTOCOLS)[number];

export interface GermanServiceOptions {
  protocol: Protocol;
  /** 127.0.0.1 by default. */
  host?: string;
  /** 0, any free port, by default. */
  port?: number;
  maxSessions: number;
  /** Shown by /metadata. */
  version: string;
  /** NeMo Gym: idle time until a session is freed. OpenEnv frees a session with its socket. */
  timeToLiveMs?: number;
  /** OpenEnv: between pings. */
  pingMs?: number | null;
  /** NeMo Gym: whether the tools are offered over MCP too. */
  mcp?: boolean;
  faults?: Faults;
}

/** Starts the service. Throws EnvError where the port is taken. */
export function serveGerman(options: GermanServiceOptions): Promise<ServiceHandle> {
  const { host, port, maxSessions, timeToLiveMs, pingMs } = options;
  const faults = options.faults ? { faults: options.faults } : {};
  const address = { ...(host === undefined ? {} : { host }), ...(port === undefined ? {} : { port }) };
  if (options.protocol === 'openenv') {
    const environment = germanEnvironmentClass(options.version);
    return serveOpenEnv({
      environment,
      maxSessions,
      ...address,
      ...faults,
      ...(pingMs === undefined ? {} : { pingMs }),
    });
  }
  const times = timeToLiveMs === undefined ? {} : { timeToLiveMs };
  const mcpTools = germanTools().map(({ function: { name, description, parameters } }) => ({
    name,
    description,
    inputSchema: parameters,
  }));
  const server = germanResourcesServer({ maxSessions, ...times });
  return serveNemoGym({ server, ...address, ...faults, ...(options.mcp ? { mcpTools } : {}) });
}
