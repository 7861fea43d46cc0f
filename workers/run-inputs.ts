// What a run was given and keeps in its folder: the file of its tasks, and what is known of its service.
// Not the configuration, which is hashed as a whole. Invariant: the journal has each file's SHA-256 from the first line
// on; a run that resumes has the bytes that it was started with, or is refused before anything is changed.
import { TASKS_FILE } from '../src/audit-contexts.ts';
import { SERVICE_FILE, type ServiceFacts } from '../src/experiment/service-facts.ts';
import { canonicalBytes } from '../src/lib/canonical-json.ts';
import { PlanError } from '../src/lib/errors.ts';
import { sha256Hex } from '../src/lib/sha256-node.ts';
import type { Storage } from '../src/lib/storage.ts';

export interface RunInput {
  /** In the run's folder. */
  file: string;
  bytes: Uint8Array;
  sha256: string;
  /** Where it came from, for messages. */
  source: string;
  /** Of the refusal of other bytes. */
  code: string;
}

/** The file of a service's tasks. */
export const tasksInput = (bytes: Uint8Array, source: string): RunInput => ({
  file: TASKS_FILE,
  bytes,
  sha256: sha256Hex(bytes),
  source,
  code: 'other-tasks',
});

/** What is known of a service. */
export function serviceInput(facts: ServiceFacts): RunInput {
  const bytes = canonicalBytes(facts);
  return { file: SERVICE_FILE, bytes, sha256: sha256Hex(bytes), source: 'the service', code: 'service-changed' };
}

/** File -> SHA-256, as a journal has them among the run's versions. */
export const inputVersions = (inputs: readonly RunInput[]): Record<string, string> =>
  Object.fromEntries(inputs.map(({ file, sha256 }) => [file, sha256]));

/**
 * Writes the files of a run that begins; of one that resumes, compares them. `versions` are those of its run-start, null
 * for one that begins. Throws PlanError `other-tasks`, `service-changed`, `altered-input`.
 */
export async function keepInputs(
  storage: Storage,
  inputs: readonly RunInput[],
  versions: Readonly<Record<string, string>> | null,
): Promise<void> {
  for (const { file, bytes, sha256, source, code } of inputs) {
    if (versions === null) {
      await storage.write(file, bytes);
      continue;
    }
    const said = versions[file] ?? 'no such file';
    const kept = (await storage.exists(file)) ? sha256Hex(await storage.read(file)) : 'no such file';
    if (kept !== said) {
      const message = `resuming ${storage.label}: found ${file} in it with SHA-256 ${kept}; wanted ${said}, as the journal says. Restore the file; nothing of the run was changed.`;
      throw new PlanError('altered-input', message);
    }
    if (sha256 === said) continue;
    const message = `resuming ${storage.label}: found ${source} with SHA-256 ${sha256}; wanted ${said}, with which the run was started. Restore it (${file} in the folder of the run is a copy), then resume.`;
    throw new PlanError(code, message);
  }
}
