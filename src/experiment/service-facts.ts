// What is known of a service: where it is, what starts it, what it answers; and how two such findings differ.
// Not a process and not a client. Pure: opens nothing. Invariant: another service, an altered one and one at another
// place never count as the one that was pinned, and what differs first is named.
import { z } from 'zod';
import { SERVICE_PROTOCOLS, type ServiceProtocolName } from '../environments/service/choice.ts';
import { sha256Text } from '../journal-events.ts';
import { PlanError } from '../lib/errors.ts';

/** In the folder of a run on a service's own tasks: the facts of the service that it was started on. */
export const SERVICE_FILE = 'service.json';

/** Paths whose answers tell a service from another one. */
export const IDENTITY_PATHS: Readonly<Record<ServiceProtocolName, readonly string[]>> = {
  openenv: ['/health', '/metadata', '/schema'],
  'nemo-gym': ['/', '/reverify_mode', '/openapi.json'],
};

export const pinnedFile = z.strictObject({ path: z.string(), bytes: z.int().min(0), sha256: sha256Text });

const ownedCommand = z.strictObject({
  /** As it is run, with `{port}` where a port is filled in; the first member is an absolute path. */
  command: z.array(z.string()).min(1),
  cwd: z.string(),
  executable: pinnedFile,
  /** Files that the command or the recipe names, absolute paths. */
  files: z.array(pinnedFile),
  /** Name -> version: the interpreter, and the packages that it would load. */
  packages: z.record(z.string(), z.string()),
});
export type OwnedCommand = z.infer<typeof ownedCommand>;

export const serviceFacts = z.strictObject({
  protocol: z.enum(SERVICE_PROTOCOLS),
  /** With `{port}` if the port is chosen at each start. */
  url: z.string(),
  /** Null: somebody else keeps the service running. */
  owned: ownedCommand.nullable(),
  /** What it answered: path -> SHA-256 of `status body`, and its metadata. */
  identity: z.strictObject({ digests: z.record(z.string(), sha256Text), metadata: z.unknown() }),
});
export type ServiceFacts = z.infer<typeof serviceFacts>;
export type PinnedIdentity = ServiceFacts['identity'];
/** What can be told before anything is started or asked. */
export type ServicePlace = Omit<ServiceFacts, 'identity'>;

/** As people write it into a configuration. */
const writtenSha256 = z.string().regex(/^[0-9a-f]{64}$/, '64 lower-case hex digits, a SHA-256');

/** What a configuration expects of its service: what is left out may be anything. */
export const expectedService = z.strictObject({
  /** Path -> SHA-256 of `status body`, as service.json and smoke.json have them. */
  digests: z.record(z.string(), writtenSha256).optional(),
  /** SHA-256 of the executable of `command`. */
  executable: writtenSha256.optional(),
  /** Name -> version, as `command` would load them. */
  packages: z.record(z.string(), z.string()).optional(),
});
export type ExpectedService = z.infer<typeof expectedService>;

/** Rules of an expectation, as [key, value found, what was wanted]. */
export function expectationContradictions(
  { digests = {}, executable, packages }: ExpectedService,
  protocol: ServiceProtocolName,
  started: boolean,
): [string, unknown, string][] {
  const found: [string, unknown, string][] = [];
  const paths = IDENTITY_PATHS[protocol];
  for (const path of Object.keys(digests)) {
    if (!paths.includes(path)) found.push(['service.identity.digests', path, `one of ${paths.join(', ')}`]);
  }
  if (started) return found;
  if (executable !== undefined) found.push(['service.identity.executable', executable, 'service.command beside it']);
  if (packages !== undefined) found.push(['service.identity.packages', packages, 'service.command beside it']);
  return found;
}

/** The first path whose answer is another one. */
export function identityDifference(
  pinned: PinnedIdentity,
  found: PinnedIdentity,
): { path: string; pinned: string; found: string } | null {
  const paths = [...new Set([...Object.keys(pinned.digests), ...Object.keys(found.digests)])].sort();
  for (const path of paths) {
    const [was, is] = [pinned.digests[path] ?? 'nothing', found.digests[path] ?? 'nothing'];
    if (was !== is) return { path, pinned: was, found: is };
  }
  return null;
}

/** A package, or an interpreter, that is not at the frozen version any more; null stands for none. */
export interface PackageDifference {
  name: string;
  frozen: string | null;
  found: string | null;
}

export function versionDifferences(
  frozen: Readonly<Record<string, string>>,
  found: Readonly<Record<string, string>>,
): PackageDifference[] {
  return [...new Set([...Object.keys(frozen), ...Object.keys(found)])].sort().flatMap((name) => {
    const [was, is] = [frozen[name] ?? null, found[name] ?? null];
    return was === is ? [] : [{ name, frozen: was, found: is }];
  });
}

/** How a refusal speaks of what was pinned. */
export interface PinnedWords {
  /** The file that pins, as messages begin: `checking runs/a/service.json`. */
  doing: string;
  /** Before what was pinned: `the plan froze`, `wanted`. */
  wanted: string;
  remedy: string;
}

