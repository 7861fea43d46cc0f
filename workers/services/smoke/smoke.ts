// The smoke proof of a service: all checks, and the report whose bytes a plan pins. Not a training run. Invariant:
// the report is written whether or not the service passes; a check that throws has failed.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { PinnedIdentity } from '../../../src/experiment/service-facts.ts';
import { canonicalBytes } from '../../../src/lib/canonical-json.ts';
import { PlanError } from '../../../src/lib/errors.ts';
import { sha256Hex } from '../../../src/lib/sha256-node.ts';
import { createNodeStorage } from '../../../src/lib/storage-node.ts';
import type { Protocol } from '../german-service.ts';
import { type CheckOutcome, createContext } from './context.ts';
import { lossChecks } from './loss-checks.ts';
import { parityChecks } from './parity-checks.ts';
import { readIdentity, serviceChecks } from './service-checks.ts';

export interface SmokeReport {
  schema: 'shaderl.smoke/1';
  protocol: Protocol;
  url: string;
  service: PinnedIdentity;
  /** Versions of what made the proof. */
  client: Record<string, string>;
  concurrency: number;
  /** `always`: tools were called over MCP; absent: by their routes. */
  mcp?: 'always';
  checks: ({ name: string } & CheckOutcome)[];
  passed: boolean;
}

export interface SmokeOptions {
  protocol: Protocol;
  url: string;
  /** Sessions that must fit at once. */
  concurrency: number;
  /** NeMo Gym: whether tools are called over MCP; the German task's rows declare them, so that `auto` does not. */
  mcp?: 'auto' | 'always' | 'never';
  onCheck?: (name: string, outcome: CheckOutcome) => void;
}

const CHECKS = [...serviceChecks.slice(0, 2), ...parityChecks, ...serviceChecks.slice(2), ...lossChecks];

function clientVersions(): Record<string, string> {
  const { version } = JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8'));
  const require = createRequire(import.meta.url);
  const wsPackage = require('ws/package.json') as { version: string };
  return { shaderl: version, node: process.versions.node, ws: wsPackage.version };
}

/** Runs all checks. Rejects with EnvError only where the service does not answer at all. */
export async function proveService(options: SmokeOptions): Promise<SmokeReport> {
  const { protocol, url, concurrency, mcp, onCheck } = options;
  const context = createContext(protocol, url.replace(/\/+$/, ''), concurrency, mcp);
  const service = await readIdentity(context);
  const checks: SmokeReport['checks'] = [];
  for (const { name, run } of CHECKS) {
    const outcome = await run(context).catch(
      (error: unknown): CheckOutcome => ({
        ok: false,
        found: error instanceof Error ? error.message : String(error),
        wanted: 'a check that can be made',
      }),
    );
    checks.push({ name, ...outcome });
    onCheck?.(name, outcome);
  }
  const passed = checks.every(({ ok }) => ok);
  const client = clientVersions();
  const over = mcp === 'always' ? { mcp } : {};
  return {
    schema: 'shaderl.smoke/1',
    protocol,
    url: context.url,
    service,
    client,
    concurrency,
    ...over,
    checks,
    passed,
  };
}

/** The report's file in its folder. */
export const SMOKE_FILE = 'smoke.json';

/** Throws PlanError where the folder holds a proof already: a proof is never overwritten. */
export async function requireFreeFolder(folder: string): Promise<void> {
  if (!(await createNodeStorage(folder).exists(SMOKE_FILE))) return;
  throw new PlanError(
    'smoke-exists',
    `writing the smoke proof: found ${folder}/${SMOKE_FILE}; a folder without one is wanted. Choose another folder.`,
  );
}

/** Writes the report as canonical JSON and gives its SHA-256. Throws PlanError where the folder has one. */
export async function writeSmokeReport(folder: string, report: SmokeReport): Promise<string> {
  await requireFreeFolder(folder);
  const bytes = canonicalBytes(report);
  await createNodeStorage(folder).write(SMOKE_FILE, bytes);
  return sha256Hex(bytes);
}
