// The fixed material of the German lookup/calculator task: goods, the 80 ordered operand pairs, instructions, tools.
// Not the episodes: values are drawn fresh for each one by german-task.ts.
// Invariant: everything here reaches the prompt, so no value and no result may ever stand in it.
import type { ToolSpec } from './port.ts';

/** The goods, which are the lookup keys too. */
export const GOODS = ['Apfel', 'Brot', 'Butter', 'Honig', 'Kaffee', 'Käse', 'Mehl', 'Milch', 'Salz', 'Zucker'] as const;
export type Good = (typeof GOODS)[number];

export const OPERATIONS = ['+', '-', '*'] as const;
export type Operation = (typeof OPERATIONS)[number];

/**
 * The 80 ordered pairs of different goods: of the 90 possible ones, those whose second good is the successor of the
 * first (cyclically) are left out.
 */
export const OPERAND_PAIRS: readonly (readonly [Good, Good])[] = GOODS.flatMap((left, i) =>
  GOODS.filter((_, j) => j !== i && j !== (i + 1) % GOODS.length).map((right) => [left, right] as const),
);

/** Instruction templates per operation; `{a}` is the left operand's good, `{b}` the right one's. */
export const INSTRUCTIONS: Readonly<Record<Operation, readonly string[]>> = {
  '+': [
    'Wie viel ist {a} plus {b}?',
    'Berechne {a} + {b}.',
    'Addiere {a} und {b}.',
    'Bilde die Summe aus {a} und {b}.',
  ],
  '-': [
    'Wie viel ist {a} minus {b}?',
    'Berechne {a} - {b}.',
    'Ziehe {b} von {a} ab.',
    'Bilde die Differenz aus {a} und {b}.',
  ],
  '*': [
    'Wie viel ist {a} mal {b}?',
    'Berechne {a} * {b}.',
    'Multipliziere {a} mit {b}.',
    'Bilde das Produkt aus {a} und {b}.',
  ],
};
export const TEMPLATE_COUNT = 4;

/** Table values are integers in [MIN_VALUE, MAX_VALUE]: results lie in [-97, 9801]. */
export const MIN_VALUE = 2;
export const MAX_VALUE = 99;

export const SYSTEM_PROMPT = 'Schlage beide Werte nach und rechne mit dem Rechner.';
/** Follows the instruction in the user message. */
export const ANSWER_REQUEST = 'Letzte Zeile: Antwort: <Zahl>';

export const LOOKUP_TOOL = 'nachschlagen';
export const CALCULATOR_TOOL = 'rechner';
export const LOOKUP_ARGUMENT = 'schluessel';
export const CALCULATOR_ARGUMENT = 'ausdruck';

/** A fresh copy of the two tool schemas; the key order is the one that the chat template renders. */
export function germanTools(): ToolSpec[] {
  const tool = (name: string, description: string, argument: string): ToolSpec => ({
    type: 'function',
    function: {
      name,
      description,
      parameters: { type: 'object', properties: { [argument]: { type: 'string' } }, required: [argument] },
    },
  });
  return [
    tool(LOOKUP_TOOL, 'Wert einer Ware', LOOKUP_ARGUMENT),
    tool(CALCULATOR_TOOL, 'Ganzzahliger Ausdruck', CALCULATOR_ARGUMENT),
  ];
}
