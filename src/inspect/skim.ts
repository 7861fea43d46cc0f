// The few facts of a rollout that a list shows, taken from its line without parsing the per-token arrays.
// Not a check of the record (read-episode.ts): a summary may be of a rollout that the audit refuses.
// Invariant: a line that is no episode gives a fault in words, never an exception.

/** One row of the rollout list. */
export interface EpisodeSummary {
  kind: 'episode';
  /** 1-based line of the file, and where its bytes lie. */
  line: number;
  offset: number;
  bytes: number;
  taskId: string;
  step: number;
  group: number;
  member: number;
  seed: number;
  policy: string;
  tokens: number;
  sampledTokens: number;
  turns: number;
  calls: number;
  /** Calls that were not dispatched, or that the environment answered with an error. */
  failedCalls: number;
  /** Some call could not be read: bad JSON, no such tool, not closed. */
  malformed: boolean;
  capped: boolean;
  strict: boolean | null;
  reward: number | null;
  answer: string | null;
  infrastructure: string | null;
}

export interface BrokenLine {
  kind: 'broken';
  line: number;
  offset: number;
  bytes: number;
  fault: string;
}

export type RolloutRow = EpisodeSummary | BrokenLine;

const encode = (text: string) => new TextEncoder().encode(text);
const idsKey = encode('"ids":[');
const turnsKey = encode('"turns":[');
const comma = 44;
const closing = 93;

/** Index of `wanted` in `bytes` at or after `from`, or -1. */
export function findBytes(bytes: Uint8Array, wanted: Uint8Array, from = 0): number {
  const first = wanted[0]!;
  for (let at = bytes.indexOf(first, from); at >= 0; at = bytes.indexOf(first, at + 1)) {
    let same = 1;
    while (same < wanted.length && bytes[at + same] === wanted[same]) same += 1;
    if (same === wanted.length) return at;
  }
  return -1;
}

/** The last index of `wanted` in `bytes`, or -1. */
function findLast(bytes: Uint8Array, wanted: Uint8Array): number {
  const first = wanted[0]!;
  for (let at = bytes.lastIndexOf(first); at >= 0; at = at === 0 ? -1 : bytes.lastIndexOf(first, at - 1)) {
    let same = 1;
    while (same < wanted.length && bytes[at + same] === wanted[same]) same += 1;
    if (same === wanted.length) return at;
  }
  return -1;
}

/**
 * A line as JSON with the arrays between `ids` and `turns` left out, and the number of ids. A quote inside a string is
 * escaped, so `"ids":[` with bare quotes is the key. Null where the line is spelled otherwise.
 */
function withoutArrays(line: Uint8Array): { text: string; tokens: number } | null {
  const ids = findBytes(line, idsKey);
  const turns = findLast(line, turnsKey);
  if (ids < 1 || turns < ids) return null;
  const start = ids + idsKey.length;
  const end = line.indexOf(closing, start);
  if (end < 0) return null;
  let tokens = end > start ? 1 : 0;
  for (let i = start; i < end; i++) if (line[i] === comma) tokens += 1;
  const decoder = new TextDecoder();
  return { text: decoder.decode(line.subarray(0, ids)) + decoder.decode(line.subarray(turns)), tokens };
}

interface Skimmed {
  schema?: unknown;
  taskId: string;
  step: number;
  group: number;
  member: number;
  seed: number;
  policy: string;
  turns: { span: [number, number]; calls: { status: string; environmentError: boolean }[] }[];
  capped: boolean;
  verdict: { strict: boolean; reward: number; answer: string | null } | null;
  infrastructure: string | null;
  ids?: number[];
}

/** The row of one line (without its newline). */
export function skimLine(line: Uint8Array, number: number, offset: number): RolloutRow {
  const place = { line: number, offset, bytes: line.length };
  try {
    const short = withoutArrays(line);
    const data = JSON.parse(short?.text ?? new TextDecoder().decode(line)) as Skimmed | null;
    if (data?.schema !== 'shaderl.episode/1') {
      const found = data === null || typeof data !== 'object' ? 'no object' : `schema ${JSON.stringify(data.schema)}`;
      return { kind: 'broken', ...place, fault: `found ${found}; wanted schema "shaderl.episode/1"` };
    }
    const calls = data.turns.flatMap((turn) => turn.calls);
    const { taskId, step, group, member, seed, policy, capped, verdict, infrastructure } = data;
    return {
      kind: 'episode',
      ...place,
      taskId,
      step,
      group,
      member,
      seed,
      policy,
      tokens: short?.tokens ?? data.ids?.length ?? 0,
      sampledTokens: data.turns.reduce((sum, { span }) => sum + span[1] - span[0], 0),
      turns: data.turns.length,
      calls: calls.length,
      failedCalls: calls.filter((call) => call.status !== 'ok' || call.environmentError).length,
      malformed: calls.some((call) => call.status !== 'ok'),
      capped,
      strict: verdict?.strict ?? null,
      reward: verdict?.reward ?? null,
      answer: verdict?.answer ?? null,
      infrastructure,
    };
  } catch (error) {
    return { kind: 'broken', ...place, fault: `found ${(error as Error).message}; wanted one rollout as JSON` };
  }
}
