// The service of a run on tasks of its own: pinned when the run begins, recognised whenever it is resumed.
// Not a plan's service (experiment/service-plan.ts), which is proven too. Invariant: a run goes on with the service that
// service.json in its folder names; another one, or the same at another place, is refused before the first session.
import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { requireRoom } from '../../src/environments/openenv/room.ts';
import type { ServiceProtocolName } from '../../src/environments/service/choice.ts';
import { DEFAULT_DEADLINES } from '../../src/environments/service/deadlines.ts';
import { nodeSocket } from '../../src/environments/service/socket-node.ts';
import type { OwnServiceSection } from '../../src/experiment/service.ts';
import {
  requireAnswers,
  requireExpectedAnswers,
  requireExpectedCommand,
  requirePlace,
  runWords,
  SERVICE_FILE,
  type ServiceFacts,
  serviceFacts,
} from '../../src/experiment/service-facts.ts';
import { PlanError } from '../../src/lib/errors.ts';
import { type KnownService, openKnownService } from './known-service.ts';
import { resolvedSection } from './reference-command.ts';

export interface RunServiceOptions {
  protocol: ServiceProtocolName;
  section: OwnServiceSection;
  /** Names the configuration in messages. */
  configFile: string;
  /** Folder of the run that is resumed; null begins a run. */
  resumed: string | null;
  /** Sessions that a step holds at once. */
  sessions: number;
  /** Folder for the service's logs, and their name. */
  folder: string;
  name: string;
}

/** What a run's folder pins; null where it has no service.json. Throws PlanError `bad-service-file`. */
function readPinned(folder: string): ServiceFacts | null {
  const file = join(folder, SERVICE_FILE);
  if (!existsSync(file)) return null;
  try {
    return serviceFacts.parse(JSON.parse(readFileSync(file, 'utf8')));
  } catch (error) {
    throw new PlanError(
      'bad-service-file',
      `resuming ${folder}: reading ${file}: found ${(error as Error).message.split('\n')[0]}; wanted the facts of the ` +
        'service that the run was started on. Restore the file: nothing else was changed.',
      { cause: error },
    );
  }
}

/**
 * Starts or reaches the service. Throws PlanError `relocated-service`, `service-changed`, `bad-service-file`; EnvError
 * where it does not come up, and `small-service` where it says that it holds fewer sessions (OpenEnv alone can say so).
 */
export async function openRunService(options: RunServiceOptions): Promise<KnownService> {
  const { protocol, configFile, resumed, folder, name } = options;
  const section = resolvedSection(options.section, protocol);
  const { identity: expected } = section;
  const pinned = resumed === null ? null : readPinned(resumed);
  const words = runWords(resumed ?? '');
  const known = await openKnownService({
    protocol,
    section,
    cwd: resolve(section.cwd ?? '.'),
    tasks: 'own',
    folder,
    name,
    before(place) {
      if (expected) requireExpectedCommand(expected, place.owned, configFile);
      if (pinned) requirePlace(pinned, place, words);
    },
  });
  try {
    const { facts, service } = known;
    if (expected) requireExpectedAnswers(expected, service.address.url, facts.identity, configFile);
    if (pinned) requireAnswers(pinned.identity, service.address.url, facts.identity, words);
    if (protocol === 'openenv') {
      const deadlines = { ...DEFAULT_DEADLINES, ...service.address.deadlines };
      await requireRoom(service.address.url, options.sessions, nodeSocket, deadlines);
    }
    return known;
  } catch (error) {
    await known.service.stop();
    throw error;
  }
}
