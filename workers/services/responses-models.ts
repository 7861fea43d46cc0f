// The Responses shapes that NeMo Gym's verify takes and echoes: parameters, items, the response object.
// Not all of OpenAI's API: unknown values of open fields pass. Invariant: a value that validates is echoed with every
// field of its model, in the model's order, as the recorded servers do.
import type { WireMap, WireValue } from '../../src/environments/service/wire-json.ts';
import {
  anything,
  bool,
  type Check,
  dict,
  exactly,
  type Field,
  float,
  type Issue,
  int,
  type Loc,
  list,
  type Model,
  nested,
  nullable,
  oneOf,
  RaisedInValidator,
  text,
  textOr,
} from './pydantic.ts';

const nil = (): WireValue => null;
const optional = (check: Check): Field => ({ check: nullable(check), fallback: nil });
const open = (): Field => optional(anything);
const withDefault = (check: Check, value: () => WireValue): Field => ({ check, fallback: value });

const status = optional(oneOf('in_progress', 'completed', 'incomplete'));

/** All three token fields or none: the upstream validator raises otherwise. */
const TOKEN_FIELDS = ['prompt_token_ids', 'generation_token_ids', 'generation_log_probs'] as const;

interface ItemShape {
  fields: Readonly<Record<string, Field>>;
  /** Whether the model generates it, so that token ids may stand on it. */
  generated: boolean;
}

const outputText: Model = {
  title: 'ResponseOutputText',
  extra: 'allow',
  fields: {
    annotations: { check: list() },
    text: { check: text() },
    type: { check: oneOf('output_text') },
    logprobs: open(),
  },
};
const outputTextPart = nested(outputText);
const parts: Check = list((part, loc, issues) =>
  part instanceof Map && part.get('type') === 'output_text' ? outputTextPart(part, loc, issues) : part,
);

const outputMessage: ItemShape = {
  generated: true,
  fields: {
    id: { check: text() },
    content: { check: parts },
    role: { check: oneOf('assistant') },
    status: { check: oneOf('in_progress', 'completed', 'incomplete') },
    type: { check: oneOf('message') },
  },
};
const easyMessage: ItemShape = {
  generated: false,
  fields: {
    content: { check: textOr(list()) },
    role: { check: oneOf('user', 'assistant', 'system', 'developer') },
    type: withDefault(oneOf('message'), () => 'message'),
  },
};
const shapes: Readonly<Record<string, ItemShape>> = {
  function_call: {
    generated: true,
    fields: {
      arguments: { check: text() },
      call_id: { check: text() },
      name: { check: text() },
      type: { check: oneOf('function_call') },
      id: optional(text()),
      status,
    },
  },
  function_call_output: {
    generated: false,
    fields: {
      call_id: { check: text() },
      output: { check: textOr(list()) },
      type: { check: oneOf('function_call_output') },
      id: optional(text()),
      status,
    },
  },
  reasoning: {
    generated: true,
    fields: {
      id: { check: text() },
      summary: { check: list() },
      type: { check: oneOf('reasoning') },
      encrypted_content: optional(text()),
      content: open(),
    },
  },
};

function tokenFields(item: WireMap, generated: boolean): Readonly<Record<string, Field>> {
  const given = TOKEN_FIELDS.filter((name) => (item.get(name) ?? null) !== null).length;
  if (given > 0 && given < TOKEN_FIELDS.length) throw new RaisedInValidator('token fields come together');
  if (!generated || given === 0) return {};
  return {
    prompt_token_ids: { check: list(int()) },
    generation_token_ids: { check: list(int()) },
    generation_log_probs: { check: list(float()) },
    routed_experts: open(),
  };
}

/** One item of an input or output list. `typed`: without `type` the upstream validator raises. */
function itemCheck(typed: boolean): Check {
  return (input: WireValue, loc: Loc, issues: Issue[]) => {
    if (!(input instanceof Map)) return nested({ title: 'Item', extra: 'forbid', fields: {} })(input, loc, issues);
    const type = input.get('type');
    if (typed && typeof type !== 'string') throw new RaisedInValidator('an output item needs a type');
    const message = type === undefined || type === 'message';
    const assistant = message && input.has('id') && Array.isArray(input.get('content'));
    const shape = assistant ? outputMessage : message ? easyMessage : (shapes[type as string] ?? null);
    // An item of another tool (web search and the like) passes as it is.
    if (!shape) return input;
    const fields = { ...tokenFields(input, shape.generated), ...shape.fields };
    return nested({ title: 'Item', extra: 'allow', fields })(input, loc, issues);
  };
}

