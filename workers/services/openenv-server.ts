// An OpenEnv environment server: HTTP, /ws and /mcp over one environment class.
// Not the environment. Invariant: `stop` closes every socket with 1012 and every environment; nothing outlives it.
import { randomUUID } from 'node:crypto';
import type { Faults } from './fault-switches.ts';
import { routeRequest, startHttpService } from './http-server.ts';
import type { EnvironmentClass } from './openenv-environment.ts';
import { openEnvRoutes } from './openenv-routes.ts';
import type { RpcContext } from './openenv-rpc.ts';
import { createSlots, type Slot } from './openenv-slots.ts';
import { createSockets } from './openenv-sockets.ts';

export interface OpenEnvServerOptions {
  environment: EnvironmentClass;
  /** 127.0.0.1 by default. */
  host?: string;
  /** 0, any free port, by default. */
  port?: number;
  /** Sessions of all kinds at once; 1 by default, as upstream. */
  maxSessions?: number;
  /** Idle time after which an environment is closed and its slot freed; off by default. */
  sessionTimeoutMs?: number;
  /** How often idle sessions are looked for; max(timeout / 4, 5 s) by default. */
  reapEveryMs?: number;
  /** Between pings; 20 s by default, null: none. */
  pingMs?: number | null;
  /** For the answer to a close frame; 10 s by default. */
  closeMs?: number;
  /** Faults of the socket /ws and /mcp. */
  faults?: Faults;
  /** Without the HTTP routes reset, step and state. */
  production?: boolean;
}

export interface ServiceHandle {
  url: string;
  /** Sessions that are open now. */
  openSessions(): number;
  stop(): Promise<void>;
}

/** uvicorn closes an idle connection after 5 s. */
const KEEP_ALIVE_MS = 5_000;

/** Starts the server. Throws EnvError where the port is taken. */
export async function serveOpenEnv(options: OpenEnvServerOptions): Promise<ServiceHandle> {
  const { environment } = options;
  const slots = createSlots(environment, options.maxSessions ?? 1, randomUUID);
  const httpSessions = new Map<string, Slot>();
  const rpcContext = (own: Slot | null): RpcContext => ({
    slots,
    own,
    httpSessions,
    throwaway() {
      const instance = environment.create();
      return { tools: () => instance.tools?.() ?? null, close: async () => instance.close() };
    },
  });
  const sockets = createSockets({
    environment,
    slots,
    rpcContext,
    ...(options.faults ? { faults: options.faults } : {}),
    times: { pingMs: options.pingMs === undefined ? 20_000 : options.pingMs, closeMs: options.closeMs ?? 10_000 },
  });
  const routes = openEnvRoutes(environment, options.production ?? false, () => rpcContext(null));
  const http = await startHttpService({
    host: options.host ?? '127.0.0.1',
    port: options.port ?? 0,
    keepAliveMs: KEEP_ALIVE_MS,
    handle: (request) => routeRequest(routes, request),
    upgrade: (request, socket, head) => sockets.upgrade(request, socket, head),
  });
  const timeout = options.sessionTimeoutMs;
  const reaper =
    timeout === undefined
      ? null
      : setInterval(() => void slots.reap(timeout), options.reapEveryMs ?? Math.max(timeout / 4, 5_000));
  return {
    url: http.url,
    openSessions: () => slots.open(),
    async stop() {
      if (reaper) clearInterval(reaper);
      await sockets.shutDown();
      await Promise.all([...httpSessions.values()].map((slot) => slot.end()));
      await http.stop();
    },
  };
}
