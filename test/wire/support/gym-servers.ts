// The NeMo Gym servers that were recorded, written anew from the README of test/golden/wire and the records: counter,
// weather, workplace, fault, guess. They are test doubles of other people's servers, served by our own server.
import { toWire, type WireMap, type WireValue } from '../../../src/environments/service/wire-json.ts';
import { type ResourcesServer, rowModel } from '../../../workers/services/nemo-gym-server.ts';
import { int, type Model, text } from '../../../workers/services/pydantic.ts';
import { HttpError, PythonError } from '../../../workers/services/python-errors.ts';

const model = (title: string, fields: Model['fields'], extra: Model['extra'] = 'ignore'): Model => ({
  title,
  extra,
  fields,
});
const noFields = model('Base', {});
const none = { openSessions: () => 0 };

export function counterServer(): ResourcesServer {
  const counts = new Map<string, bigint>();
  return {
    ...none,
    className: 'StatefulCounterResourcesServer',
    name: 'example_session_state_mgmt_resources_server',
    seed: {
      model: model('Seed', { initial_count: { check: int() } }),
      run(body, session) {
        if (!counts.has(session)) counts.set(session, body.get('initial_count') as bigint);
        return { json: new Map() };
      },
    },
    tools: {
      increment_counter: {
        model: model('Increment', { count: { check: int() } }),
        run(body, session) {
          counts.set(session, (counts.get(session) ?? 0n) + (body.get('count') as bigint));
          return { json: toWire({ success: true }) };
        },
      },
      get_counter_value: {
        model: null,
        run(_body, session) {
          if (!counts.has(session)) counts.set(session, 0n);
          return { json: toWire({ count: counts.get(session) }) };
        },
      },
    },
    verify: {
      columns: { expected_count: { check: int() } },
      run: (body, session) =>
        new Map<string, WireValue>([['reward', counts.get(session) === body.get('expected_count') ? 1 : 0]]),
    },
  };
}

export function weatherServer(): ResourcesServer {
  return {
    ...none,
    className: 'SimpleWeatherResourcesServer',
    name: 'example_single_tool_call',
    seed: { model: noFields, run: () => ({ json: new Map() }) },
    tools: {
      get_weather: {
        model: model('Weather', { city: { check: text() } }),
        run(body) {
          const city = body.get('city') as string;
          return { json: toWire({ city, weather_description: `The weather in ${city} is cold.` }) };
        },
      },
    },
    verify: { columns: {}, run: () => new Map<string, WireValue>([['reward', 1]]) },
  };
}

export function workplaceServer(): ResourcesServer {
  const seeded = new Set<string>();
  return {
    ...none,
    className: 'WorkbenchResourcesServer',
    name: 'workplace_assistant',
    seed: {
      model: noFields,
      run(_body, session) {
        seeded.add(session);
        return { json: new Map() };
      },
    },
    tools: {},
    catchAll(body, session, { path }) {
      if (!seeded.has(session)) throw new HttpError(400, 'Session not initialized. Please call seed_session first.');
      const name = path.slice(1);
      const failed = (detail: string) => ({ json: toWire({ output: `Error executing tool '${name}': ${detail}` }) });
      if (name === 'company_directory_find_email_address') return { json: toWire({ output: ['raj.patel@atlas.com'] }) };
      if (name !== 'email_send_email') return failed(`'${name}'`);
      const wrong = [...body.keys()].find((key) => key !== 'recipient');
      return failed(`EmailTool.send_email() got an unexpected keyword argument '${wrong}'`);
    },
  };
}

export function faultServer(): ResourcesServer {
  const name = 'fault_resources_server';
  const plain = (run: ResourcesServer['tools'][string]['run']) => ({ model: null, run });
  return {
    ...none,
    className: 'FaultResourcesServer',
    name,
    reverifyMode: 'stateless',
    seed: { model: noFields, run: () => ({ json: new Map() }) },
    tools: {
      raise_value_error: plain(() => {
        throw new PythonError('ValueError', 'bad "value" ☃');
      }),
      raise_key_error: plain(() => {
        throw new PythonError('KeyError', 'missing');
      }),
      http_exception: plain(() => {
        throw new HttpError(409, 'conflict');
      }),
      inner_error: plain(() => {
        const own = `FaultResourcesServer___${name}`;
        const repr = `Hit an exception in ${own} calling an inner server: b'{"detail":"inner"}'`;
        throw new PythonError('InnerError', null, '', repr);
      }),
      plain_text: plain(() => ({ text: 'plain' })),
      string_result: plain(() => ({ json: 'a "quoted" string' })),
      null_result: plain(() => ({ json: null })),
      list_result: plain(() => ({ json: [1n, 2, true, null, new Map([['a', []]])] })),
      unicode_result: plain(() => ({ json: toWire({ text: 'é ☃ 😀 \u2028 </script> \u0001' }) })),
      nan_result: plain(() => ({ json: new Map([['value', Number.NaN]]) })),
      whoami: plain((_body, _session, { path }) => ({ json: toWire({ path, has_session: true }) })),
      echo: {
        model: model('Echo', { text: { check: text() }, times: { check: int(), fallback: () => 1n } }),
        run: (body) => ({ json: body }),
      },
    },
    verify: {
      columns: { mode: { check: text() } },
      run(body): WireMap {
        const mode = body.get('mode');
        if (mode === 'raise') throw new PythonError('RuntimeError', 'verify broke');
        if (mode === 'http') throw new HttpError(503, 'try later');
        if (mode === 'nan') {
          return new Map<string, WireValue>([
            ['reward', Number.NaN],
            ['reward_components', new Map([['a', Number.NaN]])],
          ]);
        }
        if (mode === 'judge') {
          return new Map<string, WireValue>([
            ['mode', 'judge'],
            ['reward', 0],
            ['_ng_failure_class', 'judge_failed'],
            ['_ng_failure_judge_error', 'TimeoutError: judge timed out'],
          ]);
        }
        return new Map<string, WireValue>([
          ['reward', 0.5],
          [
            'reward_components',
            new Map([
              ['a', 1],
              ['b', 0],
            ]),
          ],
        ]);
      },
    },
  };
}

export function guessServer(): ResourcesServer {
  const tries = new Map<string, number>();
  const row = (withResponse: boolean): Model => ({ ...rowModel({}, withResponse), extra: 'allow' });
  return {
    ...none,
    className: 'GuessEnv',
    name: 'guess_env',
    tools: {
      reset: {
        model: row(false),
        run(body, session) {
          tries.set(session, 0);
          const keys = [...body.keys()].filter((key) => key !== 'responses_create_params');
          return { json: toWire({ observation: 'guess a number', info: { keys } }) };
        },
      },
      step: {
        model: row(true),
        run(body, session) {
          const output = (body.get('response') as WireMap).get('output') as WireMap[];
          const said = ((output[0]!.get('content') as WireMap[])[0]!.get('text') ?? '') as string;
          if (said === 'raise') throw new PythonError('RuntimeError', 'step broke');
          const count = (tries.get(session) ?? 0) + 1;
          tries.set(session, count);
          const over = said === '7' || count === 3;
          if (over) tries.delete(session);
          const reply: WireMap = new Map<string, WireValue>([
            ['observation', over ? null : 'wrong'],
            ['reward', said === '7' ? 1 : count === 3 ? 0 : -0.1],
            ['terminated', said === '7'],
            ['truncated', said !== '7' && count === 3],
            ['info', toWire(over ? { tries: count } : { tool_outputs: [] })],
          ]);
          return { json: reply };
        },
      },
    },
  };
}