/** Refuses a service that answers otherwise than the pinned one did. `url` is where it was asked. */
export function requireAnswers(pinned: PinnedIdentity, url: string, found: PinnedIdentity, words: PinnedWords): void {
  const difference = identityDifference(pinned, found);
  if (!difference) return;
  const said = JSON.stringify(found.metadata).slice(0, 200);
  throw new PlanError(
    'service-changed',
    `${words.doing} against ${url}${difference.path}: found an answer with SHA-256 ${difference.found} ` +
      `(metadata ${said}); ${words.wanted} ${difference.pinned}. ${words.remedy}`,
  );
}

const REMEDY =
  'Nothing of the run was changed: bring that service back (an address that --env-url gave is given again), then ' +
  'resume; or start a new run in another output folder.';

/** The words of a run's service.json. `folder` is the run's. */
export const runWords = (folder: string): PinnedWords => ({
  doing: `resuming ${folder}: checking ${SERVICE_FILE}`,
  wanted: 'wanted, as when the run was started,',
  remedy: REMEDY,
});

/** What tells where a service is and how it is started, in the order in which it is compared. */
const PLACES: readonly [string, (place: ServicePlace) => string][] = [
  ['protocol', ({ protocol }) => protocol],
  ['the address', ({ url }) => url.replace(/\/+$/, '')],
  ['a command', ({ owned }) => (owned === null ? 'none' : JSON.stringify(owned.command))],
  ['its folder', ({ owned }) => owned?.cwd ?? 'none'],
];

/** Refuses a service at another place, or one that something else would start. Codes as `requireAnswers`, and `relocated-service`. */
export function requirePlace(pinned: ServicePlace, found: ServicePlace, words: PinnedWords): void {
  const refuse = (code: string, is: string, was: string) =>
    new PlanError(code, `${words.doing}: found ${is}; ${words.wanted} ${was}. ${words.remedy}`);
  for (const [what, of] of PLACES) {
    const [was, is] = [of(pinned), of(found)];
    if (was !== is) throw refuse('relocated-service', `${what} ${is}`, was);
  }
  if (pinned.owned === null || found.owned === null) return;
  const filesOf = ({ executable, files }: OwnedCommand) =>
    Object.fromEntries([executable, ...files].map(({ path, sha256 }) => [path, sha256]));
  const [file] = versionDifferences(filesOf(pinned.owned), filesOf(found.owned));
  if (file) {
    const is = file.found === null ? `no file ${file.name} that is named` : `${file.name} with SHA-256 ${file.found}`;
    throw refuse('service-changed', is, file.frozen ?? 'no such file');
  }
  requirePackages(pinned.owned.packages, found.owned, words);
}

function requirePackages(pinned: Readonly<Record<string, string>>, found: OwnedCommand, words: PinnedWords): void {
  const [difference] = versionDifferences(pinned, found.packages);
  if (!difference) return;
  const { name, found: is, frozen: was } = difference;
  throw new PlanError(
    'service-changed',
    `${words.doing}: found package ${name} of ${found.command[0]} at version ${is ?? 'none'}; ${words.wanted} ` +
      `${was ?? 'none'}. ${words.remedy}`,
  );
}

const only = <T>(record: Readonly<Record<string, T>>, names: readonly string[]): Record<string, T> =>
  Object.fromEntries(Object.entries(record).filter(([name]) => names.includes(name)));

/** The words of a configuration's `service.identity`. `file` is the configuration. */
const expectedWords = (file: string): PinnedWords => ({
  doing: `reading service.identity of ${file}`,
  wanted: 'wanted',
  remedy: 'Nothing was trained: give the run the service that is meant, or correct service.identity.',
});

/** Refuses a command that is not the expected one, before it is started. Throws PlanError `service-changed`. */
export function requireExpectedCommand(
  { executable, packages }: ExpectedService,
  found: OwnedCommand | null,
  file: string,
): void {
  const words = expectedWords(file);
  if (found === null) {
    if (executable === undefined && packages === undefined) return;
    const message = `${words.doing}: found a service that is not started by the run, whose executable and packages nobody can tell; wanted service.command. Leave --env-url out, or leave executable and packages out.`;
    throw new PlanError('service-changed', message);
  }
  if (executable !== undefined && executable !== found.executable.sha256) {
    const { path, sha256 } = found.executable;
    const message = `${words.doing}: found ${path} with SHA-256 ${sha256}; ${words.wanted} ${executable}. ${words.remedy}`;
    throw new PlanError('service-changed', message);
  }
  if (packages) requirePackages(packages, { ...found, packages: only(found.packages, Object.keys(packages)) }, words);
}

/** Refuses answers that are not the expected ones. Throws PlanError `service-changed`. */
export function requireExpectedAnswers(
  expected: ExpectedService,
  url: string,
  found: PinnedIdentity,
  file: string,
): void {
  const digests = expected.digests ?? {};
  const { metadata } = found;
  const asked = { digests: only(found.digests, Object.keys(digests)), metadata };
  requireAnswers({ digests, metadata }, url, asked, expectedWords(file));
}