const paramsTool: Model = {
  title: 'FunctionToolParam',
  extra: 'allow',
  fields: {
    name: { check: text() },
    parameters: { check: nullable(dict()) },
    strict: { check: nullable(bool) },
    type: { check: oneOf('function') },
  },
};
const responseTool: Model = {
  title: 'FunctionTool',
  extra: 'allow',
  fields: {
    name: { check: text() },
    parameters: optional(dict()),
    strict: optional(bool),
    type: { check: oneOf('function') },
    allowed_callers: open(),
    defer_loading: open(),
    description: optional(text()),
    output_schema: open(),
  },
};
const functionsOnly = (model: Model): Check => {
  const known = nested(model);
  return (input, loc, issues) =>
    input instanceof Map && input.get('type') !== 'function' ? input : known(input, loc, issues);
};

/** NeMoGymResponseCreateParamsNonStreaming: unknown keys are refused. */
export const createParams: Model = {
  title: 'NeMoGymResponseCreateParamsNonStreaming',
  extra: 'forbid',
  fields: {
    background: optional(bool),
    include: open(),
    input: { check: textOr(list(itemCheck(false))) },
    instructions: optional(text()),
    max_output_tokens: optional(int()),
    max_tool_calls: optional(int()),
    metadata: optional(dict(text())),
    model: optional(text()),
    parallel_tool_calls: withDefault(bool, () => true),
    previous_response_id: optional(text()),
    prompt: open(),
    reasoning: open(),
    service_tier: open(),
    store: optional(bool),
    temperature: optional(float()),
    text: open(),
    tool_choice: withDefault(anything, () => 'auto'),
    tools: withDefault(list(functionsOnly(paramsTool)), () => []),
    top_logprobs: optional(int()),
    top_p: optional(float()),
    truncation: open(),
    user: optional(text()),
    stream: optional(exactly(false)),
  },
};

const usage: Model = {
  title: 'ResponseUsage',
  extra: 'allow',
  fields: {
    input_tokens: { check: int() },
    input_tokens_details: {
      check: nested({
        title: 'InputTokensDetails',
        extra: 'allow',
        // Older openai packages do not know it; a client that leaves it out is not refused for it here.
        fields: { cache_write_tokens: withDefault(int(), () => 0n), cached_tokens: { check: int() } },
      }),
    },
    output_tokens: { check: int() },
    output_tokens_details: {
      check: nested({ title: 'OutputTokensDetails', extra: 'allow', fields: { reasoning_tokens: { check: int() } } }),
    },
    total_tokens: { check: int() },
  },
};
const reasoning: Model = {
  title: 'Reasoning',
  extra: 'allow',
  fields: { context: open(), effort: open(), generate_summary: open(), mode: open(), summary: open() },
};

/** NeMoGymResponse: unknown keys are kept. */
export const responseModel: Model = {
  title: 'NeMoGymResponse',
  extra: 'allow',
  fields: {
    id: { check: text() },
    created_at: { check: float() },
    error: open(),
    incomplete_details: open(),
    instructions: open(),
    metadata: optional(dict(text())),
    model: { check: text() },
    object: { check: oneOf('response') },
    output: { check: list(itemCheck(true)) },
    parallel_tool_calls: { check: bool },
    temperature: optional(float()),
    tool_choice: { check: anything },
    tools: { check: list(functionsOnly(responseTool)) },
    top_p: optional(float()),
    background: optional(bool),
    completed_at: open(),
    conversation: open(),
    max_output_tokens: optional(int()),
    max_tool_calls: optional(int()),
    moderation: open(),
    previous_response_id: optional(text()),
    prompt: open(),
    prompt_cache_key: open(),
    prompt_cache_options: open(),
    prompt_cache_retention: open(),
    reasoning: optional(nested(reasoning)),
    safety_identifier: open(),
    service_tier: open(),
    status: open(),
    text: open(),
    top_logprobs: optional(int()),
    truncation: open(),
    usage: optional(nested(usage)),
    user: optional(text()),
  },
};
