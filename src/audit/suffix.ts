// What must stand between a turn with tool calls and the next one. For ChatML with <tool_response> (Qwen3) it is
// written out by hand here, so that the audit does not lean on the code that made the rollout; other templates
// fall back to it. Not a renderer. Invariant: only control tokens of the scaffold become control ids, whatever an
// observation says.
import type { Text } from '../model/text.ts';

export interface ExpectedSuffix {
  ids: number[];
  /** Who wrote each id: `context` where it cannot be told apart. */
  sources: ('template' | 'observation' | 'context')[];
}

export interface SuffixRule {
  /** `by-hand`: independent of the rollout's code; `template`: Text.toolSuffixParts, where no hand-written one fits. */
  kind: 'by-hand' | 'template';
  suffixOf(observations: readonly string[]): ExpectedSuffix;
}

type Stretch = { text: string; observed: boolean };

/** Control tokens of the scaffold. */
const CONTROLS = /(<\|im_start\|>|<\|im_end\|>|<tool_response>|<\/tool_response>|<think>|<\/think>)/;

/** The ChatML suffix as stretches of text (specification: the Qwen3 template of tool messages). */
function chatmlStretches(observations: readonly string[], enableThinking: boolean): Stretch[] {
  const stretches: Stretch[] = [];
  const template = (text: string) => stretches.push({ text, observed: false });
  template('\n<|im_start|>user');
  for (const observation of observations) {
    template('\n<tool_response>\n');
    stretches.push({ text: observation, observed: true });
    template('\n</tool_response>');
  }
  template('<|im_end|>\n<|im_start|>assistant\n');
  // The closed think block is the template's way to switch thinking off.
  if (!enableThinking) template('<think>\n\n</think>\n\n');
  return stretches;
}

/** The rule for a checkpoint's template: by hand if the template writes exactly that for a probe. */
export function suffixRule(text: Text, enableThinking: boolean): SuffixRule {
  const fits =
    text.templateSha256 !== null &&
    text.imEndId !== null &&
    text.stopIds.length === 1 &&
    text.stopIds[0] === text.imEndId &&
    text.addedTokenId('<|im_start|>') !== null &&
    rendersAsChatml(text, enableThinking);
  if (fits)
    return { kind: 'by-hand', suffixOf: (observations) => encode(text, chatmlStretches(observations, enableThinking)) };
  return { kind: 'template', suffixOf: (observations) => text.toolSuffixParts(observations, enableThinking) };
}

function rendersAsChatml(text: Text, enableThinking: boolean): boolean {
  const observations = ['first', 'second\n4'];
  const rendered = text.renderText({
    messages: [
      { role: 'user', content: 'question' },
      { role: 'assistant', content: 'answer' },
      ...observations.map((content) => ({ role: 'tool', content })),
    ],
    tools: null,
    enableThinking,
    addGenerationPrompt: true,
  });
  const wanted = chatmlStretches(observations, enableThinking).map((stretch) => stretch.text);
  return rendered.endsWith(`<|im_end|>${wanted.join('')}`);
}

/** Ids of stretches: control tokens of the scaffold alone, what lies between them as one ordinary text. */
function encode(text: Text, stretches: readonly Stretch[]): ExpectedSuffix {
  const out: ExpectedSuffix = { ids: [], sources: [] };
  let ordinary: Stretch[] = [];
  const flush = () => {
    const ids = text.encodeContent(ordinary.map((stretch) => stretch.text).join(''));
    out.ids.push(...ids);
    out.sources.push(...sourcesOf(text, ids, ordinary));
    ordinary = [];
  };
  for (const stretch of stretches) {
    const parts = stretch.observed ? [stretch.text] : stretch.text.split(CONTROLS);
    for (const part of parts) {
      const control = stretch.observed || !CONTROLS.test(part) ? null : text.addedTokenId(part);
      if (control === null) {
        ordinary.push({ text: part, observed: stretch.observed });
        continue;
      }
      flush();
      out.ids.push(control);
      out.sources.push('template');
    }
  }
  flush();
  return out;
}

/** A token with any byte of an observation is the observation's. */
function sourcesOf(text: Text, ids: readonly number[], stretches: readonly Stretch[]): ExpectedSuffix['sources'] {
  const lengths = ids.map((id) => text.bytesOf(id).length);
  const total = lengths.reduce((sum, length) => sum + length, 0);
  const sizes = stretches.map((stretch) => new TextEncoder().encode(stretch.text).length);
  const missing = total - sizes.reduce((sum, size) => sum + size, 0);
  const observed = stretches.flatMap((stretch, i) => (stretch.observed ? [i] : []));
  // Unicode normalisation can change an observation's length; with one observation its new length is known.
  if (missing !== 0 && observed.length !== 1) return ids.map(() => 'context');
  if (missing !== 0) sizes[observed[0]!]! += missing;
  const owners = stretches.flatMap((stretch, i) => Array.from({ length: sizes[i]! }, () => stretch.observed));
  let at = 0;
  return lengths.map((length) => {
    const covers = owners.slice(at, at + length).includes(true);
    at += length;
    return covers ? 'observation' : 'template';
  });
}
