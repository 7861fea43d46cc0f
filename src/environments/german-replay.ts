// An independent replayer of German lookup/calculator episodes: a second implementation of the tools and the score.
// Not a reuse: it shares no code with the environment (types and schemas apart), reads the task's payload by itself,
// runs expressions on a shunting-yard stack machine and scores in one pass over the calls.
// Invariant: it takes no recorded observation as true; every difference is reported, and the caller must stop the run.
import type { ServerLogEntry, Verdict } from '../rollout/episode.ts';
import type { Task } from './port.ts';

/** One dispatched call as recorded by a rollout. */
export interface RecordedCall {
  tool: string;
  argumentsJson: string;
  observation: string;
}

export interface Replay {
  /** What the environment must have answered, call by call. */
  observations: string[];
  verdict: Verdict;
  /** Sentences that name what is recorded and what the replay found; empty if all agrees. */
  differences: string[];
}

const TOO_MANY_CALLS = 64;
const LONGEST_ARGUMENTS = 1000;
const LONGEST_EXPRESSION = 64;
const LARGEST = 9_999_999n;

interface Facts {
  table: Map<string, bigint>;
  goods: readonly [string, string];
  operation: string;
}

/** Reads the payload without the environment's schema; `difference` if something that the replay needs is missing. */
function readFacts(task: Task): Facts | { difference: string } {
  const payload = task.payload;
  const { left, right, operation, table } = payload as Record<string, unknown>;
  if (typeof left !== 'string' || typeof right !== 'string' || typeof operation !== 'string') {
    return { difference: `task ${task.id}: payload lacks left, right or operation` };
  }
  const values = new Map<string, bigint>();
  for (const [good, value] of Object.entries((table ?? {}) as Record<string, unknown>)) {
    if (!Number.isSafeInteger(value)) return { difference: `task ${task.id}: the value of ${good} is no integer` };
    values.set(good, BigInt(value as number));
  }
  if (!values.has(left) || !values.has(right) || !/^[-+*]$/.test(operation)) {
    return { difference: `task ${task.id}: the table lacks an operand, or operation "${operation}" is unknown` };
  }
  return { table: values, goods: [left, right], operation };
}

type Code = { push: bigint } | { apply: string };

const PRECEDENCE: Readonly<Record<string, number>> = { '+': 1, '-': 1, '*': 2, '/': 2, neg: 3 };

/** Reverse Polish code of an expression by the shunting-yard algorithm, or null where the text is no expression. */
function compile(text: string): Code[] | null {
  const tokens = text.match(/[0-9]+|[-+*/()]| +|[\s\S]/g) ?? [];
  const code: Code[] = [];
  const pending: string[] = [];
  let operandExpected = true;
  let afterSign = false;
  for (const token of tokens) {
    if (/^ +$/.test(token)) continue;
    if (operandExpected) {
      if (/^[0-9]+$/.test(token)) {
        code.push({ push: BigInt(token) });
        operandExpected = false;
      } else if (token === '(') pending.push(token);
      else if (token === '-' && !afterSign) pending.push('neg');
      else return null;
      afterSign = token === '-';
    } else if (token === ')') {
      let top = pending.pop();
      for (; top !== undefined && top !== '('; top = pending.pop()) code.push({ apply: top });
      if (top === undefined) return null;
    } else if (/^[-+*/]$/.test(token)) {
      while (pending.length > 0 && (PRECEDENCE[pending.at(-1)!] ?? 0) >= PRECEDENCE[token]!) {
        code.push({ apply: pending.pop()! });
      }
      pending.push(token);
      operandExpected = true;
      afterSign = false;
    } else return null;
  }
  if (operandExpected) return null;
  for (let top = pending.pop(); top !== undefined; top = pending.pop()) {
    if (top === '(') return null;
    code.push({ apply: top });
  }
  return code;
}

