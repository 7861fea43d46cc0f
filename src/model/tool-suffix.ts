// The text that a chat template puts between a turn with tool calls and the next assistant turn: a scaffold around the
// observations, found as the difference of two renderings of a dummy conversation (as TRL 1.13 finds it).
// Not a re-rendering of the rollout. Invariant: the scaffold depends on the template and the number of results only.
import type { ChatMessage, ChatTemplate } from './chat-template.ts';
import { fileFault } from './file-fault.ts';
import type { Span } from './forged-content.ts';
import type { Runs } from './source-runs.ts';

/** The suffix for observations, whose number is fixed, as stretches of text. */
export type ToolSuffix = (observations: readonly string[]) => Runs;

const TOOL_NAME = 'dummy_tool_for_the_suffix';
const TOOL = {
  type: 'function',
  function: { name: TOOL_NAME, description: 'dummy', parameters: { type: 'object', properties: {}, required: [] } },
};

// A template may show an assistant's empty reasoning only in the last turn, which then is no prefix of the longer
// rendering. With reasoning given it stays, so that spelling is tried first.
const ASSISTANTS: ChatMessage[] = [
  { role: 'assistant', content: '', reasoning_content: 'dummy' },
  { role: 'assistant', content: '<think>\ndummy\n</think>\n\n' },
  { role: 'assistant', content: '' },
  { role: 'assistant', content: 'dummy' },
];

/**
 * The suffix of a template for `count` observations (at least 1) of one turn whose end token `endOfTurn` has just been
 * sampled. Throws ModelFileError if the template cannot show tool calls and their results.
 */
export function toolSuffixOf(
  template: ChatTemplate,
  endOfTurn: string,
  count: number,
  enableThinking: boolean | undefined,
  label: string,
): ToolSuffix {
  const render = (observations: readonly string[]) =>
    renderedSuffix(template, endOfTurn, observations, enableThinking, label);
  // The first probe is bland; the second shows whether a template trims, escapes or quotes.
  const probes = [(index: number) => `probe${index}probe`, (index: number) => ` "ä\\${index}\n<b>\n`];
  const [bland, hard] = probes.map((probe) => {
    const observations = Array.from({ length: count }, (_, index) => probe(index));
    return cutAt(render(observations).text, observations);
  });
  if (!bland)
    throw unfit(label, 'a template that leaves out tool results', 'a chat template that shows each of them once');
  if (hard?.every((piece, index) => piece === bland[index])) {
    return (observations) =>
      bland.flatMap((text, index): Runs => {
        const scaffold: Runs = [{ text, source: 'template' }];
        return index < count ? [...scaffold, { text: observations[index]!, source: 'observation' }] : scaffold;
      });
  }
  // A template that changes results on their way (Llama 3.1 prints them as JSON) has to render each of them.
  return (observations) => [{ source: 'template', ...render(observations) }];
}

/** `text` cut at the observations, each of which must occur in it once and in order; else null. */
function cutAt(text: string, observations: readonly string[]): string[] | null {
  const pieces: string[] = [];
  let rest = text;
  for (const observation of observations) {
    const parts = rest.split(observation);
    if (parts.length !== 2) return null;
    pieces.push(parts[0]!);
    rest = parts[1]!;
  }
  return [...pieces, rest];
}

function renderedSuffix(
  template: ChatTemplate,
  endOfTurn: string,
  observations: readonly string[],
  enableThinking: boolean | undefined,
  label: string,
): { text: string; forged: readonly Span[] } {
  const calls = observations.map((_, index) => ({
    type: 'function',
    id: `call0000${index}`,
    function: { name: TOOL_NAME, arguments: {} },
  }));
  const results = observations.map((content) => ({ role: 'tool', name: TOOL_NAME, content }));
  for (const assistant of ASSISTANTS) {
    const turn = [
      { role: 'user', content: 'dummy' },
      { ...assistant, tool_calls: calls },
    ];
    const render = (messages: ChatMessage[], addGenerationPrompt: boolean) =>
      template.render({ messages, tools: [TOOL], enableThinking, addGenerationPrompt });
    const shorter = render(turn, false).text;
    const longer = render([...turn, ...results], true);
    // The tool's declaration names it once; a template that drops calls names it no more often.
    if (shorter.split(TOOL_NAME).length - 1 <= 1) {
      throw unfit(
        label,
        'a template that does not show tool calls',
        'a chat template with tool calls and tool results',
      );
    }
    const end = shorter.lastIndexOf(endOfTurn);
    const cut = end < 0 ? shorter.length : end + endOfTurn.length;
    if (!longer.text.startsWith(shorter.slice(0, cut))) continue;
    const forged = longer.forged.map((span) => ({ start: span.start - cut, end: span.end - cut }));
    return { text: longer.text.slice(cut), forged: forged.filter((span) => span.start >= 0) };
  }
  throw unfit(label, 'a template that changes an earlier turn when tool results follow', 'a stable prefix');
}

function unfit(label: string, found: string, wanted: string) {
  return fileFault('template-without-tools', {
    doing: `deriving the tool suffix of ${label}`,
    found,
    wanted,
    remedy: 'Use a checkpoint whose chat template takes tools, such as Qwen3.',
  });
}
