// The file of a service's tasks: what a line may hold, and refusals that name file, line, value and remedy.
import { describe, expect, it, test } from 'vitest';
import { createNemoGymPort } from '../../src/environments/nemo-gym/client.ts';
import { readTasks } from '../../src/environments/service/task-file.ts';
import { ownServiceSection } from '../../src/experiment/service.ts';
import { PlanError } from '../../src/lib/errors.ts';
import { resolveRunConfig } from '../../src/run-config.ts';

const row = { responses_create_params: { input: 'Add one.', tools: [{ type: 'function', name: 'add' }] }, answer: 42 };
const line = (value: unknown) => `${JSON.stringify(value)}\n`;

function refusal(protocol: 'nemo-gym' | 'openenv', text: string): string {
  try {
    readTasks(protocol, 'data/rows.jsonl', text);
  } catch (error) {
    if (error instanceof PlanError) return `${error.code}: ${error.message}`;
    throw error;
  }
  return 'not refused';
}

describe('a file of tasks', () => {
  it('gives each line an id of its own, by its index or its line, and hands it on whole', () => {
    const text = `${line({ ...row, _ng_task_index: 7 })}\r\n${line(row)}`;
    const tasks = readTasks('nemo-gym', 'data/rows.jsonl', text);
    expect(tasks.map(({ id }) => id)).toEqual(['rows.jsonl:7', 'rows.jsonl:3']);
    expect(tasks[1]!.payload).toEqual(row);
    const reset = { reset: { seed: 1, level: [2] }, messages: [{ role: 'user', content: 'Go.' }] };
    expect(readTasks('openenv', 'a.jsonl', `${line(reset)}{}`)).toEqual([
      { id: 'a.jsonl:1', payload: reset },
      { id: 'a.jsonl:2', payload: {} },
    ]);
  });

  it('refuses what could not be rolled out', () => {
    const { responses_create_params: params } = row;
    const history = {
      input: [
        { role: 'user', content: 'x' },
        { type: 'function_call', name: 'add' },
      ],
    };
    const refusals = [
      refusal('nemo-gym', `${line(row)}{"a":`),
      refusal('nemo-gym', '[1]\n'),
      refusal('nemo-gym', `${line(row)}\n${line({ responses_create_params: {} })}`),
      refusal('nemo-gym', line({ responses_create_params: { ...params, ...history } })),
      refusal(
        'nemo-gym',
        line({ responses_create_params: { ...params, tools: [{ type: 'function', name: 'verify' }] } }),
      ),
      refusal('nemo-gym', line({ ...row, _ng_task_index: 1 }) + line({ ...row, _ng_task_index: 1 })),
      refusal('nemo-gym', '{"responses_create_params":{"input":"x"},"id":12345678901234567891}'),
      refusal('nemo-gym', '\n'),
      refusal('openenv', line({ reset: 5 })),
      refusal('openenv', line({ reset: { episode_id: 'e' } })),
      refusal('openenv', line(row)),
    ];
    expect(refusals).toMatchInlineSnapshot(`
      [
        "bad-row: reading data/rows.jsonl, line 2: found "{\\"a\\":" (Unexpected end of JSON input); wanted one JSON object on each line. Correct the line.",
        "bad-row: reading data/rows.jsonl, line 1: found "[1]"; wanted a JSON object. Correct the line.",
        "bad-row: reading data/rows.jsonl, line 3: reading row rows.jsonl:3: "responses_create_params.input": found nothing; a NeMo Gym row with responses_create_params (Invalid input) is wanted. Correct the dataset.",
        "bad-row: reading data/rows.jsonl, line 1: reading row rows.jsonl:1: "responses_create_params.input[1]": found {"type":"function_call","name":"add"}; messages with role and text alone, without calls and their results is wanted. Correct the dataset.",
        "bad-row: reading data/rows.jsonl, line 1: reading row rows.jsonl:1: tool "verify" is a route of the protocol; another name is wanted. Correct the dataset.",
        "bad-row: reading data/rows.jsonl, line 2: found the id rows.jsonl:1, which line 1 has; wanted one of its own, because each task is one group. Remove the repeated row.",
        "bad-row: reading data/rows.jsonl, line 1: found the integer 12345678901234567891; wanted one within 2^53, as others lose digits. Write it as a string.",
        "no-tasks: reading data/rows.jsonl: found no line; wanted a task on each. Give the JSONL file of the nemo-gym tasks.",
        "bad-row: reading data/rows.jsonl, line 1: reading task rows.jsonl:1: "payload.reset": found 5 (Invalid input: expected record, received number); wanted {"reset": {...}, "messages": [...]}, both optional. Correct the task.",
        "bad-row: reading data/rows.jsonl, line 1: reading task rows.jsonl:1: "payload.reset.episode_id": found "e"; wanted none, because the client names each session itself. Correct the task.",
        "bad-row: reading data/rows.jsonl, line 1: reading task rows.jsonl:1: "payload": found {"responses_create_params":{"input":"Add one.","tools":[{... (Unrecognized keys: "responses_create_params", "answer"); wanted {"reset": {...}, "messages": [...]}, both optional. Correct the task.",
      ]
    `);
  });
});