/** Runs compiled code on a stack of big integers; a string is the environment's complaint. */
function execute(code: readonly Code[]): bigint | string {
  const stack: bigint[] = [];
  for (const step of code) {
    let result: bigint;
    if ('push' in step) result = step.push;
    else if (step.apply === 'neg') result = -stack.pop()!;
    else {
      const b = stack.pop()!;
      const a = stack.pop()!;
      if (step.apply === '/') {
        if (b === 0n) return 'Fehler: Division durch null';
        if (a % b !== 0n) return 'Fehler: Division mit Rest';
        result = a / b;
      } else result = step.apply === '+' ? a + b : step.apply === '-' ? a - b : a * b;
    }
    if (result > LARGEST || result < -LARGEST) return 'Fehler: Zahl zu groß';
    stack.push(result);
  }
  return stack.pop()!;
}

/** The call's only argument if it has the wanted name and is a string. */
function onlyArgument(argumentsJson: string, wanted: string): string | undefined {
  if (argumentsJson.length > LONGEST_ARGUMENTS) return undefined;
  try {
    const value = JSON.parse(argumentsJson);
    const names = Object.keys(value);
    const right = Object.getPrototypeOf(value) === Object.prototype && names.length === 1 && names[0] === wanted;
    return right && typeof value[wanted] === 'string' ? value[wanted] : undefined;
  } catch {
    return undefined;
  }
}

interface Step {
  content: string;
  error: boolean;
  /** The good of a successful lookup. */
  good?: string;
  /** The code of a successful calculation. */
  code?: Code[];
}

const failed = (content: string): Step => ({ content, error: true });

function redo(facts: Facts, tool: string, argumentsJson: string): Step {
  if (tool !== 'nachschlagen' && tool !== 'rechner') return failed('Fehler: unbekanntes Werkzeug');
  const argument = onlyArgument(argumentsJson, tool === 'rechner' ? 'ausdruck' : 'schluessel');
  if (argument === undefined) return failed('Fehler: ungültige Argumente');
  if (tool === 'nachschlagen') {
    const value = facts.table.get(argument);
    return value === undefined
      ? failed('Fehler: unbekannter Schlüssel')
      : { content: value.toString(), error: false, good: argument };
  }
  if (argument.length > LONGEST_EXPRESSION) return failed('Fehler: Ausdruck zu lang');
  const code = compile(argument);
  if (code === null) return failed('Fehler: ungültiger Ausdruck');
  const result = execute(code);
  return typeof result === 'string' ? failed(result) : { content: result.toString(), error: false, code };
}

/** Whether the code is `value value operation` on the two operands, in order unless the operation commutes. */
function isWantedCalculation(facts: Facts, code: readonly Code[]): boolean {
  const [first, second, last] = code;
  if (code.length !== 3 || !last || !('apply' in last) || last.apply !== facts.operation) return false;
  if (!first || !second || !('push' in first) || !('push' in second)) return false;
  const found = `${first.push},${second.push}`;
  const [a, b] = [facts.table.get(facts.goods[0]), facts.table.get(facts.goods[1])];
  return found === `${a},${b}` || (facts.operation !== '-' && found === `${b},${a}`);
}

/** The final line's integer as text, or null: read backwards over the text by index, without the environment's regex. */
function finalInteger(text: string): string | null {
  if (text.indexOf('<think>') !== -1) return null;
  const body = text.trimEnd();
  const line = body.slice(body.lastIndexOf('\n') + 1);
  const label = 'Antwort: ';
  if (!line.startsWith(label)) return null;
  if (body.split('\n').filter((other) => other.trim().startsWith('Antwort:')).length > 1) return null;
  const digits = line.slice(label.length);
  const magnitude = digits.startsWith('-') ? digits.slice(1) : digits;
  const onlyDigits = magnitude !== '' && [...magnitude].every((c) => '0123456789'.includes(c));
  if (!onlyDigits || magnitude.length > 15) return null;
  // A canonical integer survives the round trip: "007", "-0" and "+5" do not.
  return BigInt(digits).toString() === digits ? digits : null;
}

