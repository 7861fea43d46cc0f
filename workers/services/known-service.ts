// A service that is known before it is used: what starts it is frozen, then it is started or reached and asked who it is.
// Not a proof (smoke/) and not a decision: those who open it say what is refused. Invariant: what was started here is
// ended by the returned service or by the failure.
import type { ClientOptions, ServiceProtocolName } from '../../src/environments/service/choice.ts';
import type { OwnServiceSection, ServiceSection } from '../../src/experiment/service.ts';
import type { ServiceFacts, ServicePlace } from '../../src/experiment/service-facts.ts';
import { freezeCommand } from './command-facts.ts';
import { askIdentity, type LaunchedService, launchService } from './launch.ts';

export interface KnownServiceOptions {
  protocol: ServiceProtocolName;
  /** With its address: `resolvedSection`. */
  section: (ServiceSection | OwnServiceSection) & { url: string };
  /** Folder that the command runs in, absolute. */
  cwd: string;
  /** The German task's by default. */
  tasks?: ClientOptions['tasks'];
  /** Folder for the logs, and their name. */
  folder: string;
  name: string;
  /** Called before anything is started or asked; what it throws is the outcome. */
  before?: (place: ServicePlace) => void;
}

export interface KnownService {
  service: LaunchedService;
  facts: ServiceFacts;
}

/** Throws PlanError as `freezeCommand` does, and EnvError where the service does not come up or does not answer. */
export async function openKnownService(options: KnownServiceOptions): Promise<KnownService> {
  const { protocol, section, cwd, before, ...rest } = options;
  const { url } = section;
  const owned = section.command === null ? null : await freezeCommand(section.command, cwd, section.files);
  const place = { protocol, url, owned };
  before?.(place);
  const service = await launchService({ protocol, section, url, start: owned, ...rest });
  try {
    return { service, facts: { ...place, identity: await askIdentity(service.address) } };
  } catch (error) {
    await service.stop();
    throw error;
  }
}
