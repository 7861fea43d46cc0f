// Steps of environments with tools: list_tools, call_tool, and the models and texts around them.
// Not JSON-RPC (openenv-rpc.ts). Invariant: a tool that fails is an observation, never an error frame.
import { emitWireJson, type WireMap, type WireValue } from '../../src/environments/service/wire-json.ts';
import type { EnvironmentInstance, StepOutcome, ToolBox, ToolOutcome } from './openenv-environment.ts';
import { dict, type Issue, type Model, oneOf, text, validate, validationText } from './pydantic.ts';

const metadata = { check: dict(), fallback: (): WireValue => new Map() };

const listToolsAction: Model = {
  title: 'ListToolsAction',
  extra: 'forbid',
  fields: { metadata, type: { check: oneOf('list_tools'), fallback: () => 'list_tools' } },
};
const callToolAction: Model = {
  title: 'CallToolAction',
  extra: 'forbid',
  fields: {
    metadata,
    type: { check: oneOf('call_tool'), fallback: () => 'call_tool' },
    tool_name: { check: text() },
    arguments: { check: dict(), fallback: () => new Map() },
  },
};

/** What an environment whose tools are gone answers. */
export const CLOSED_TEXT = 'MCP client is not available; environment is closed';

const map = (entries: [string, WireValue][]): WireMap => new Map(entries);

/** A dumped CallToolResult of a value, as FastMCP makes it. `meta` is the server's. */
export function callToolResult(data: WireValue, meta: WireValue = null): WireMap {
  const shown = typeof data === 'string' ? data : emitWireJson(data);
  return map([
    [
      'content',
      [
        map([
          ['type', 'text'],
          ['text', shown],
          ['annotations', null],
          ['meta', null],
        ]),
      ],
    ],
    ['structured_content', data instanceof Map ? data : map([['result', data]])],
    ['meta', meta],
    ['data', data],
    ['is_error', false],
  ]);
}

/** A step of an environment of tools. `data` is the message's. Throws ValidationError. */
export async function toolStep(instance: EnvironmentInstance, data: WireMap): Promise<StepOutcome> {
  const box = instance.tools?.() ?? null;
  if (data.get('type') === 'list_tools') {
    validate(listToolsAction, data);
    const tools = (box?.list() ?? []).map(({ name, description, inputSchema }) =>
      map([
        ['name', name],
        ['description', description],
        ['input_schema', inputSchema],
      ]),
    );
    return { observation: map([['tools', tools]]), reward: null, done: false };
  }
  const action = validate(callToolAction, data);
  const name = action.get('tool_name') as string;
  const outcome: ToolOutcome = box
    ? await box.call(name, action.get('arguments') as WireMap, action.get('metadata') as WireMap)
    : { ok: false, type: 'execution_error', message: CLOSED_TEXT };
  const observation = map([['tool_name', name]]);
  if (outcome.ok) {
    observation.set('result', outcome.result).set('error', null);
    const { reward = null, done = false, metadata: meta } = outcome;
    return meta ? { observation, reward, done, metadata: meta } : { observation, reward, done };
  }
  const error = map([
    ['error_type', outcome.type],
    ['message', outcome.message],
  ]);
  observation.set('result', null).set('error', error);
  return { observation, reward: null, done: false };
}

/** A tool with typed arguments. */
export interface Tool {
  name: string;
  title: string;
  description: string;
  inputSchema: WireValue;
  outputSchema: WireValue;
  /** Name -> check; all are required. */
  arguments: Model['fields'];
  run(args: WireMap): ToolOutcome | Promise<ToolOutcome>;
}

/** FastMCP's checks of arguments: missing and unexpected ones, and types; the error type is guessed from the text. */
function checkArguments(tool: Tool, args: WireMap): WireMap | ToolOutcome {
  const issues: Issue[] = [];
  const value: WireMap = new Map();
  for (const [name, { check }] of Object.entries(tool.arguments)) {
    if (!args.has(name)) {
      issues.push({ type: 'missing_argument', loc: [name], msg: 'Missing required argument', input: args });
      continue;
    }
    const checked = check(args.get(name)!, [name], issues);
    if (checked !== undefined) value.set(name, checked);
  }
  for (const [name, extra] of args) {
    if (Object.hasOwn(tool.arguments, name)) continue;
    issues.push({ type: 'unexpected_keyword_argument', loc: [name], msg: 'Unexpected keyword argument', input: extra });
  }
  if (issues.length === 0) return value;
  const counted = issues.some(({ type }) => type === 'missing_argument' || type === 'unexpected_keyword_argument');
  const type = counted ? 'invalid_args' : 'execution_error';
  return { ok: false, type, message: validationText(`call[${tool.name}]`, issues) };
}

/** A box of typed tools. */
export function toolBox(tools: readonly Tool[]): ToolBox {
  return {
    list: () => tools,
    async call(name, args) {
      const tool = tools.find((candidate) => candidate.name === name);
      if (!tool) return { ok: false, type: 'tool_not_found', message: `Unknown tool: '${name}'` };
      const checked = checkArguments(tool, args);
      return checked instanceof Map ? tool.run(checked) : checked;
    },
  };
}
