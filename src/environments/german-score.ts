// Scores a session of the German task: strict success and the shaped TRAIN reward, kept apart.
// Not a parser of transcripts: it sees the environment's own log and the final text, nothing that a policy can forge.
// Invariant: the shaped reward is 1 if and only if strict success holds.
import type { ServerLogEntry, Verdict } from '../rollout/episode.ts';
import { CALCULATOR_ARGUMENT, CALCULATOR_TOOL, LOOKUP_ARGUMENT, LOOKUP_TOOL, type Operation } from './german-data.ts';
import { parseExpression } from './german-expression.ts';
import type { GermanPayload } from './german-task.ts';

/** Shaped reward in twentieths; they sum to 20, so that 1 is exact. `strict` is the part that only strict success earns. */
export const REWARD_TWENTIETHS = {
  /** The final text ends in exactly one well-formed line `Antwort: <integer>`. */
  format: 2,
  /** The left operand was looked up without error. */
  lookupLeft: 2,
  lookupRight: 2,
  /** After both lookups the calculator computed the operation on the two looked-up values. */
  calculation: 5,
  /** The integer is right, however it was found. */
  answer: 5,
  strict: 4,
} as const;
export type RewardPart = keyof typeof REWARD_TWENTIETHS;

/** Right result of `operation` on two table values. */
export function resultOf(operation: Operation, left: number, right: number): number {
  if (operation === '+') return left + right;
  return operation === '-' ? left - right : left * right;
}

/**
 * The integer of the final line, as text, or null. The last line that is not blank must be exactly `Antwort: ` and an
 * integer without plus sign, leading zeros or separators (trailing white space is ignored); no other line may begin
 * with `Antwort:`, and an unclosed `<think>` means that there is no answer.
 */
export function readAnswer(finalText: string): string | null {
  if (finalText.includes('<think>')) return null;
  const lines = finalText.split('\n').map((line) => line.trimEnd());
  const last = lines.findLast((line) => line !== '');
  const match = /^Antwort: (0|-?[1-9][0-9]{0,14})$/.exec(last ?? '');
  const answers = lines.filter((line) => line.trimStart().startsWith('Antwort:'));
  return match && answers.length === 1 ? match[1]! : null;
}

function argumentOf(entry: ServerLogEntry, argument: string): string {
  // Entries without error have exactly this one string argument: the environment checked it before it logged.
  return (JSON.parse(entry.argumentsJson) as Record<string, string>)[argument]!;
}

/** Whether an expression is the operation on the two values as literals; + and * may swap them. */
function isTheCalculation(text: string, payload: GermanPayload): boolean {
  const node = parseExpression(text);
  if (node?.kind !== 'binary' || node.operator !== payload.operation) return false;
  if (node.left.kind !== 'literal' || node.right.kind !== 'literal') return false;
  const [a, b] = [payload.table[payload.left], payload.table[payload.right]];
  const [x, y] = [node.left.value, node.right.value];
  return (x === a && y === b) || (payload.operation !== '-' && x === b && y === a);
}

/**
 * The verdict on a session. Strict success: both operands looked up, then the calculation with the looked-up values,
 * no error reported by the environment, no invalid dispatch, and the right final integer.
 */
export function scoreSession(
  payload: GermanPayload,
  log: readonly ServerLogEntry[],
  finalText: string,
  invalidDispatches: number,
): Verdict {
  const lookedUp = (good: string): number =>
    log.findIndex((e) => !e.error && e.tool === LOOKUP_TOOL && argumentOf(e, LOOKUP_ARGUMENT) === good);
  const left = lookedUp(payload.left);
  const right = lookedUp(payload.right);
  const ready = left >= 0 && right >= 0 ? Math.max(left, right) : log.length;
  const calculation = log.some(
    (e, i) =>
      i > ready &&
      !e.error &&
      e.tool === CALCULATOR_TOOL &&
      isTheCalculation(argumentOf(e, CALCULATOR_ARGUMENT), payload),
  );
  const answer = readAnswer(finalText);
  const expected = resultOf(payload.operation, payload.table[payload.left], payload.table[payload.right]);
  const correct = answer !== null && Number(answer) === expected;
  const toolErrors = log.filter((e) => e.error).length;
  const strict = calculation && correct && toolErrors === 0 && invalidDispatches === 0;
  const earned: Record<RewardPart, boolean> = {
    format: answer !== null,
    lookupLeft: left >= 0,
    lookupRight: right >= 0,
    calculation,
    answer: correct,
    strict,
  };
  const parts: Record<string, number> = {};
  let twentieths = 0;
  for (const part of Object.keys(REWARD_TWENTIETHS) as RewardPart[]) {
    const points = earned[part] ? REWARD_TWENTIETHS[part] : 0;
    parts[part] = points / 20;
    twentieths += points;
  }
  return { strict, reward: twentieths / 20, parts, invalidDispatches, toolErrors, answer, log: [...log] };
}
