// What every stage is handed, the paths of what stages leave behind, and how a stage stops.
// Not a stage. Invariant: a stop is raised only where nothing is half written.
import type { ResolvedRunConfig } from '../run-config.ts';
import type { LoadedPlan } from './plan.ts';
import type { DeviceFacts, ExperimentPorts } from './ports.ts';

/** Raised at a safe point when the run is to stop; the driver closes the attempt. */
export class Stopped extends Error {
  readonly reason: 'asked' | 'budget';
  constructor(reason: 'asked' | 'budget') {
    super(`stopped: ${reason}`);
    this.reason = reason;
  }
}

export interface StageContext extends LoadedPlan {
  ports: ExperimentPorts;
  attempt: number;
  run: ResolvedRunConfig;
  /** Null when only the report is left. */
  device: { facts: DeviceFacts; qualification: string } | null;
  stopReason: () => 'asked' | 'budget' | null;
}

export interface StageResult {
  files: string[];
  facts: Record<string, string | number | boolean>;
}

export const EVIDENCE = {
  device: 'evidence/device-qualification.json',
  resume: 'evidence/resume-qualification.json',
  selection: 'selection.json',
  final: 'comparisons/final-agent.json',
  retention: 'comparisons/retention-math.json',
  recommendation: 'recommendation.json',
  inspection: 'language-inspection.json',
} as const;

/** Throws Stopped if the run is to stop now. */
export function stopHere({ stopReason }: StageContext): void {
  const reason = stopReason();
  if (reason !== null) throw new Stopped(reason);
}

export const utf8 = (value: string) => new TextEncoder().encode(value);
/** JSON for people and programs: two spaces, a final newline. */
export const jsonBytes = (value: unknown) => utf8(`${JSON.stringify(value, null, 2)}\n`);
