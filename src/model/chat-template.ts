// The checkpoint's own chat template: finds it, renders conversations with it, and says which control tokens in a
// rendering are its own. Not a tokenizer. Invariant: a rendering depends on its arguments alone; the template sees no
// clock, so one that asks for the date takes its built-in default.
import { Environment, Interpreter, parse, tokenize } from '@huggingface/jinja';
import type { AddedTokenMatcher } from './added-tokens.ts';
import { parseOrderedJson, prepareValue, restoreNumbers } from './chat-json.ts';
import { fileFault, showValue } from './file-fault.ts';
import { findForged, type MapContent, type Span, unusedCharacters } from './forged-content.ts';

/** A message as chat templates take it. A content of null or none is the empty text. */
export interface ChatMessage {
  role: string;
  content?: string | null;
  reasoning_content?: string | null;
  /** Arguments are an object, or the text of one, which templates print as it stands. */
  tool_calls?: readonly { type?: string; id?: string; function: { name: string; arguments: unknown } }[];
  name?: string;
}

export interface Conversation {
  messages: readonly ChatMessage[];
  /** A JSON text of the list keeps integer-like keys in order and numbers as spelt; objects cannot. */
  tools?: readonly object[] | string | null;
  /** Absent: the template's own default. */
  enableThinking?: boolean | undefined;
  /** Whether the rendering ends where the assistant's turn begins. True if absent. */
  addGenerationPrompt?: boolean;
}

/** A rendering, and the stretches of it that spell a control token but came from the conversation's contents. */
export interface Rendering {
  text: string;
  forged: readonly Span[];
}

export interface ChatTemplate {
  /** The source of the template, or of both if tools have one of their own. */
  source: string;
  /** Throws ModelFileError if the template fails, ignores the tools, or would let contents pass for its own tokens. */
  render(conversation: Conversation): Rendering;
}

/** What the template is rendered with beside the conversation: `bos_token` and the like. */
export type TemplateVariables = Readonly<Record<string, string>>;

/** A template from its source (or its sources by name: `default`, `tool_use`). `label` names it in messages. */
export function compileTemplate(
  sources: Readonly<Record<string, string>>,
  variables: TemplateVariables,
  matcher: AddedTokenMatcher,
  label: string,
): ChatTemplate {
  const programs = new Map(Object.entries(sources).map(([name, source]) => [name, compile(source, label)]));
  const fallback = sources['default'] ?? Object.values(sources)[0] ?? '';

  function run(conversation: Conversation, mapContent: MapContent, numberMark: string): string {
    const tools = readTools(conversation.tools, label);
    const program = (tools && programs.get('tool_use')) ?? programs.get('default') ?? [...programs.values()][0]!;
    const ordinary = (value: unknown) => prepareValue(value, (text) => mapContent(text, false), numberMark);
    const messages = conversation.messages.map((message) => {
      // The template itself reads reasoning tags out of what the assistant said.
      const said = (text: string) => mapContent(text, message.role === 'assistant');
      const { content, reasoning_content: reasoning, ...others } = message;
      const entries = { ...(ordinary(others) as object), content: said(content ?? '') };
      return typeof reasoning === 'string' ? { ...entries, reasoning_content: said(reasoning) } : entries;
    });
    const items: Record<string, unknown> = {
      ...variables,
      messages,
      tools: tools ? ordinary(tools) : null,
      add_generation_prompt: conversation.addGenerationPrompt ?? true,
    };
    if (conversation.enableThinking !== undefined) items['enable_thinking'] = conversation.enableThinking;
    return restoreNumbers(evaluate(program, items, label), numberMark);
  }

  return {
    source: Object.keys(sources).length === 1 ? fallback : JSON.stringify(sources),
    render(conversation) {
      const [numberMark, before, after] = unusedCharacters(JSON.stringify([conversation, sources]));
      const plain = (shown: Conversation) => run(shown, (content) => content, numberMark);
      const text = plain(conversation);
      if (readTools(conversation.tools, label) && plain({ ...conversation, tools: null }) === text) {
        throw fileFault('template-without-tools', {
          doing: `rendering ${label} with tools`,
          found: 'the same text as without them',
          wanted: 'a chat template that shows the tools to the model',
          remedy: 'Use a checkpoint whose chat template takes tools.',
        });
      }
      const rerender = (mapContent: MapContent) => run(conversation, mapContent, numberMark);
      return { text, forged: findForged(text, { before, after }, rerender, matcher, label) };
    },
  };
}

type Program = ReturnType<typeof parse>;

function compile(source: string, label: string): Program {
  try {
    return parse(tokenize(source, { lstrip_blocks: true, trim_blocks: true }));
  } catch (cause) {
    throw templateFault(`compiling ${label}`, cause);
  }
}

function evaluate(program: Program, items: Record<string, unknown>, label: string): string {
  const environment = new Environment();
  const globals = {
    ...{ true: true, True: true, false: false, False: false, none: null, None: null },
    raise_exception: (message: string) => {
      throw new Error(message);
    },
    range: (...bounds: [number, number?, number?]) => pythonRange(...bounds),
  };
  try {
    for (const [name, value] of Object.entries({ ...globals, ...items })) environment.set(name, value);
    return String(new Interpreter(environment).run(program).value);
  } catch (cause) {
    throw templateFault(`rendering ${label}`, cause);
  }
}

function templateFault(doing: string, cause: unknown) {
  return fileFault('template-failed', {
    doing,
    found: cause instanceof Error ? cause.message : String(cause),
    wanted: 'a text',
    remedy: 'The template refuses this conversation, or uses what @huggingface/jinja lacks: change one of them.',
    cause,
  });
}

function pythonRange(first: number, second?: number, step = 1): number[] {
  const [start, stop] = second === undefined ? [0, first] : [first, second];
  const length = step === 0 ? 0 : Math.max(0, Math.ceil((stop - start) / step));
  return Array.from({ length }, (_, index) => start + index * step);
}

function readTools(tools: Conversation['tools'], label: string): readonly unknown[] | null {
  const list = typeof tools === 'string' ? parseOrderedJson(tools, `reading the tools for ${label}`) : tools;
  if (list === undefined || list === null) return null;
  if (!Array.isArray(list)) {
    throw fileFault('bad-tools', {
      doing: `reading the tools for ${label}`,
      found: showValue(list),
      wanted: 'a list of tools',
      remedy: 'Put the tools into a JSON list.',
    });
  }
  return list.length === 0 ? null : list;
}
