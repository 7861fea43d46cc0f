// The service that an arm's environment is: what a recipe says of it, and what a plan pins of it.
// Not a process and not a client. Pure: opens nothing. Invariant: what is pinned is enough to tell another service, an
// altered one and one at another place from the one that was proven.
import { z } from 'zod';
import { type ClientOptions, SERVICE_PROTOCOLS, type ServiceProtocolName } from '../environments/service/choice.ts';
import { sha256Text } from '../journal-events.ts';
import { PlanError } from '../lib/errors.ts';
import {
  expectationContradictions,
  expectedService,
  identityDifference,
  type PinnedIdentity,
  pinnedFile,
  requireAnswers,
  serviceFacts,
} from './service-facts.ts';

/** Stands for a free port that is chosen whenever the service is started. */
export const PORT = '{port}';
/** Copy of the smoke proof in the plan's folder. */
export const PROOF_FILE = 'proof/smoke.json';

const milliseconds = z.number().gt(0);
const seconds = z.number().gt(0).max(3600);

export const serviceSection = z.strictObject({
  /** http(s)://host:port; with `command`, where it will listen, and null is `http://127.0.0.1:{port}`. */
  url: z.string().nullable().default(null),
  /** Starts the service: an argument vector, without a shell. `url` and this null: the program's reference service. */
  command: z.array(z.string().min(1)).min(1).nullable().default(null),
  /** Where the command runs; null is the folder of the recipe. */
  cwd: z.string().min(1).nullable().default(null),
  /** Further files whose bytes a plan pins, e.g. the service's source. Those that the command names are pinned anyway. */
  files: z.array(z.string().min(1)).default([]),
  /** Answers 200 as soon as the service can be used; null is what the protocol has for it. */
  healthPath: z.string().startsWith('/').nullable().default(null),
  healthDeadlineSeconds: seconds.default(60),
  /** Between SIGTERM and SIGKILL. */
  stopDeadlineSeconds: seconds.default(10),
  /** Sessions at once: all rollouts of a step must have one each. */
  maxSessions: z.int().min(1).max(1024).default(32),
  /** Milliseconds; what is left out is as in docs/environments.md. */
  deadlines: z
    .strictObject({
      connectMs: milliseconds.optional(),
      sendMs: milliseconds.optional(),
      replyMs: milliseconds.optional(),
      closeMs: milliseconds.optional(),
      openMs: milliseconds.optional(),
    })
    .prefault({}),
  /** NeMo Gym: tools over MCP where the server offers them; left out is `auto`, for rows without tools of their own. */
  mcp: z.enum(['auto', 'always', 'never']).optional(),
});
export type ServiceSection = z.infer<typeof serviceSection>;

/** A service with tasks of its own: what a run configuration says of it. */
export const ownServiceSection = serviceSection.extend({
  /** NeMo Gym: `resources` (seed_session, tools, verify), which left out is meant, or `gymnasium` (reset, step). */
  style: z.enum(['resources', 'gymnasium']).optional(),
  /** NeMo Gym: whether /close_session is called; left out: where seeding named a session. */
  closeSession: z.boolean().optional(),
  /** OpenEnv: the reward of an episode is its steps' last one, or their sum; left out is `last`. */
  rewardRule: z.enum(['last', 'sum']).optional(),
  /** OpenEnv: the reward of a policy that took no step; left out: such a rollout is masked. */
  rewardWithoutSteps: z.number().optional(),
  /** OpenEnv: a hidden tool of an MCP environment that scores the session when it is called with the final text. */
  verdictTool: z.string().min(1).optional(),
  /** Reward from which an episode is a strict success where the service does not say; left out is 1. */
  strictReward: z.number().optional(),
  /** What the service must be for the run to begin; left out: any service is taken, and pinned as it is found. */
  identity: expectedService.optional(),
});
export type OwnServiceSection = z.infer<typeof ownServiceSection>;

