// Starts the environment that a run was told to use, in a worker of its own, and gives its port.
// Not a service's process (services/owned-service.ts). Invariant: rollouts cannot tell which one they got.
import type { EnvironmentPort } from '../src/environments/port.ts';
import type { EnvironmentChoice } from '../src/environments/service/choice.ts';
import { spawnGermanEnvironment } from './env-node.ts';
import { spawnNemoGym, spawnOpenEnv } from './service-node.ts';
import { GERMAN_VERDICT_TOOL } from './services/german-openenv.ts';

export interface StartedEnvironment {
  port: EnvironmentPort;
  stop(): Promise<void>;
}

/** The environment behind the chosen port. The caller must `stop()` it. A service is not contacted before a session. */
export async function spawnEnvironment(choice: EnvironmentChoice): Promise<StartedEnvironment> {
  if (choice.kind === 'local') return spawnGermanEnvironment();
  const { protocol, url, maxSessions, deadlines, client } = choice;
  const { tasks, ...rest } = client;
  const options = { url, maxSessions, deadlines, ...rest };
  if (protocol === 'nemo-gym') return spawnNemoGym({ ...options, tasks: tasks === 'german' ? 'german' : 'row' });
  return tasks === 'german'
    ? spawnOpenEnv({ ...options, tasks, verdictTool: GERMAN_VERDICT_TOOL })
    : spawnOpenEnv({ ...options, tasks: 'reset' });
}
