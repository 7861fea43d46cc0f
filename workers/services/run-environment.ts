// Runs some work with an environment that was asked for by name: in process, a reference service that is started for it,
// or another service, which runs already or is started. Not a plan's service (experiment/service-plan.ts): nothing is
// pinned here.
// Invariant: what was started for the work is ended with it, whatever its outcome.
import { resolve } from 'node:path';
import { type EnvironmentChoice, LOCAL, type ServiceProtocolName } from '../../src/environments/service/choice.ts';
import type { OwnServiceSection } from '../../src/experiment/service.ts';
import { askIdentity, launchService } from './launch.ts';
import { defaultSection, resolvedSection } from './reference-command.ts';

export interface AskedEnvironment {
  env: 'local' | ServiceProtocolName;
  /** Of a service that runs already; null starts the reference service. */
  url: string | null;
  /** Sessions that the work holds at once, at most. */
  sessions: number;
  /** A service with tasks of its own; without it the service gives the German task. */
  own?: OwnServiceSection;
  /** Folder for the service's logs, and their name. */
  folder: string;
  name: string;
}

/** The section with another address: the service that it names runs already, and nothing is started. */
const addressed = (own: OwnServiceSection, url: string | null): OwnServiceSection =>
  url === null ? own : { ...own, url, command: null, cwd: null, files: [] };

/** Throws EnvError where the service does not come up or does not answer. */
export async function withEnvironment<T>(
  { env, url, sessions, own, folder, name }: AskedEnvironment,
  work: (environment: EnvironmentChoice) => Promise<T>,
): Promise<T> {
  if (env === 'local') return work(LOCAL);
  const asked = own ? addressed(own, url) : { ...defaultSection(), url, maxSessions: sessions };
  const section = resolvedSection(asked, env);
  const start = section.command === null ? null : { command: section.command, cwd: resolve(section.cwd ?? '.') };
  const tasks = own ? 'own' : 'german';
  const service = await launchService({ protocol: env, section, tasks, url: section.url, start, folder, name });
  try {
    // A wrong address is told now, and not by the first rollout that waits for it.
    await askIdentity(service.address);
    return await work(service.address);
  } finally {
    await service.stop();
  }
}