const CLIENT_KEYS = [
  'mcp',
  'style',
  'closeSession',
  'rewardRule',
  'rewardWithoutSteps',
  'verdictTool',
  'strictReward',
] as const;
/** Keys that mean nothing to the other protocol. */
const KEYS_OF: Record<ServiceProtocolName, readonly (typeof CLIENT_KEYS)[number][]> = {
  'nemo-gym': ['mcp', 'style', 'closeSession'],
  openenv: ['rewardRule', 'rewardWithoutSteps', 'verdictTool'],
};

/** What a section says of the client; `tasks` is not the section's. */
export function clientOptions(
  section: ServiceSection | OwnServiceSection,
  tasks: ClientOptions['tasks'],
): ClientOptions {
  const said = CLIENT_KEYS.map((key) => [key, (section as OwnServiceSection)[key]] as const);
  return { tasks, ...Object.fromEntries(said.filter(([, value]) => value !== undefined)) };
}

/** Rules of a service with tasks of its own, as those of `serviceContradictions`. */
export function ownServiceContradictions(
  section: OwnServiceSection,
  protocol: ServiceProtocolName,
  sessions: number,
): [string, unknown, string][] {
  const found = serviceContradictions(section);
  if (section.url === null && section.command === null) {
    found.push(['service.url', null, 'the address of the service, or service.command, which starts it']);
  }
  if (section.identity) found.push(...expectationContradictions(section.identity, protocol, section.command !== null));
  const other = protocol === 'openenv' ? 'nemo-gym' : 'openenv';
  for (const key of KEYS_OF[other]) {
    if (section[key] !== undefined) found.push([`service.${key}`, section[key], `none: it is of protocol ${other}`]);
  }
  if (section.maxSessions < sessions) {
    const wanted = `at least ${sessions}, grpo.groupSize * grpo.groupsPerStep: each rollout of a step holds a session`;
    found.push(['service.maxSessions', section.maxSessions, wanted]);
  }
  return found;
}

export const planService = serviceFacts.extend({
  /** Bytes of the smoke proof, copied into the plan's folder. */
  proof: pinnedFile,
});
export type PlanService = z.infer<typeof planService>;

