// The environments that the recorded OpenEnv servers ran, written anew from the README of test/golden/wire: LineEnv and
// ToolEnv. They are test doubles of other people's environments, served by our own server.
import type { WireMap, WireValue } from '../../../src/environments/service/wire-json.ts';
import type {
  EnvironmentClass,
  EnvironmentInstance,
  StepOutcome,
} from '../../../workers/services/openenv-environment.ts';
import { CALL_TOOL_OBSERVATION_SCHEMA, CALL_TOOL_SCHEMA } from '../../../workers/services/openenv-schemas.ts';
import { callToolResult, toolBox } from '../../../workers/services/openenv-tools.ts';
import {
  dict,
  int,
  type Model,
  nullable,
  oneOf,
  RaisedInValidator,
  text,
  validate,
} from '../../../workers/services/pydantic.ts';
import { PythonError } from '../../../workers/services/python-errors.ts';
import { readTranscript } from './transcript.ts';

const map = (entries: [string, WireValue][]): WireMap => new Map(entries);

const lineAction: Model = {
  title: 'LineAction',
  extra: 'forbid',
  fields: {
    metadata: { check: dict(), fallback: () => new Map() },
    op: { check: oneOf('move', 'say', 'raise', 'slow', 'value') },
    by: { check: int({ ge: -3, le: 3 }), fallback: () => 0n },
    text: { check: nullable(text()), fallback: () => null },
  },
  after(action) {
    if (action.get('text') === 'forbidden') throw new RaisedInValidator('text is forbidden');
  },
};

const lineState: Model = {
  title: 'LineState',
  extra: 'allow',
  fields: {
    episode_id: { check: nullable(text()), fallback: () => null },
    step_count: { check: int(), fallback: () => 0n },
    position: { check: int(), fallback: () => 0n },
    goal: { check: int(), fallback: () => 2n },
    start: { check: int(), fallback: () => 0n },
  },
};

const SPECIAL: Readonly<Record<string, { reward: StepOutcome['reward']; value: WireValue }>> = {
  int: { reward: 1n, value: 9007199254740993n },
  bool: { reward: true, value: [true, null, 1, 1e21, 1e-7, 0.1, -0] },
  nan: { reward: Number.NaN, value: [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY] },
  bytes: { reward: 0, value: 'abc' },
  tuple: { reward: 0, value: [1n, map([['a', [2n]]])] },
  // Something that no JSON writer knows.
  unserialisable: { reward: 0, value: Symbol('object') as unknown as WireValue },
};

/** The unicode value is the recorded one: it holds characters that editors change. */
const unicodeValue = (): WireValue => {
  const line = readTranscript('openenv', 'ws-values').lines.find((l) => l.dir === '<' && l.text?.includes('"unicode"'));
  return map([['text', JSON.parse(line!.text!).data.observation.value.text]]);
};

interface LineOptions {
  /** Resets itself in the constructor. */
  free?: boolean;
  /** An async reset that takes **kwargs and names the unknown ones. */
  anyKwargs?: boolean;
}

function createLineEnv({ free = false, anyKwargs = false }: LineOptions): EnvironmentInstance {
  let resets = 0;
  let state: WireMap | null = null;
  const observe = (
    message: string,
    reward: StepOutcome['reward'],
    done = false,
    value: WireValue = null,
  ): StepOutcome => ({
    observation: map([
      ['position', state!.get('position')!],
      ['goal', 2n],
      ['message', message],
      ['value', value],
    ]),
    reward,
    done,
  });
  function reset(kwargs: WireMap): StepOutcome {
    resets += 1;
    const start = kwargs.has('start') ? kwargs.get('start')! : 0n;
    const unknown = [...kwargs.keys()].filter((name) => !['seed', 'episode_id', 'start'].includes(name)).sort();
    const before = state;
    try {
      state = validate(
        lineState,
        map([
          ['episode_id', kwargs.get('episode_id') ?? (free && resets === 1 ? 'ep-free' : `ep-${resets}`)],
          ['step_count', 0n],
          ['position', start],
          ['goal', 2n],
          ['start', start],
          ['seed', kwargs.get('seed') ?? null],
        ]),
      );
    } catch (error) {
      state = before;
      throw error;
    }
    const message = anyKwargs && unknown.length > 0 ? `kwargs ${unknown.join(',')}` : `reset ${resets}`;
    return observe(message, null);
  }
  if (free) reset(new Map());
  return {
    reset,
    async step(action) {
      if (!state) throw new PythonError('RuntimeError', 'call reset() before step()');
      const op = action.get('op');
      const said = (action.get('text') ?? '') as string;
      if (op === 'raise') {
        if (said === 'KeyError') throw new PythonError('KeyError', 'missing', "'missing'");
        throw new PythonError('RuntimeError', said === 'empty' ? null : said);
      }
      state.set('step_count', (state.get('step_count') as bigint) + 1n);
      if (op === 'say') return observe(`said ${said}`, 0n);
      if (op === 'slow') {
        await new Promise((resolve) => setTimeout(resolve, Number(said) * 1000));
        return observe('slow done', 0);
      }
      if (op === 'value') {
        const special = SPECIAL[said] ?? { reward: 0.5, value: unicodeValue() };
        return observe(said, special.reward, false, special.value);
      }
      state.set('position', (state.get('position') as bigint) + (action.get('by') as bigint));
      const there = (state.get('position') as bigint) >= 2n;
      return observe('moved', there ? 1 : -0.1, there);
    },
    state: () =>
      state ??
      map([
        ['episode_id', null],
        ['step_count', 0n],
      ]),
    close() {},
  };
}

