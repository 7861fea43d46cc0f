// Runs some work with an environment that was asked for by name: in process, a reference service that is started for it,
// or a service that runs already. Not a plan's service (experiment/service-plan.ts): nothing is pinned here.
// Invariant: what was started for the work is ended with it, whatever its outcome.
import { type EnvironmentChoice, LOCAL, type ServiceProtocolName } from '../../src/environments/service/choice.ts';
import { askIdentity, launchService } from './launch.ts';
import { defaultSection, resolvedSection } from './reference-command.ts';

export interface AskedEnvironment {
  env: 'local' | ServiceProtocolName;
  /** Of a service that runs already; null starts the reference service. */
  url: string | null;
  /** Sessions that the work holds at once, at most. */
  sessions: number;
  /** Folder for the service's logs, and their name. */
  folder: string;
  name: string;
}

/** Throws EnvError where the service does not come up or does not answer. */
export async function withEnvironment<T>(
  { env, url, sessions, folder, name }: AskedEnvironment,
  work: (environment: EnvironmentChoice) => Promise<T>,
): Promise<T> {
  if (env === 'local') return work(LOCAL);
  const asked = { ...defaultSection(), url, maxSessions: sessions };
  const section = resolvedSection(asked, env);
  const start = section.command === null ? null : { command: section.command, cwd: process.cwd() };
  const service = await launchService({ protocol: env, section, url: section.url, start, folder, name });
  try {
    // A wrong address is told now, and not by the first rollout that waits for it.
    await askIdentity(service.address);
    return await work(service.address);
  } finally {
    await service.stop();
  }
}