/** Rules between fields, as [key, value found, what was wanted]. */
export function serviceContradictions({ url, command, cwd, files }: ServiceSection): [string, unknown, string][] {
  const found: [string, unknown, string][] = [];
  const plain = url?.replace(PORT, '1') ?? 'http://h:1';
  if (!/^https?:\/\/[^/?#@]+\/?$/.test(plain) || !URL.canParse(plain)) {
    found.push(['service.url', url, 'http(s)://host:port and nothing after it']);
  }
  const asks = command?.some((word) => word.includes(PORT)) ?? false;
  if (command && (url === null || url.includes(PORT)) && !asks) {
    found.push([
      'service.command',
      command,
      `${PORT} in one of its words, or the port that it listens on in service.url`,
    ]);
  }
  if (command && url !== null && !url.includes(PORT) && asks) {
    found.push(['service.url', url, `${PORT} in it, as in service.command`]);
  }
  if (!command && url?.includes(PORT)) found.push(['service.url', url, 'a port, as nothing is started']);
  if (!command && cwd !== null) found.push(['service.cwd', cwd, 'service.command beside it']);
  if (!command && files.length > 0) found.push(['service.files', files, 'service.command beside it']);
  return found;
}

/** The address with its port filled in. */
export const withPort = (text: string, port: number | null) =>
  port === null ? text : text.replaceAll(PORT, String(port));

/** Proofs name these checks, and at least so many in all. */
const LEAST_CHECKS = 12;
const NEEDED = [
  'service-identity',
  'reset-isolation',
  'concurrency',
  'tool-parity',
  'replay-parity',
  'strict-score-parity',
  'forged-history',
  'verify-once',
  'loss-of-service',
];

const proofSchema = z.looseObject({
  schema: z.literal('shaderl.smoke/1'),
  protocol: z.enum(SERVICE_PROTOCOLS),
  url: z.string(),
  service: z.strictObject({ digests: z.record(z.string(), sha256Text), metadata: z.unknown() }),
  concurrency: z.int(),
  mcp: z.literal('always').optional(),
  checks: z.array(z.looseObject({ name: z.string(), ok: z.boolean() })),
  passed: z.boolean(),
});

export interface ProofWanted {
  protocol: ServiceProtocolName;
  /** As in the plan. */
  url: string;
  sessions: number;
  /** As in the recipe. */
  mcp?: ServiceSection['mcp'] | undefined;
  identity: PinnedIdentity;
}

/** An address up to its port, where the port is chosen at each start. */
function placeOf(url: string, anyPort: boolean): string {
  const { protocol, hostname, host } = new URL(url.replace(PORT, '1'));
  return `${protocol}//${anyPort ? hostname : host}`;
}

/**
 * Refuses a smoke proof that is not a completed one of this very service. `label` names the file. Throws PlanError
 * `bad-proof`, `failed-proof`, `relocated-service`, `other-proof`, `small-proof`.
 */
export function requireProof(text: string, label: string, wanted: ProofWanted): void {
  const refuse = (code: string, found: string, want: string, remedy: string) =>
    new PlanError(code, `reading the smoke proof ${label}: found ${found}; wanted ${want}. ${remedy}`);
  const always = wanted.mcp === 'always' ? ' --mcp always' : '';
  const again = `Prove the service with \`shaderl smoke-env --protocol ${wanted.protocol} --url ${wanted.url}${always}\`.`;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw refuse('bad-proof', (error as Error).message, 'a shaderl.smoke/1 file', again);
  }
  const parsed = proofSchema.safeParse(value);
  if (!parsed.success) {
    const issue = parsed.error.issues[0]!;
    throw refuse('bad-proof', `${issue.path.join('.')}: ${issue.message}`, 'a shaderl.smoke/1 file', again);
  }
  const { protocol, url, service, concurrency, mcp, checks, passed } = parsed.data;
  if (protocol !== wanted.protocol) throw refuse('other-proof', `protocol ${protocol}`, wanted.protocol, again);
  const [over, meant] = [mcp, wanted.mcp].map((when) => (when === 'always' ? 'over MCP' : 'by their routes'));
  if (over !== meant)
    throw refuse('other-proof', `tools called ${over}`, `tools called ${meant}, as service.mcp says`, again);
  const failed = checks.find(({ ok }) => !ok);
  if (failed || !passed) throw refuse('failed-proof', `check ${failed?.name} failed`, 'no failed check', again);
  const names = new Set(checks.map(({ name }) => name));
  const missing = NEEDED.find((name) => !names.has(name));
  if (missing !== undefined || names.size < LEAST_CHECKS) {
    const what = missing === undefined ? `${names.size} checks` : `no check ${missing}`;
    throw refuse('bad-proof', what, `at least ${LEAST_CHECKS} checks, ${NEEDED.join(', ')} among them`, again);
  }
  const anyPort = wanted.url.includes(PORT);
  if (placeOf(url, anyPort) !== placeOf(wanted.url, anyPort)) {
    throw refuse(
      'relocated-service',
      `a proof of ${url}`,
      wanted.url,
      `A service elsewhere needs a new proof. ${again}`,
    );
  }
  if (concurrency < wanted.sessions) {
    const want = `at least service.maxSessions, ${wanted.sessions}`;
    throw refuse(
      'small-proof',
      `${concurrency} sessions at once`,
      want,
      `Give smoke-env --concurrency ${wanted.sessions}.`,
    );
  }
  const difference = identityDifference(wanted.identity, service);
  if (difference) {
    const { path, found, pinned } = difference;
    throw refuse('other-proof', `${path} with SHA-256 ${found}`, `${pinned}, as the service answers now`, again);
  }
}

/** Refuses a service that is not the pinned one. Throws PlanError `service-changed`. */
export function requireSameService(service: PlanService, url: string, found: PinnedIdentity, label: string): void {
  requireAnswers(service.identity, url, found, {
    doing: `checking ${label}`,
    wanted: 'the plan froze',
    remedy: 'This is not the service that was proven: start that one, or prove this one and prepare a new plan.',
  });
}
