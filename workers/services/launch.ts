// Starts or reaches a service as its description says, and asks it who it is.
// Not a proof (smoke/). Invariant: what was started here is stopped by the returned function or by the failure.
import type { ClientOptions, ServiceAddress, ServiceProtocolName } from '../../src/environments/service/choice.ts';
import type { Deadlines } from '../../src/environments/service/deadlines.ts';
import {
  clientOptions,
  type OwnServiceSection,
  PORT,
  type ServiceSection,
  withPort,
} from '../../src/experiment/service.ts';
import type { PinnedIdentity } from '../../src/experiment/service-facts.ts';
import { freePort, type OwnedService, startOwnedService } from './owned-service.ts';
import { createContext } from './smoke/context.ts';
import { readIdentity } from './smoke/service-checks.ts';

export interface LaunchedService {
  address: ServiceAddress;
  /** Null if somebody else keeps it running. */
  owned: OwnedService | null;
  stop(): Promise<void>;
}

export interface LaunchOptions {
  protocol: ServiceProtocolName;
  section: ServiceSection | OwnServiceSection;
  /** The German task's by default. */
  tasks?: ClientOptions['tasks'];
  /** With `{port}` where a port is to be chosen. */
  url: string;
  /** Null: it runs already. */
  start: { command: readonly string[]; cwd: string } | null;
  /** Folder for the logs, and their name. */
  folder: string;
  name: string;
}

const HEALTH: Record<ServiceProtocolName, string> = { openenv: '/health', 'nemo-gym': '/' };

/** A service that was healthy when it was started and refuses now is dead: it is not waited for as long. */
const OWNED_OPEN_MS = 30_000;

/** The deadlines that a section names. */
function namedDeadlines({ deadlines }: ServiceSection): Partial<Deadlines> {
  return Object.fromEntries(Object.entries(deadlines).filter(([, ms]) => ms !== undefined));
}

/** Starts the service if it is to be started. Throws EnvError as `startOwnedService` does. */
export async function launchService(options: LaunchOptions): Promise<LaunchedService> {
  const { protocol, section, start, folder, name } = options;
  const port = options.url.includes(PORT) ? await freePort() : null;
  const url = withPort(options.url, port);
  const owned = start
    ? await startOwnedService({
        argv: start.command.map((word) => withPort(word, port)),
        cwd: start.cwd,
        url,
        healthPath: section.healthPath ?? HEALTH[protocol],
        healthDeadlineMs: section.healthDeadlineSeconds * 1000,
        stopDeadlineMs: section.stopDeadlineSeconds * 1000,
        folder,
        name,
      })
    : null;
  const deadlines = { ...(owned ? { openMs: OWNED_OPEN_MS } : {}), ...namedDeadlines(section) };
  const client = clientOptions(section, options.tasks ?? 'german');
  return {
    address: { kind: 'service', protocol, url, maxSessions: section.maxSessions, deadlines, client },
    owned,
    stop: async () => owned?.stop(),
  };
}

/** The identity that a plan, or a run, pins. Throws EnvError where nothing answers. */
export async function askIdentity({ protocol, url }: ServiceAddress): Promise<PinnedIdentity> {
  return readIdentity(createContext(protocol, url.replace(/\/+$/, ''), 1));
}