/**
 * Replays one episode: `calls` are the dispatched calls in the order of the environment's log. Differences cover each
 * recorded observation and, where `recorded` is given, every field of the verdict. Throws nothing on bad input: an
 * unreadable task is a difference with a verdict of zero.
 */
export function replayEpisode(
  task: Task,
  calls: readonly RecordedCall[],
  finalText: string,
  invalidDispatches: number,
  recorded?: Verdict,
): Replay {
  const differences: string[] = [];
  const observations: string[] = [];
  const log: ServerLogEntry[] = [];
  const found = readFacts(task);
  const facts = 'difference' in found ? null : found;
  if ('difference' in found) differences.push(found.difference);

  const seen = new Set<string>();
  let calculated = false;
  let toolErrors = 0;
  for (const [index, { tool, argumentsJson, observation }] of calls.entries()) {
    if (facts === null) break;
    const step = index < TOO_MANY_CALLS ? redo(facts, tool, argumentsJson) : failed('Fehler: zu viele Aufrufe');
    observations.push(step.content);
    log.push({ index, tool, argumentsJson, observation: step.content, error: step.error });
    if (observation !== step.content) {
      differences.push(
        `call ${index} (${tool} ${argumentsJson}): recorded observation "${observation}", replayed "${step.content}"`,
      );
    }
    if (step.error) toolErrors++;
    if (step.good !== undefined) seen.add(step.good);
    if (step.code && facts.goods.every((good) => seen.has(good)) && isWantedCalculation(facts, step.code)) {
      calculated = true;
    }
  }

  const answer = finalInteger(finalText);
  let correct = false;
  if (facts !== null && answer !== null) {
    const [a, b] = facts.goods.map((good) => facts.table.get(good)!) as [bigint, bigint];
    correct = BigInt(answer) === (facts.operation === '+' ? a + b : facts.operation === '-' ? a - b : a * b);
  }
  const strict = calculated && correct && toolErrors + invalidDispatches === 0;
  const points = {
    format: answer === null ? 0 : 10,
    lookupLeft: facts !== null && seen.has(facts.goods[0]) ? 10 : 0,
    lookupRight: facts !== null && seen.has(facts.goods[1]) ? 10 : 0,
    calculation: calculated ? 25 : 0,
    answer: correct ? 25 : 0,
    strict: strict ? 20 : 0,
  };
  const reward = Object.values(points).reduce((sum, n) => sum + n, 0) / 100;
  const parts = Object.fromEntries(Object.entries(points).map(([part, n]) => [part, n / 100]));
  const verdict: Verdict = { strict, reward, parts, invalidDispatches, toolErrors, answer, log };
  if (recorded) differences.push(...verdictDifferences(recorded, verdict));
  return { observations, verdict, differences };
}

function verdictDifferences(recorded: Verdict, replayed: Verdict): string[] {
  const differences: string[] = [];
  const compare = (what: string, a: unknown, b: unknown): void => {
    if (!Object.is(a, b)) {
      differences.push(
        `${what}: recorded ${JSON.stringify(a) ?? 'nothing'}, replayed ${JSON.stringify(b) ?? 'nothing'}`,
      );
    }
  };
  for (const field of ['strict', 'reward', 'invalidDispatches', 'toolErrors', 'answer'] as const) {
    compare(field, recorded[field], replayed[field]);
  }
  for (const part of new Set([...Object.keys(recorded.parts), ...Object.keys(replayed.parts)])) {
    compare(`parts.${part}`, recorded.parts[part], replayed.parts[part]);
  }
  compare('log length', recorded.log.length, replayed.log.length);
  for (const [i, entry] of replayed.log.entries()) {
    const other = recorded.log[i];
    if (other === undefined) break;
    for (const field of ['index', 'tool', 'argumentsJson', 'observation', 'error'] as const) {
      compare(`log[${i}].${field}`, other[field], entry[field]);
    }
  }
  return differences;
}