/** A schema's text out of the recorded /schema reply: the reference server shows what its environment declares. */
function recordedSchema(key: 'action' | 'observation'): string {
  const body = readTranscript('openenv', 'http-info').lines[3]!.body!;
  const bounds = {
    action: ['{"action":', ',"observation":{"additional'],
    observation: ['},"observation":', ',"state":{"additional'],
  };
  const [from, to] = bounds[key] as [string, string];
  const start = body.indexOf(from) + from.length;
  return body.slice(start, body.indexOf(to, start));
}

export function lineClass(options: LineOptions & { broken?: boolean } = {}): EnvironmentClass {
  return {
    name: 'LineEnv',
    description: 'LineEnv environment',
    version: '1.0.0',
    factoryName: options.broken ? 'broken_factory' : 'LineEnv',
    resetParameters: options.anyKwargs ? 'any' : ['seed', 'episode_id', 'start'],
    action: lineAction,
    actionSchema: recordedSchema('action'),
    observationSchema: recordedSchema('observation'),
    create() {
      if (options.broken) throw new Error('no instance today');
      return createLineEnv(options);
    },
  };
}

const meta = map([
  ['fastmcp', map([['wrap_result', true]])],
  [
    'io.modelcontextprotocol/serverInfo',
    map([
      ['name', 'tool-env'],
      ['version', '4.0.10'],
    ]),
  ],
]);

const schema = (properties: [string, string][], rest: [string, WireValue][]): WireMap =>
  map([
    ...rest,
    ['properties', map(properties.map(([name, type]) => [name, map([['type', type]])]))],
    ['required', properties.map(([name]) => name)],
  ]);

const box = () =>
  toolBox([
    {
      name: 'add',
      title: 'Add',
      description: 'Add two integers.',
      inputSchema: schema(
        [
          ['a', 'integer'],
          ['b', 'integer'],
        ],
        [
          ['type', 'object'],
          ['additionalProperties', false],
        ],
      ),
      outputSchema: map([
        ['properties', map([['result', map([['type', 'integer']])]])],
        ['required', ['result']],
        ['type', 'object'],
        ['x-fastmcp-wrap-result', true],
      ]),
      arguments: { a: { check: int() }, b: { check: int() } },
      run(args) {
        const [a, b] = [args.get('a') as bigint, args.get('b') as bigint];
        if (a === 13n)
          return { ok: false, type: 'execution_error', message: "Error calling tool 'add': unlucky number" };
        return { ok: true, result: callToolResult(a + b, meta) };
      },
    },
  ]);

export function toolClass(): EnvironmentClass {
  return {
    name: 'ToolEnv',
    description: 'ToolEnv environment',
    version: '1.0.0',
    factoryName: 'ToolEnv',
    resetParameters: ['seed', 'episode_id'],
    action: null,
    actionSchema: CALL_TOOL_SCHEMA,
    observationSchema: CALL_TOOL_OBSERVATION_SCHEMA,
    create() {
      let tools: ReturnType<typeof box> | null = box();
      let episode: string | null = null;
      return {
        reset() {
          episode = 'ep';
          return { observation: new Map(), reward: 0, done: false };
        },
        step: () => {
          throw new PythonError('RuntimeError', 'unused');
        },
        state: () =>
          map([
            ['episode_id', episode],
            ['step_count', 0n],
          ]),
        close() {
          tools = null;
        },
        tools: () => tools,
      };
    },
  };
}
