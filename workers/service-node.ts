// Starts a protocol client in its own worker and gives its port.
// Not the client itself. Invariant: the loss of the worker raises EnvError on every call, at once and for good.
import type { NemoGymOptions } from '../src/environments/nemo-gym/client.ts';
import type { OpenEnvOptions } from '../src/environments/openenv/client.ts';
import { DEFAULT_DEADLINES, type Deadlines } from '../src/environments/service/deadlines.ts';
import type { ServicePort } from '../src/environments/service/port.ts';
import { type SpawnedWorker, spawnWorker } from './spawn.ts';

const METHODS = [
  'open',
  'call',
  'verify',
  'log',
  'close',
  'stats',
  'serviceId',
] as const satisfies (keyof ServicePort)[];

export interface SpawnedService extends Omit<SpawnedWorker<ServicePort>, 'service'> {
  port: ServicePort;
}

/** The sum of all deadlines that one call of the port can wait for, twice: what exceeds it is a hung thread. */
function callDeadlineMs(own: Partial<Deadlines> | undefined): number {
  const { connectMs, sendMs, replyMs, closeMs, openMs } = { ...DEFAULT_DEADLINES, ...own };
  return 2 * (openMs * 2 + connectMs + 3 * (sendMs + replyMs) + closeMs);
}

async function spawn(name: string, module: URL, data: OpenEnvOptions | NemoGymOptions): Promise<SpawnedService> {
  const { service, stop, kill } = await spawnWorker<ServicePort>({
    name,
    module,
    methods: METHODS,
    data,
    callDeadlineMs: callDeadlineMs(data.deadlines),
  });
  return { port: service, stop, kill };
}

/** An OpenEnv client behind comlink. The caller must `stop()` it. */
export function spawnOpenEnv(options: OpenEnvOptions): Promise<SpawnedService> {
  return spawn('openenv-client', new URL('./openenv.worker.ts', import.meta.url), options);
}

/** A NeMo Gym client behind comlink. The caller must `stop()` it. */
export function spawnNemoGym(options: NemoGymOptions): Promise<SpawnedService> {
  return spawn('nemo-gym-client', new URL('./nemo-gym.worker.ts', import.meta.url), options);
}