describe('a run configuration', () => {
  const config = (data: unknown, service?: unknown, grpo = {}) =>
    resolveRunConfig(JSON.stringify({ model: 'm', output: 'o', data, service, grpo }), 'run.json');
  const url = 'http://127.0.0.1:8000';
  const problems = (data: unknown, service?: unknown, grpo = {}) =>
    config(data, service, grpo).then(
      () => [],
      (error: Error) => error.message.split('\n'),
    );

  test('names protocol, tasks and service, and all tasks of the file are meant', async () => {
    const { config: run } = await config({ environment: 'nemo-gym', tasks: 'rows.jsonl' }, { url, style: 'gymnasium' });
    expect(run.data).toMatchObject({ environment: 'nemo-gym', tasks: 'rows.jsonl', count: 0 });
    expect(run.service).toEqual(ownServiceSection.parse({ url, style: 'gymnasium' }));
    // Resolving what was resolved changes nothing: the file in the run's folder is read again.
    const again = await resolveRunConfig(JSON.stringify(run), 'again');
    expect(again.sha256).toBe((await resolveRunConfig(JSON.stringify(again.config), 'again')).sha256);
    expect(again.config).toEqual(run);
  });

  test('is refused where its parts do not fit', async () => {
    expect([
      await problems({ tasks: 'rows.jsonl' }),
      await problems({}, { url }),
      await problems({ environment: 'openenv' }),
      await problems({ environment: 'openenv', tasks: 't' }, {}),
      await problems({ environment: 'openenv', tasks: 't' }, { url, mcp: 'always' }),
      await problems({ environment: 'nemo-gym', tasks: 't' }, { url, maxSessions: 2 }),
      await problems({ environment: 'nemo-gym', tasks: 't' }, { url: 'localhost:1', rewardRule: 'sum' }),
      await problems({ environment: 'nemo-gym', tasks: 't', count: 1 }, { url }, { groupsPerStep: 2 }),
      await problems({ environment: 'nemogym', tasks: 't' }, { url }),
      await problems({ environment: 'nemo-gym', tasks: 't' }, { ulr: url }),
      await problems({ environment: 'openenv', tasks: 't' }, { url, identity: { digests: { '/metadata': 'f3' } } }),
      await problems(
        { environment: 'openenv', tasks: 't' },
        { url, identity: { digests: { '/openapi.json': 'a'.repeat(64) }, packages: { openenv: '0.10.0' } } },
      ),
    ]).toMatchInlineSnapshot(`
      [
        [
          "reading run.json: "data.tasks": found it beside data.environment german; wanted a protocol there, nemo-gym or openenv. Name the protocol, or leave the key out: the german task makes its own episodes, and \`--env\` says who serves it.",
        ],
        [
          "reading run.json: "service": found it beside data.environment german; wanted a protocol there, nemo-gym or openenv. Name the protocol, or leave the key out: the german task makes its own episodes, and \`--env\` says who serves it.",
        ],
        [
          "reading run.json: "data.tasks": found nothing; wanted the JSONL file of the openenv tasks. Add it.",
          ""service": found nothing; wanted service.url or service.command of the openenv service. Add it.",
        ],
        [
          "reading run.json: "service.url": found null; wanted the address of the service, or service.command, which starts it. Correct the value.",
        ],
        [
          "reading run.json: "service.mcp": found "always"; wanted none: it is of protocol nemo-gym. Correct the value.",
        ],
        [
          "reading run.json: "service.maxSessions": found 2; wanted at least 4, grpo.groupSize * grpo.groupsPerStep: each rollout of a step holds a session. Correct the value.",
        ],
        [
          "reading run.json: "service.url": found "localhost:1"; wanted http(s)://host:port and nothing after it. Correct the value.",
          ""service.rewardRule": found "sum"; wanted none: it is of protocol openenv. Correct the value.",
        ],
        [
          "reading run.json: "data.count": found 1; wanted at least grpo.groupsPerStep, 2. Raise it or take fewer groups a step.",
        ],
        [
          "reading run.json: "data.environment": found "nemogym"; wanted one of "german", "nemo-gym", "openenv". Correct the value.",
        ],
        [
          "reading run.json: found the unknown key "service.ulr"; the nearest known key is "service.url". Rename or remove the key.",
        ],
        [
          "reading run.json: "service.identity.digests./metadata": found "f3"; wanted 64 lower-case hex digits, a SHA-256. Correct the value.",
        ],
        [
          "reading run.json: "service.identity.digests": found "/openapi.json"; wanted one of /health, /metadata, /schema. Correct the value.",
          ""service.identity.packages": found {"openenv":"0.10.0"}; wanted service.command beside it. Correct the value.",
        ],
      ]
    `);
  });
});

test('a client that is told to use MCP only does not take routes instead', async () => {
  const http = async () => ({ status: 200, contentType: 'application/json', setCookies: [], headers: {}, text: '{}' });
  const port = createNemoGymPort({ url: 'http://h:1', maxSessions: 1, tasks: 'row', mcp: 'always' }, http);
  await expect(port.open({ id: 'a', payload: row })).rejects.toMatchObject({ code: 'service-protocol' });
});
