// A scripted expert of the German task, and its imperfect variants: transcripts to fine-tune a small policy on.
// Not a model, and no score: an imperfect transcript fails in a way that reinforcement learning can unlearn.
// Invariant: every observation in a transcript is what the environment itself would answer to that call.
import { PlanError } from '../lib/errors.ts';
import { streamWords, uniform24 } from '../lib/rng.ts';
import {
  CALCULATOR_ARGUMENT,
  CALCULATOR_TOOL,
  LOOKUP_ARGUMENT,
  LOOKUP_TOOL,
  MAX_VALUE,
  MIN_VALUE,
  OPERATIONS,
  type Operation,
} from './german-data.ts';
import { resultOf } from './german-score.ts';
import { readPayload } from './german-task.ts';
import { runTool } from './german-tools.ts';
import type { Task } from './port.ts';

/** Systematic mistakes, in the order of their place in an episode. */
export const MISTAKES = [
  /** Answers at once with a guess. */
  'no-tools',
  /** Calculates with made-up values and never looks anything up. */
  'calculates-first',
  /** Looks up the left good only and makes the other value up. */
  'one-lookup',
  /** The first turn's only call is no JSON (its last brace is missing); then goes on as the expert. */
  'malformed-call',
  /** The first turn calls a tool that does not exist; then goes on as the expert. */
  'wrong-tool',
  /** Looks both up, skips the calculator and guesses. */
  'no-calculator',
  /** Calculates with another operator and reports that result. */
  'wrong-operator',
  /** Everything right, but the answer is a sentence without the final line. */
  'no-final-line',
  /** Everything right, but text follows the final line. */
  'text-after-answer',
] as const;
export type Mistake = (typeof MISTAKES)[number];

/** A mistake and the seed of the numbers that it makes up. */
export interface Imperfection {
  mistake: Mistake;
  seed: number;
}

/** Probability of each mistake; the rest is faultless. These sum to 0.55, so that strict success is about 45 %. */
export const MISTAKE_PROBABILITIES: Readonly<Record<Mistake, number>> = {
  'no-tools': 0.05,
  'calculates-first': 0.05,
  'one-lookup': 0.09,
  'malformed-call': 0.04,
  'wrong-tool': 0.04,
  'no-calculator': 0.1,
  'wrong-operator': 0.06,
  'no-final-line': 0.06,
  'text-after-answer': 0.06,
};

/** Stream of the choice of mistakes; index = transcript ('I' in the top byte). */
const MISTAKE_STREAM = 0x49000000;
/** Stream of made-up numbers; index = draw ('J' in the top byte). */
const INVENTION_STREAM = 0x4a000000;

export interface ExpertTurn {
  /** The text that the assistant samples in this turn, without `<|im_end|>`. */
  assistant: string;
  /** What the tools answer, one text a call and in their order; empty in the last turn. */
  observations: string[];
}

export interface ExpertTranscript {
  turns: ExpertTurn[];
  /** The dispatched calls in order, as the environment logs them. */
  calls: { tool: string; argumentsJson: string; observation: string }[];
  /** The last turn's text after `</think>`. */
  finalText: string;
  /** Calls that a rollout does not dispatch: malformed JSON, an unknown tool. */
  invalidDispatches: number;
}

export interface ExpertOptions {
  imperfection: Imperfection | null;
  /** One turn with two calls (the default: fewest tokens), or one turn a lookup. */
  lookups?: 'parallel' | 'sequential';
  /** What the rollout answers to a call that it does not dispatch. */
  invalidCallObservation?: string;
}

/** The default text of `ExpertOptions.invalidCallObservation`. */
export const INVALID_CALL_OBSERVATION = 'Fehler: ungültiger Aufruf';

/**
 * The imperfection of transcript `index` (u32 seed), or null for a faultless one. `probabilities` must be non-negative
 * and sum to at most 1; throws PlanError otherwise.
 */
export function chooseImperfection(
  seed: number,
  index: number,
  probabilities: Readonly<Partial<Record<Mistake, number>>> = MISTAKE_PROBABILITIES,
): Imperfection | null {
  const total = MISTAKES.reduce((sum, mistake) => sum + (probabilities[mistake] ?? 0), 0);
  if (!(total <= 1 + 1e-9) || MISTAKES.some((mistake) => !((probabilities[mistake] ?? 0) >= 0))) {
    throw new PlanError(
      'bad-probabilities',
      `choosing expert mistakes: the probabilities sum to ${total}; ` +
        'they must be non-negative and sum to at most 1. Lower them.',
    );
  }
  const words = streamWords(seed, MISTAKE_STREAM, index);
  let rest = uniform24(words[0]);
  for (const mistake of MISTAKES) {
    const probability = probabilities[mistake] ?? 0;
    if (rest < probability) return { mistake, seed: words[1] };
    rest -= probability;
  }
  return null;
}

