// Random and adversarial tool-call sequences for the German task, and the run of one against an environment.
// Not tests. Invariant: nothing here knows what the right observation or score is.
import fc from 'fast-check';
import { trainTasks } from '../../src/environments/german-task.ts';
import type { EnvironmentPort, Task } from '../../src/environments/port.ts';
import type { Verdict } from '../../src/rollout/episode.ts';

interface Call {
  tool: string;
  argumentsJson: string;
}

export interface Sequence {
  task: Task;
  calls: Call[];
  finalText: string;
  invalidDispatches: number;
}

const TASKS = trainTasks(11, 240);

interface Operands {
  left: string;
  right: string;
  operation: string;
  table: Record<string, number>;
}

const expressionNoise = fc
  .array(fc.constantFrom(...'0123456789+-*/() '), { minLength: 0, maxLength: 12 })
  .map((parts) => parts.join(''));

const expressionTree: fc.Arbitrary<string> = fc.letrec<{ node: string }>((tie) => ({
  node: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    fc.oneof(
      fc.nat(12).map(String),
      fc.constantFrom('9999999', '10000000', '0', '007', '-4', '(3)', '99999999999999999999999'),
    ),
    fc
      .tuple(tie('node'), fc.constantFrom('+', '-', '*', '/', ' + ', ' / '), tie('node'), fc.boolean())
      .map(([a, operator, b, wrapped]) => (wrapped ? `(${a}${operator}${b})` : `${a}${operator}${b}`)),
    tie('node').map((inner) => `-(${inner})`),
  ),
})).node;

function sequenceFor(task: Task): fc.Arbitrary<Sequence> {
  const { left, right, operation, table } = task.payload as unknown as Operands;
  const a = table[left]!;
  const b = table[right]!;
  const result = operation === '+' ? a + b : operation === '-' ? a - b : a * b;
  const lookUp = (key: string): Call => ({ tool: 'nachschlagen', argumentsJson: JSON.stringify({ schluessel: key }) });
  const calculate = (text: string): Call => ({ tool: 'rechner', argumentsJson: JSON.stringify({ ausdruck: text }) });
  const usual = fc.constantFrom(
    lookUp(left),
    lookUp(right),
    lookUp(Object.keys(table)[0]!),
    calculate(`${a} ${operation} ${b}`),
    calculate(`${a}${operation}${b}`),
    calculate(`${b} ${operation} ${a}`),
    calculate(`(0${a})${operation}(${b})`),
    calculate(`-(-${a})${operation}${b}`),
    calculate(`${a}${operation}${b}+0`),
    calculate(`${a} ${operation === '+' ? '-' : '+'} ${b}`),
    calculate(`${a + 1} ${operation} ${b}`),
    calculate(String(result)),
  );
  const odd: fc.Arbitrary<Call> = fc.oneof(
    fc.constantFrom(
      ...['Gold', '', left.toLowerCase(), `${left} `, '__proto__', 'constructor', 'Ka\u0308se', '🍞'].map(lookUp),
    ),
    fc.string({ unit: 'binary', maxLength: 12 }).map(lookUp),
    expressionNoise.map(calculate),
    expressionTree.map(calculate),
    fc
      .constantFrom(
        '1/0',
        '7/2',
        '8/2/2',
        '2--3',
        '--3',
        '1−1',
        '２+2',
        '1e3',
        '1.5',
        '+1',
        '9'.repeat(65),
        '1\t+1',
        '()',
      )
      .map(calculate),
    fc
      .constantFrom(
        '{}',
        '',
        'null',
        '[]',
        '"Brot"',
        '{"schluessel": 5}',
        '{"schluessel": null}',
        `{"schluessel": "${left}", "extra": 1}`,
        `{"schluessel": "x", "schluessel": "${left}"}`,
        '{"ausdruck": "1+1"',
        '{"__proto__": "1"}',
        `{"schluessel": "${'x'.repeat(1000)}"}`,
        `  {"schluessel":"${left}"}  `,
      )
      .chain((argumentsJson) => fc.constantFrom('nachschlagen', 'rechner').map((tool) => ({ tool, argumentsJson }))),
    fc.constantFrom('suche', '', 'Rechner', 'constructor').map((tool) => ({ tool, argumentsJson: '{}' })),
  );
  const finalText = fc.oneof(
    { weight: 3, arbitrary: fc.constant(`Antwort: ${result}`) },
    fc.constantFrom(
      ...['', 'Fertig.', 'Antwort:', `Antwort:${result}`, `antwort: ${result}`, `Antwort: ${result}.`],
      ...[`Das ist es.\nAntwort: ${result}\n \n`, `Antwort: ${result}\nFertig.`, `Antwort: 1\nAntwort: ${result}`],
      ...[`Antwort: +${result}`, `Antwort: 0${result}`, `Antwort: ${result} Euro`, `<think>\nAntwort: ${result}`],
      ...['Antwort: -0', 'Antwort: 1.234', `Antwort: ${'9'.repeat(15)}`, `Antwort: ${'9'.repeat(16)}`, 'Antwort: −5'],
      ...[
        `x Antwort: ${result}`,
        `  Antwort: ${result}`,
        `Antwort: ${result}\r\n`,
        `Antwort: ${result + 1}`,
        'Antwort: 0',
      ],
      ...[`Antwort: 3\u2028Antwort: ${result}`, `  Antwort: 2\nAntwort: ${result}`],
    ),
    fc.string({ unit: 'binary', maxLength: 20 }),
    fc.integer().map((n) => `Antwort: ${n}`),
  );
  const faultless = fc.constantFrom<Call[][]>(
    [lookUp(left), lookUp(right), calculate(`${a} ${operation} ${b}`)],
    [lookUp(right), lookUp(left), calculate(`${b}${operation}${a}`)],
    [calculate(`${a} ${operation} ${b}`), lookUp(left), lookUp(right)],
    [lookUp(left), calculate(`${a} ${operation} ${b}`), lookUp(right)],
  );
  const calls: fc.Arbitrary<Call[]> = fc.oneof(
    fc.array(fc.oneof(usual, usual, odd), { maxLength: 7 }),
    faultless,
    fc.tuple(faultless, fc.array(fc.oneof(usual, odd), { maxLength: 2 })).map(([head, tail]) => [...head, ...tail]),
    fc.tuple(fc.array(usual, { maxLength: 2 }), faultless).map(([head, tail]) => [...head, ...tail]),
  );
  return fc.record({
    task: fc.constant(task),
    calls,
    finalText,
    invalidDispatches: fc.constantFrom(0, 0, 0, 1, 3),
  });
}

/** Sequences of calls with a final text, valid, invalid and adversarial ones. */
export const sequences: fc.Arbitrary<Sequence> = fc.constantFrom(...TASKS).chain(sequenceFor);

export interface Run {
  calls: { tool: string; argumentsJson: string; observation: string }[];
  verdict: Verdict;
}

/** Plays a sequence in a session of its own. */
export async function play(environment: EnvironmentPort, sequence: Sequence): Promise<Run> {
  const { sessionId } = await environment.open(sequence.task);
  const calls: Run['calls'] = [];
  for (const { tool, argumentsJson } of sequence.calls) {
    const { content } = await environment.call(sessionId, tool, argumentsJson);
    calls.push({ tool, argumentsJson, observation: content });
  }
  const verdict = await environment.verify(sessionId, sequence.finalText, sequence.invalidDispatches);
  await environment.close(sessionId);
  return { calls, verdict };
}
