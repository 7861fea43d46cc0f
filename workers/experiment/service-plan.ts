// The service of an arm: frozen and proven when a plan is made, started and recognised when it is run.
// Not the process (services/owned-service.ts) and not the checks (services/smoke/). Invariant: a run only ever speaks to
// the service that its plan proved; another one, or the same at another place, is refused before the first session.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import type { ServiceAddress, ServiceProtocolName } from '../../src/environments/service/choice.ts';
import type { Plan } from '../../src/experiment/plan.ts';
import {
  type PlanService,
  PROOF_FILE,
  requireProof,
  requireSameService,
  type ServiceSection,
} from '../../src/experiment/service.ts';
import { canonicalBytes } from '../../src/lib/canonical-json.ts';
import { PlanError } from '../../src/lib/errors.ts';
import { sha256Hex } from '../../src/lib/sha256-node.ts';
import { packageDifferences } from '../services/command-facts.ts';
import { openKnownService } from '../services/known-service.ts';
import { askIdentity, type LaunchedService, launchService } from '../services/launch.ts';
import { resolvedSection } from '../services/reference-command.ts';
import { proveService } from '../services/smoke/smoke.ts';

export interface FreezeServiceOptions {
  protocol: ServiceProtocolName;
  section: ServiceSection;
  /** The recipe's file: its folder is where a command runs that names no other. */
  recipe: string;
  /** smoke.json of `shaderl smoke-env`; without it the service is proven now. */
  proof?: string;
  onCheck?: (name: string) => void;
}

function readProof(file: string): Uint8Array {
  try {
    return readFileSync(file);
  } catch (error) {
    throw new PlanError(
      'unreadable-input',
      `freezing ${file}: found ${(error as Error).message}; wanted the smoke proof. Check --proof.`,
      { cause: error },
    );
  }
}

/** Starts or reaches the service, proves it, and gives what the plan pins. Throws PlanError and EnvError. */
export async function freezeService(
  options: FreezeServiceOptions,
): Promise<{ service: PlanService; proof: Uint8Array }> {
  const { protocol } = options;
  const section = resolvedSection(options.section, protocol);
  const cwd = resolve(dirname(options.recipe), section.cwd ?? '.');
  const given = options.proof === undefined ? null : readProof(options.proof);
  const folder = mkdtempSync(join(tmpdir(), 'shaderl-service-'));
  let launched: LaunchedService | null = null;
  try {
    const known = await openKnownService({ protocol, section, cwd, folder, name: 'prepare' });
    launched = known.service;
    const { address } = launched;
    const { identity } = known.facts;
    const concurrency = section.maxSessions;
    const onCheck = options.onCheck;
    const mcp = section.mcp === undefined ? {} : { mcp: section.mcp };
    const proof =
      given ??
      canonicalBytes(
        await proveService({ protocol, url: address.url, concurrency, ...mcp, ...(onCheck ? { onCheck } : {}) }),
      );
    const label = options.proof ?? `made now at ${address.url}`;
    const wanted = { protocol, url: section.url, sessions: section.maxSessions, mcp: section.mcp, identity };
    requireProof(new TextDecoder().decode(proof), label, wanted);
    const pinned = { path: PROOF_FILE, bytes: proof.length, sha256: sha256Hex(proof) };
    return { service: { ...known.facts, proof: pinned }, proof };
  } finally {
    await launched?.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Packages of the service's command that changed, as sentences. Contacts nothing. */
export function servicePackageChanges({ service }: Plan): string[] {
  if (!service?.owned) return [];
  const { command } = service.owned;
  const version = (value: string | null) => value ?? 'none';
  return packageDifferences(service.owned).map(
    ({ name, frozen, found }) =>
      `package ${name} of ${command[0]}: found version ${version(found)}; the plan froze ${version(frozen)}`,
  );
}

export interface RunningService {
  address: ServiceAddress;
  stop(): Promise<void>;
}

/**
 * Starts or reaches the plan's service and refuses another one. Files were compared with the rest of the plan before.
 * Throws PlanError `service-changed`, EnvError where it does not come up.
 */
export async function openPlanService(plan: Plan, folder: string, attempt: number): Promise<RunningService> {
  const { service, recipe } = plan;
  const label = `${folder}/plan.json`;
  if (!service) throw new Error(`opening the service of ${label}: arm ${plan.arm} has none`);
  const [changed] = servicePackageChanges(plan);
  if (changed !== undefined) {
    throw new PlanError(
      'service-changed',
      `checking ${label} against ${changed}. Restore that version, or prove the service and prepare a new plan.`,
    );
  }
  const { protocol, url, owned } = service;
  const launched = await launchService({
    protocol,
    section: recipe.service,
    url,
    start: owned,
    folder: join(folder, 'service'),
    name: `attempt-${String(attempt).padStart(6, '0')}`,
  });
  try {
    const { address } = launched;
    requireSameService(service, address.url, await askIdentity(address), label);
    return { address, stop: launched.stop };
  } catch (error) {
    await launched.stop();
    throw error;
  }
}
