// The openai package itself drives the model endpoint, and NeMo Gym's data models read its answers.
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createGermanEnvironment } from '../../src/environments/german-environment.ts';
import type { OpenedSession } from '../../src/environments/port.ts';
import { type ModelServer, startModelServer } from '../../workers/serve-model-node.ts';
import { tasks } from '../wire/support/german.ts';
import { pythonWith } from './python-modules.ts';

const withOpenai = pythonWith('openai');
const withGym = pythonWith('nemo_gym.openai_utils');
const withModel = pythonWith('responses_api_models.vllm_model.app');
const reason = withOpenai ? '' : ' (skipped: no Python with openai; name one in SHADERL_INTEROP_PYTHON)';
const gymReason = withGym ? '' : ' (skipped: no Python with nemo-gym; name one in SHADERL_INTEROP_PYTHON)';
const here = fileURLToPath(new URL('./python/', import.meta.url));
const model = fileURLToPath(new URL('../../fixtures/embedded-policy', import.meta.url));
const token = 'interop-bearer-token';

/** What a script prints for an input; it runs beside this process, which serves it. */
async function run(python: string, script: string, input: unknown) {
  // NeMo Gym reads its configuration from these; an empty one keeps it from looking for files.
  const env = { ...process.env, NEMO_GYM_CONFIG_DICT: '{}', NEMO_GYM_CONFIG_PATH: 'policy_model' };
  const child = spawn(python, [script], { cwd: here, env });
  let out = '';
  let err = '';
  child.stdout.on('data', (chunk) => {
    out += chunk;
  });
  child.stderr.on('data', (chunk) => {
    err += chunk;
  });
  child.stdin.end(JSON.stringify(input));
  const status = await new Promise((resolve) => child.once('exit', resolve));
  expect([status, status === 0 ? '' : err]).toEqual([0, '']);
  return JSON.parse(out);
}

let server: ModelServer;
let opened: OpenedSession;
beforeAll(async () => {
  if (!withOpenai && !withGym && !withModel) return;
  opened = await createGermanEnvironment().open(tasks[0]!);
  server = await startModelServer({
    model,
    adapter: null,
    family: 'portable',
    host: '127.0.0.1',
    port: 0,
    token,
    limits: { maxConcurrent: 4, maxWaiting: 16, maxTokens: 256, maxBodyBytes: 1_000_000, deadlineMs: 120_000 },
    context: 1024,
    defaultSeed: 1,
    report: (error) => console.error(error),
  });
});
afterAll(async () => {
  await server?.stop();
});

describe.skipIf(!withOpenai)(`the openai package${reason}`, () => {
  it('reads answers, streams, responses and errors, and sends turns back with their token ids', async () => {
    const { messages, tools } = opened;
    const read = await run(withOpenai!, 'openai_client.py', { url: server.url, token, messages, tools });
    const { turn, second } = read;
    expect(read.model).toBe('embedded-policy');
    expect(read.logprobs).toEqual(turn.generation_log_probs);
    expect(read.usage.completion_tokens).toBe(turn.generation_token_ids.length);
    const seen = [...turn.prompt_token_ids, ...turn.generation_token_ids];
    expect(second.prompt_token_ids.slice(0, seen.length)).toEqual(seen);
    const calls = (turn.tool_calls ?? []).map((call: { function: { name: string; arguments: string } }) => [
      call.function.name,
      call.function.arguments,
    ]);
    expect(read.stream).toEqual({ content: turn.content ?? '', calls });
    expect(read.stream_usage.prompt_tokens).toBe(turn.prompt_token_ids.length);
    expect(read.accumulated.finish_reason).toBe(read.finish_reason);
    expect(read.response.output.at(-1).generation_token_ids).toEqual(turn.generation_token_ids);
    expect(read.errors).toEqual([
      ['BadRequestError', 'unsupported_parameter', 'n'],
      ['NotFoundError', 'model_not_found', 'model'],
      ['AuthenticationError', 'invalid_api_key', null],
      ['NotFoundError', 'unknown_url', null],
    ]);
  });
});

describe.skipIf(!withGym)(`NeMo Gym's data models${gymReason}`, () => {
  it('read both kinds of answers with their token ids and log-probs', async () => {
    const { messages, tools } = opened;
    const post = async (path: string, body: object) => {
      const headers = { 'content-type': 'application/json', authorization: `Bearer ${token}` };
      const reply = await fetch(`${server.url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
      expect(reply.status).toBe(200);
      return reply.json();
    };
    const flat = tools.map((tool) => ({ type: 'function', ...tool.function, strict: true }));
    const body = { temperature: 0.6, seed: 1 };
    const read = await run(withGym!, 'nemo_gym_answers.py', {
      response: await post('/v1/responses', { input: messages, tools: flat, ...body }),
      completion: await post('/v1/chat/completions', { messages, tools, ...body }),
    });
    expect(read.response.generation_token_ids).toEqual(read.completion.generation_token_ids);
    expect(read.response.generation_token_ids.length).toBe(read.response.generation_log_probs.length);
    expect(read.response.prompt_token_ids).toEqual(read.completion.prompt_token_ids);
  });
});

describe.skipIf(!withModel)(`NeMo Gym's model server in front of ours${withModel ? '' : gymReason}`, () => {
  it('gets token ids that go on from turn to turn, and sees an overflow as one', async () => {
    const { messages, tools } = opened;
    const flat = tools.map((tool) => ({ type: 'function', ...tool.function, strict: true }));
    const input = { url: server.url, token, messages, tools: flat };
    // The ids come inline, or from log-probs and /tokenize.
    for (const inline of [true, false]) {
      const { turns, overflow } = await run(withModel!, 'nemo_gym_model.py', { ...input, inline });
      const [first, second] = turns.map((items: Record<string, number[]>[]) => items.at(-1)!);
      const seen = [...first.prompt_token_ids, ...first.generation_token_ids];
      expect(first.generation_log_probs).toHaveLength(first.generation_token_ids.length);
      expect(second.prompt_token_ids.slice(0, seen.length)).toEqual(seen);
      expect(second.prompt_token_ids.length).toBeGreaterThan(seen.length);
      expect(overflow).toEqual({ reason: 'max_output_tokens' });
    }
  });
});