/** An empty thinking block: Qwen3 opens with one when thinking is enabled, and a tiny policy has nothing to think. */
const THINKING = '<think>\n\n</think>\n\n';

/** A call in the Qwen3 (hermes) format; `argument` is written as `json.dumps` does. */
function callText(tool: string, argument: string, content: string): string {
  return `<tool_call>\n{"name": "${tool}", "arguments": ${argumentsOf(argument, content)}}\n</tool_call>`;
}

function argumentsOf(argument: string, content: string): string {
  return `{"${argument}": ${JSON.stringify(content)}}`;
}

/** The transcript of one episode: at most three tool rounds and the final answer. Throws EnvError on a foreign task. */
export function expertTranscript(task: Task, options: ExpertOptions): ExpertTranscript {
  const payload = readPayload(task);
  const { left, right, operation, table } = payload;
  const mistake = options.imperfection?.mistake;
  const turns: ExpertTurn[] = [];
  const calls: ExpertTranscript['calls'] = [];
  let invalidDispatches = 0;
  let draws = 0;

  const inventedBelow = (n: number): number =>
    streamWords(options.imperfection?.seed ?? 0, INVENTION_STREAM, draws++)[0] % n;
  const inventedValue = (): number => MIN_VALUE + inventedBelow(MAX_VALUE - MIN_VALUE + 1);
  const dispatch = (tool: string, argumentsJson: string): string => {
    const observation = runTool(table, tool, argumentsJson).content;
    calls.push({ tool, argumentsJson, observation });
    return observation;
  };
  const callTurn = (requests: readonly (readonly [tool: string, argument: string, content: string])[]): string[] => {
    const observations = requests.map(([tool, argument, content]) => dispatch(tool, argumentsOf(argument, content)));
    turns.push({ assistant: THINKING + requests.map((request) => callText(...request)).join('\n'), observations });
    return observations;
  };
  const invalidTurn = (call: string): void => {
    invalidDispatches++;
    turns.push({
      assistant: THINKING + call,
      observations: [options.invalidCallObservation ?? INVALID_CALL_OBSERVATION],
    });
  };
  const lookUp = (goods: readonly string[]): string[] => {
    const requests = goods.map((good) => [LOOKUP_TOOL, LOOKUP_ARGUMENT, good] as const);
    // A spent first turn leaves two rounds, so that the lookups must go in parallel.
    return options.lookups === 'sequential' && turns.length === 0
      ? requests.flatMap((request) => callTurn([request]))
      : callTurn(requests);
  };
  const calculate = (a: string | number, operator: Operation, b: string | number): string =>
    callTurn([[CALCULATOR_TOOL, CALCULATOR_ARGUMENT, `${a} ${operator} ${b}`]])[0]!;
  const finish = (finalText: string): ExpertTranscript => {
    turns.push({ assistant: THINKING + finalText, observations: [] });
    return { turns, calls, finalText, invalidDispatches };
  };
  /** A result that the mistaken policy makes up; never the right one. */
  const guess = (): string => {
    const truth = resultOf(operation, table[left], table[right]);
    let guessed = truth;
    while (guessed === truth) guessed = resultOf(operation, inventedValue(), inventedValue());
    return String(guessed);
  };

  if (mistake === 'no-tools') return finish(`Antwort: ${guess()}`);
  if (mistake === 'calculates-first') {
    return finish(`Antwort: ${calculate(inventedValue(), operation, inventedValue())}`);
  }
  if (mistake === 'one-lookup') {
    const [a] = lookUp([left]);
    return finish(`Antwort: ${calculate(a!, operation, inventedValue())}`);
  }
  if (mistake === 'malformed-call') {
    invalidTurn(callText(LOOKUP_TOOL, LOOKUP_ARGUMENT, left).replace('}}\n', '}\n'));
  }
  if (mistake === 'wrong-tool') invalidTurn(callText('suche', LOOKUP_ARGUMENT, left));

  const [a, b] = lookUp([left, right]);
  if (mistake === 'no-calculator') return finish(`Antwort: ${guess()}`);
  const others = OPERATIONS.filter((other) => other !== operation);
  const operator = mistake === 'wrong-operator' ? others[inventedBelow(others.length)]! : operation;
  const result = calculate(a!, operator, b!);
  if (mistake === 'no-final-line') return finish(`Das Ergebnis ist ${result}.`);
  if (mistake === 'text-after-answer') return finish(`Antwort: ${result}\nFertig.`);
  return finish(`Antwort: ${result}`);
}
