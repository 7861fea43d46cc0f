// Shows that no held-out item occurs in what the policy was or will be trained on.
// Not a similarity search: an item occurs if its text does, apart from case, white space and Unicode form, or if its
// named source does. Invariant: the first overlap is named by item and place; nothing is dropped silently.
import { PlanError } from '../lib/errors.ts';

/** A math item with the source that its file names, if any. */
export interface SourcedItem {
  id: string;
  question: string;
  source: string | null;
}

/** Texts are compared in this form: NFC, lower case, runs of white space as one space. */
export function comparableText(text: string): string {
  return text.normalize('NFC').toLowerCase().replace(/\s+/gu, ' ').trim();
}

/** All texts in plain data, at any depth. */
function* textsOf(value: unknown): Generator<string> {
  if (typeof value === 'string') yield value;
  else if (Array.isArray(value)) for (const member of value) yield* textsOf(member);
  else if (value !== null && typeof value === 'object')
    for (const member of Object.values(value)) yield* textsOf(member);
}

function overlap(code: string, item: string, place: string, found: string): PlanError {
  return new PlanError(
    code,
    `checking that training and held-out data are disjoint: found ${found} of item ${item} in ${place}; wanted none. ` +
      'Take the item out of one of the two files.',
  );
}

/**
 * Refuses held-out items that occur in the SFT file `trainLines` (parsed JSON, one value a line). `label` names it.
 * Throws PlanError `not-disjoint` naming item, file and line.
 */
export function requireSourceDisjoint(
  items: readonly SourcedItem[],
  trainLines: readonly unknown[],
  label: string,
): void {
  const questions = items.map(({ id, question }) => ({ id, text: comparableText(question) }));
  const sources = new Map(items.flatMap(({ id, source }) => (source === null ? [] : [[source, id] as const])));
  trainLines.forEach((value, index) => {
    const place = `${label} line ${index + 1}`;
    const named = (value as { source?: unknown } | null)?.source;
    const sourced = typeof named === 'string' ? sources.get(named) : undefined;
    if (sourced !== undefined) throw overlap('not-disjoint', sourced, place, `the source ${JSON.stringify(named)}`);
    for (const text of textsOf(value)) {
      const line = comparableText(text);
      const hit = questions.find((question) => line.includes(question.text));
      if (hit) throw overlap('not-disjoint', hit.id, place, 'the question');
    }
  });
}

/** A generated agent episode: what makes it the same task as another, whatever its id and template. */
export interface AgentInstance {
  id: string;
  /** Operand pair with its two values. */
  instance: string;
  prompt: string;
}

/** Refuses TRAIN episodes that are, or contain, a held-out agent episode or question. */
export function requireFreshEpisodes(
  train: readonly AgentInstance[],
  heldOut: readonly AgentInstance[],
  questions: readonly Pick<SourcedItem, 'id' | 'question'>[],
): void {
  const instances = new Map(heldOut.map(({ id, instance }) => [instance, id]));
  const texts = questions.map(({ id, question }) => ({ id, text: comparableText(question) }));
  for (const { id, instance, prompt } of train) {
    const same = instances.get(instance);
    if (same !== undefined) throw overlap('not-disjoint', same, `TRAIN episode ${id}`, 'the operands and values');
    const text = comparableText(prompt);
    const hit = texts.find((question) => text.includes(question.text));
    if (hit) throw overlap('not-disjoint', hit.id, `TRAIN episode ${id}`, 'the question');
  }
}
