// What an experiment's device is, as facts that must not change between attempts.
// Not a qualification of kernels. Invariant: every fact that differs is named with both values.
import type { KernelFamily } from '../gpu/device.ts';
import { DeviceError } from '../lib/errors.ts';

/** Prefix of a device's facts among the facts of the preflight stage. */
export const DEVICE_PREFIX = 'device.';

/** The facts as the preflight journals them. */
export function deviceFacts(facts: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(facts).map(([name, value]) => [`${DEVICE_PREFIX}${name}`, value]));
}

/** Refuses another device than the one of the preflight. Throws DeviceError `other-device`. */
export function requireSameDevice(
  preflight: Readonly<Record<string, unknown>>,
  present: Readonly<Record<string, string>>,
  label: string,
): void {
  const was = Object.entries(preflight).filter(([name]) => name.startsWith(DEVICE_PREFIX));
  const now = new Map(Object.entries(deviceFacts(present)));
  const differing = was.filter(([name, value]) => now.get(name) !== value);
  if (differing.length === 0 && was.length === now.size) return;
  const [name, value] = differing[0] ?? ['device', `${was.length} facts`];
  throw new DeviceError(
    'other-device',
    `resuming ${label}: found ${name.slice(DEVICE_PREFIX.length)} ${now.get(name) ?? 'unknown'}; this experiment was ` +
      `qualified with ${value}. A qualification serves one device, driver, version and kernel family: go on where it ` +
      'began, or prepare a new plan.',
  );
}

/**
 * Refuses a kernel family that the adapter does not have, before one of its shaders fails to compile. `state` says
 * whether the adapter has it and why not; `label` names the experiment. Throws DeviceError `family-unavailable`.
 */
export function requirePlanFamily(
  family: KernelFamily,
  state: { available: boolean; reason: string },
  adapter: string,
  label: string,
): void {
  if (state.available) return;
  throw new DeviceError(
    'family-unavailable',
    `running ${label}/plan.json: found the adapter ${adapter}, and ${state.reason}; the plan froze the kernel family ` +
      `${family}. Run it on a device that has the family, or prepare a plan whose recipe names another.`,
  );
}
