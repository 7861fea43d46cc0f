// What a service says of a finished session, as a Verdict.
// Not a scorer: no reward is made up here. Invariant: without a finite number there is no verdict but a fault, so that
// a broken service never looks like a policy that failed.
import { z } from 'zod';
import { canonicalJson } from '../../lib/canonical-json.ts';
import { type ServerLogEntry, serverLogEntry, type Verdict } from '../../rollout/episode.ts';
import { fault } from './faults.ts';

/** What a protocol client learnt from the service. Absent fields are filled by `assembleVerdict`. */
export interface ServiceVerdict {
  reward: number;
  strict?: boolean | undefined;
  parts?: Record<string, number> | undefined;
  toolErrors?: number | undefined;
  answer?: string | null | undefined;
  /** The service's own log of the session. */
  log?: ServerLogEntry[] | undefined;
}

/** Fields beside the reward that a service may send: the German services send all of them. */
export const verdictExtras = z.object({
  strict: z.boolean().optional(),
  parts: z.record(z.string(), z.number()).optional(),
  reward_components: z.record(z.string(), z.number()).optional(),
  tool_errors: z.int().optional(),
  answer: z.string().nullable().optional(),
  log: z.array(serverLogEntry).optional(),
});

/** The extras of a reply as fields of a ServiceVerdict. */
export function readExtras(doing: string, reply: unknown): Omit<ServiceVerdict, 'reward'> {
  const parsed = verdictExtras.safeParse(reply);
  if (!parsed.success) {
    const issue = parsed.error.issues[0]!;
    const found = `${issue.path.join('.')}: ${issue.message}`;
    throw fault('no-verdict', { doing, found, wanted: 'fields as documented in docs/environments.md' });
  }
  const { strict, parts, reward_components, tool_errors, answer, log } = parsed.data;
  return { strict, parts: parts ?? reward_components, toolErrors: tool_errors, answer, log };
}

/** A reward as a finite number; `true` and `false` count as 1 and 0 where the protocol allows them. */
export function readReward(doing: string, value: unknown, booleans: boolean): number {
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  if (booleans && typeof value === 'boolean') return value ? 1 : 0;
  const found = value === undefined ? 'no reward' : `reward ${JSON.stringify(value)}`;
  throw fault('no-verdict', { doing, found, wanted: 'a finite number' });
}

/** Whether two JSON texts have one value: services write arguments anew. */
function sameJson(a: string, b: string): boolean {
  if (a === b) return true;
  try {
    return canonicalJson(JSON.parse(a)) === canonicalJson(JSON.parse(b));
  } catch {
    return false;
  }
}

function differing(own: readonly ServerLogEntry[], theirs: readonly ServerLogEntry[]): string | null {
  for (let i = 0; i < Math.max(own.length, theirs.length); i++) {
    const [a, b] = [own[i], theirs[i]];
    if (!a || !b) return `the service's log has ${theirs.length} calls, the client made ${own.length}`;
    if (a.tool !== b.tool || !sameJson(a.argumentsJson, b.argumentsJson))
      return `call ${i} is ${b.tool} ${b.argumentsJson}`;
    if (a.observation !== b.observation || a.error !== b.error) return `the observation of call ${i} differs`;
  }
  return null;
}

/**
 * The verdict of a session. `own` are the calls that the client dispatched, with what it was answered. A service that
 * does not say whether an episode is a strict success is taken at its reward: `strictReward` or more. Throws the fault
 * `log-mismatch` when the service's log is another one: something was lost, doubled, shifted or forged.
 */
export function assembleVerdict(
  doing: string,
  service: ServiceVerdict,
  own: readonly ServerLogEntry[],
  invalidDispatches: number,
  strictReward: number,
): Verdict {
  const difference = service.log ? differing(own, service.log) : null;
  if (difference !== null) {
    throw fault('log-mismatch', { doing, found: difference, wanted: 'the calls and observations of this session' });
  }
  return {
    strict: service.strict ?? service.reward >= strictReward,
    reward: service.reward,
    parts: service.parts ?? {},
    invalidDispatches,
    toolErrors: service.toolErrors ?? own.filter((entry) => entry.error).length,
    answer: service.answer ?? null,
    log: own.map((entry) => ({ ...entry })),
  };
}
