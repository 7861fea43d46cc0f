// Runs some work with an environment that was asked for by name: in process, a reference service that is started for it,
// or another service, which runs already or is started. Not a plan's service (experiment/service-plan.ts). Invariant:
// what was started for the work is ended with it, whatever its outcome; a service with tasks of its own is known first.
import { type EnvironmentChoice, LOCAL, type ServiceProtocolName } from '../../src/environments/service/choice.ts';
import type { OwnServiceSection } from '../../src/experiment/service.ts';
import type { ServiceFacts } from '../../src/experiment/service-facts.ts';
import { askIdentity, type LaunchedService, launchService } from './launch.ts';
import { defaultSection, resolvedSection } from './reference-command.ts';
import { openRunService } from './run-service.ts';

/** A service with tasks of its own. */
export interface AskedOwnService {
  section: OwnServiceSection;
  /** Names the configuration in messages. */
  configFile: string;
  /** Folder of the run that is resumed, which pins its service; null begins one. */
  resumed: string | null;
}

export interface AskedEnvironment {
  env: 'local' | ServiceProtocolName;
  /** Of a service that runs already; null starts the reference service, or what `own` says. */
  url: string | null;
  /** Sessions that the work holds at once, at most. */
  sessions: number;
  /** Without it the service gives the German task. */
  own?: AskedOwnService;
  /** Folder for the service's logs, and their name. */
  folder: string;
  name: string;
}

/** The section with another address: the service that it names runs already, and nothing is started. */
const addressed = (section: OwnServiceSection, url: string | null): OwnServiceSection =>
  url === null ? section : { ...section, url, command: null, cwd: null, files: [] };

interface Opened {
  service: LaunchedService;
  facts: ServiceFacts | null;
}

async function openGerman(asked: AskedEnvironment, protocol: ServiceProtocolName): Promise<Opened> {
  const { url, sessions, folder, name } = asked;
  const section = resolvedSection({ ...defaultSection(), url, maxSessions: sessions }, protocol);
  const start = section.command === null ? null : { command: section.command, cwd: process.cwd() };
  const service = await launchService({ protocol, section, url: section.url, start, folder, name });
  try {
    // A wrong address is told now, and not by the first rollout that waits for it.
    await askIdentity(service.address);
    return { service, facts: null };
  } catch (error) {
    await service.stop();
    throw error;
  }
}

/**
 * `facts`: of a service with tasks of its own, null for the German task, whose episodes are the program's. Throws
 * EnvError where the service does not come up or does not answer, PlanError where it is not the one that was meant.
 */
export async function withEnvironment<T>(
  asked: AskedEnvironment,
  work: (environment: EnvironmentChoice, facts: ServiceFacts | null) => Promise<T>,
): Promise<T> {
  const { env, url, own, sessions, folder, name } = asked;
  if (env === 'local') return work(LOCAL, null);
  const { service, facts } = own
    ? await openRunService({ protocol: env, ...own, section: addressed(own.section, url), sessions, folder, name })
    : await openGerman(asked, env);
  try {
    return await work(service.address, facts);
  } finally {
    await service.stop();
  }
}
