import { spawn } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createGermanEnvironment } from '../../src/environments/german-environment.ts';
import { devTasks } from '../../src/environments/german-task.ts';
import type { Message, ToolSpec } from '../../src/environments/port.ts';
import {
  type ModelServer,
  readToken,
  type ServeModelOptions,
  startModelServer,
} from '../../workers/serve-model-node.ts';
import { runCli } from '../support/cli-terminal.ts';
import { goldenPath } from '../support/golden.ts';
import { CHATML, smallTokenizerJson } from '../support/small-text.ts';

const model = fileURLToPath(new URL('../../fixtures/embedded-policy', import.meta.url));
const reported: unknown[] = [];
const defaults: ServeModelOptions = {
  model,
  adapter: null,
  family: 'portable',
  host: '127.0.0.1',
  port: 0,
  token: null,
  limits: { maxConcurrent: 4, maxWaiting: 8, maxTokens: 700, maxBodyBytes: 200_000, deadlineMs: 120_000 },
  context: 1024,
  defaultSeed: null,
  report: (error) => reported.push(error),
};

const env = createGermanEnvironment();
let messages: Message[];
let tools: ToolSpec[];
let server: ModelServer;
beforeAll(async () => {
  ({ messages, tools } = await env.open(devTasks(7, 1)[0]!));
  server = await startModelServer(defaults);
});
afterAll(async () => {
  await server.stop();
  expect(reported).toEqual([]);
});

const sendTo = (
  to: ModelServer,
  path: string,
  body: unknown,
  headers: Record<string, string> = {},
  signal?: AbortSignal,
) =>
  fetch(`${to.url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
    signal: signal ?? null,
  });
async function ask(body: object, to = server) {
  const reply = await sendTo(to, '/v1/chat/completions', { messages, tools, ...body });
  expect(reply.status).toBe(200);
  return (await reply.json()) as Reply;
}
interface Turn {
  role: string;
  content: string | null;
  raw_text: string;
  tool_calls?: { id: string; function: { name: string; arguments: string } }[];
  prompt_token_ids: number[];
  generation_token_ids: number[];
  generation_log_probs: number[];
}
interface Reply {
  choices: [{ message: Turn; finish_reason: string; logprobs: { content: { logprob: number }[] } | null }];
  usage: { prompt_tokens: number; completion_tokens: number; prompt_tokens_details: { cached_tokens: number } };
  seed: number;
}
const turnOf = (reply: Reply) => reply.choices[0].message;
const sampledOf = ({ generation_token_ids: ids, generation_log_probs: logprobs }: Turn) => ({ ids, logprobs });
const health = async (of = server) => (await (await fetch(`${of.url}/health`)).json()) as Record<string, unknown>;

describe('the model endpoint', () => {
  it('samples what `shaderl sample` samples, bit for bit', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'shaderl-serve-'));
    writeFileSync(join(folder, 'messages.json'), JSON.stringify(messages));
    writeFileSync(join(folder, 'tools.json'), JSON.stringify(tools));
    const files = ['--messages', join(folder, 'messages.json'), '--tools', join(folder, 'tools.json')];
    const settings = ['--temperature', '0.9', '--top-k', '0', '--top-p', '0.95', '--seed', '3', '--max-tokens', '60'];
    const ran = await runCli('sample', '--json', '--model', model, ...files, ...settings);
    rmSync(folder, { recursive: true });
    const { ids, logprobs, sources } = JSON.parse(ran.stdout) as {
      ids: number[];
      logprobs: number[];
      sources: string[];
    };
    const turn = turnOf(await ask({ temperature: 0.9, top_p: 0.95, seed: 3, max_tokens: 60 }));
    const prompt = sources.indexOf('sampled');
    expect(turn.prompt_token_ids).toEqual(ids.slice(0, prompt));
    expect(sampledOf(turn)).toEqual({ ids: ids.slice(prompt), logprobs: logprobs.slice(prompt) });
  });

  it('gives a request the same ids and log-probs alone and among others with other settings', async () => {
    const wanted = { temperature: 1, seed: 11, max_tokens: 80, logprobs: true };
    const alone = await ask(wanted);
    const others = [0, 0.5, 1, 1.3].flatMap((temperature) =>
      [1, 2].map((seed) => ask({ temperature, seed, max_tokens: 40, top_k: seed === 1 ? 0 : 5 })),
    );
    const among = await ask(wanted);
    const all = await Promise.all(others);
    expect(sampledOf(turnOf(among))).toEqual(sampledOf(turnOf(alone)));
    expect(among.choices[0].logprobs!.content.map(({ logprob }) => logprob)).toEqual(
      turnOf(alone).generation_log_probs,
    );
    expect(new Set(all.map((reply) => JSON.stringify(sampledOf(turnOf(reply))))).size).toBeGreaterThan(3);
  });

  it('plays an episode in which each prompt begins with all ids so far, scored as in one sequence', async () => {
    const task = devTasks(7, 1)[0]!;
    const { sessionId } = await env.open(task);
    const history: object[] = [...messages];
    let seen: number[] = [];
    let turns = 0;
    for (;;) {
      const reply = await ask({ messages: history, temperature: 0.6, seed: 1, max_tokens: 100 });
      const turn = turnOf(reply);
      expect(turn.prompt_token_ids.slice(0, seen.length)).toEqual(seen);
      expect(reply.usage.prompt_tokens_details.cached_tokens).toBeGreaterThanOrEqual(Math.max(0, seen.length - 1));
      seen = [...turn.prompt_token_ids, ...turn.generation_token_ids];
      history.push(turn);
      turns += 1;
      if (!turn.tool_calls) break;
      for (const { id, function: call } of turn.tool_calls) {
        const { content } = await env.call(sessionId, call.name, call.arguments);
        history.push({ role: 'tool', tool_call_id: id, content });
      }
    }
    expect(turns).toBeGreaterThan(1);
    const folder = mkdtempSync(join(tmpdir(), 'shaderl-serve-'));
    writeFileSync(join(folder, 'ids.json'), JSON.stringify(seen));
    const argv = ['--model', model, '--ids', join(folder, 'ids.json'), '--temperature', '0.6'];
    const scored = JSON.parse((await runCli('score', '--json', ...argv)).stdout) as { logprobs: number[] };
    rmSync(folder, { recursive: true });
    const last = history.findLast((turn) => 'generation_log_probs' in turn) as Turn;
    const count = last.generation_log_probs.length;
    expect(scored.logprobs.slice(-count)).toEqual(last.generation_log_probs);
  });

  it('answers /v1/responses and a stream with the same turn as the chat completion', async () => {
    const settings = { temperature: 0.8, seed: 4, max_tokens: 60 };
    const turn = turnOf(await ask(settings));
    const flat = tools.map(({ function: definition }) => ({ type: 'function', ...definition, strict: true }));
    const { temperature, seed, max_tokens: max_output_tokens } = settings;
    const body = { input: messages, tools: flat, temperature, seed, max_output_tokens };
    const response = await (await sendTo(server, '/v1/responses', body)).json();
    expect(sampledOf(response.output.at(-1))).toEqual(sampledOf(turn));
    expect(response.raw_text).toBe(turn.raw_text);

    const stream = {
      messages,
      tools,
      ...settings,
      logprobs: true,
      stream: true,
      stream_options: { include_usage: true },
    };
    const streamed = await sendTo(server, '/v1/chat/completions', stream);
    expect(streamed.headers.get('content-type')).toContain('text/event-stream');
    const lines = (await streamed.text()).split('\n\n').filter((line) => line !== '');
    expect(lines.at(-1)).toBe('data: [DONE]');
    const chunks = lines.slice(0, -1).map((line) => JSON.parse(line.replace(/^data: /, '')));
    const choices = chunks.flatMap((chunk) => chunk.choices);
    expect(choices.map(({ delta }) => delta.content ?? '').join('')).toBe(turn.content ?? '');
    expect(choices.flatMap(({ logprobs }) => logprobs?.content ?? []).map(({ logprob }) => logprob)).toEqual(
      turn.generation_log_probs,
    );
    const calls = choices.flatMap(({ delta }) => delta.tool_calls ?? []);
    expect(calls.map((call) => call.function)).toEqual((turn.tool_calls ?? []).map((call) => call.function));
    expect(chunks.at(-1).usage.completion_tokens).toBe(turn.generation_token_ids.length);
  });

  it('ends a turn at a stop text, whole or streamed, and leaves it out of the content', async () => {
    const settings = { temperature: 0.8, seed: 4, max_tokens: 60, tool_choice: 'none' };
    const full = turnOf(await ask({ ...settings, ignore_eos: true }));
    // What stands in the middle of the turn, so that it is sampled and then stopped at.
    const stop = full.raw_text.slice(30, 33);
    const reply = await ask({ ...settings, stop });
    const turn = turnOf(reply);
    expect(reply.choices[0].finish_reason).toBe('stop');
    const count = turn.generation_token_ids.length;
    expect(sampledOf(turn)).toEqual({
      ids: full.generation_token_ids.slice(0, count),
      logprobs: full.generation_log_probs.slice(0, count),
    });
    expect(turn.raw_text).toContain(stop);
    expect(turn.content).not.toContain(stop);
    const body = { messages, tools, ...settings, stop, stream: true, logprobs: true };
    const lines = (await (await sendTo(server, '/v1/chat/completions', body)).text()).split('\n\n');
    const chunks = lines.filter((line) => line.startsWith('data: {')).map((line) => JSON.parse(line.slice(6)));
    const choices = chunks.flatMap((chunk) => chunk.choices);
    expect(choices.map(({ delta }) => delta.content ?? '').join('')).toBe(turn.content);
    expect(choices.flatMap(({ logprobs }) => logprobs?.content ?? []).map(({ logprob }) => logprob)).toEqual(
      turn.generation_log_probs,
    );
    expect(choices.at(-1).finish_reason).toBe('stop');
  });

  it('draws a seed for a request that names none, says which, and repeats with it', async () => {
    const first = await ask({ max_tokens: 30 });
    const again = await ask({ max_tokens: 30, seed: first.seed });
    expect(sampledOf(turnOf(again))).toEqual(sampledOf(turnOf(first)));
    expect((await ask({ max_tokens: 1 })).seed).not.toBe(first.seed);
  });

  it('gives the ids of a prompt, and serves under the name of the folder', async () => {
    const { tokens, count } = await (await sendTo(server, '/tokenize', { messages, tools })).json();
    expect(tokens).toEqual(turnOf(await ask({ max_tokens: 1 })).prompt_token_ids);
    expect(count).toBe(tokens.length);
    const { data } = await (await fetch(`${server.url}/v1/models`)).json();
    expect(data).toMatchObject([{ id: 'embedded-policy', object: 'model', max_model_len: 1024, adapter_sha256: null }]);
    expect((await sendTo(server, '/v1/chat/completions', { messages, model: 'gpt-5' })).status).toBe(404);
  });

  it('answers other requests while the device works, and frees the place of a client that leaves', async () => {
    const long = { messages, tools, ignore_eos: true, max_tokens: 700, logprobs: true };
    const clients = [true, false].map((stream) => {
      const leave = new AbortController();
      const reply = sendTo(server, '/v1/chat/completions', { ...long, stream }, {}, leave.signal).then((r) => r.text());
      return {
        leave,
        outcome: reply.then(
          () => 'answered',
          (error: Error) => error.name,
        ),
      };
    });
    await expect.poll(() => health(), { timeout: 20_000 }).toMatchObject({ running: 2, open: 2 });
    let answered = 0;
    while (answered < 20 && (await health())['running'] === 2) answered += 1;
    expect(answered).toBe(20);
    for (const { leave } of clients) leave.abort();
    expect(await Promise.all(clients.map(({ outcome }) => outcome))).toEqual(['AbortError', 'AbortError']);
    await expect.poll(() => health(), { timeout: 5_000 }).toMatchObject({ running: 0, waiting: 0, open: 0 });
  });

  it('refuses in the shape of OpenAI what it cannot do', async () => {
    const wrong = async (path: string, body: unknown, headers?: Record<string, string>) => {
      const reply = await sendTo(server, path, body, headers);
      const { error } = (await reply.json()) as {
        error: { message: string; type: string; code: string; param: string };
      };
      expect([error.type, typeof error.message]).toEqual(['invalid_request_error', 'string']);
      return [reply.status, error.code, error.param];
    };
    const at = '/v1/chat/completions';
    expect(await wrong(at, '{')).toEqual([400, 'invalid_json', null]);
    expect(await wrong(at, { messages, n: 3 })).toEqual([400, 'unsupported_parameter', 'n']);
    expect(await wrong(at, { messages, max_tokens: 701 })).toEqual([400, 'invalid_value', 'max_tokens']);
    const wordy = [{ role: 'user', content: 'Wie viel? '.repeat(400) }];
    expect(await wrong(at, { messages: wordy })).toEqual([400, 'context_length_exceeded', 'messages']);
    const endless = [{ role: 'user', content: 'x'.repeat(150_000) }];
    expect(await wrong(at, { messages: endless })).toEqual([400, 'context_length_exceeded', 'messages']);
    expect(await wrong(at, 'x'.repeat(200_001))).toEqual([413, 'request_too_large', null]);
    expect(await wrong(at, '{}', { 'content-type': 'text/plain' })).toEqual([415, 'unsupported_media_type', null]);
    expect(await wrong('/v1/completions', {})).toEqual([404, 'unknown_url', null]);
    expect((await fetch(`${server.url}${at}`)).status).toBe(405);
    const correlated = await sendTo(server, `/ng-rollout/r-1${at}`, { messages, max_tokens: 1 });
    expect(correlated.status).toBe(200);
  });

  it('outlives a client that leaves in the middle of its body, and one that is cut off while it waits', async () => {
    const { hostname, port } = new URL(server.url);
    const head = 'POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n';
    const socket = connect(Number(port), hostname);
    await new Promise<void>((resolve) =>
      socket.write(`${head}content-length: 1000\r\n\r\n{"messages":`, () => resolve()),
    );
    await new Promise((resolve) => setTimeout(resolve, 50));
    socket.destroy();
    const leave = new AbortController();
    const many = Array.from({ length: 6 }, () =>
      sendTo(server, '/v1/chat/completions', { messages, ignore_eos: true, max_tokens: 300 }, {}, leave.signal).catch(
        (error: Error) => error.name,
      ),
    );
    await expect.poll(() => health(), { timeout: 20_000 }).toMatchObject({ running: 4, waiting: 2, open: 6 });
    leave.abort();
    expect(await Promise.all(many)).toEqual(Array(6).fill('AbortError'));
    await expect.poll(() => health(), { timeout: 5_000 }).toMatchObject({ running: 0, waiting: 0, open: 0 });
  });

  it('refuses another host name, by which a page in a browser could reach it', async () => {
    const status = await new Promise((resolve) => {
      const request = httpRequest(`${server.url}/v1/models`, { headers: { host: 'evil.example' } }, (reply) => {
        reply.resume();
        resolve(reply.statusCode);
      });
      request.end();
    });
    expect(status).toBe(403);
  });
});

describe('the limits of the model endpoint', () => {
  const token = 'a-token-of-good-length';
  const authorization = { authorization: `Bearer ${token}` };
  let small: ModelServer;
  beforeAll(async () => {
    const limits = { ...defaults.limits, maxConcurrent: 1, maxWaiting: 1, deadlineMs: 1000 };
    small = await startModelServer({ ...defaults, token, limits, defaultSeed: 8 });
  });
  afterAll(() => small.stop());

  it('ask for the token everywhere but in health', async () => {
    for (const headers of [{}, { authorization: 'Bearer wrong' }, { authorization: token }]) {
      const reply = await fetch(`${small.url}/v1/models`, { headers });
      expect([reply.status, (await reply.json()).error.code]).toEqual([401, 'invalid_api_key']);
    }
    expect((await fetch(`${small.url}/v1/models`, { headers: authorization })).status).toBe(200);
    expect((await fetch(`${small.url}/health`)).status).toBe(200);
  });

  it('refuse more requests than may run and wait, and end what takes too long', async () => {
    const long = { messages, tools, ignore_eos: true, max_tokens: 700 };
    const post = (body: object) => sendTo(small, '/v1/chat/completions', body, authorization);
    const both = [post(long), post({ ...long, stream: true })];
    await expect.poll(() => health(small)).toMatchObject({ open: 2 });
    const third = await post({ messages, max_tokens: 1 });
    expect([third.status, third.headers.get('retry-after')]).toEqual([429, '1']);
    const [whole, stream] = await Promise.all(both);
    expect([whole!.status, (await whole!.json()).error.code]).toEqual([504, 'deadline_exceeded']);
    expect(await stream!.text()).toContain('"code":"deadline_exceeded"');
    await expect.poll(() => health(small)).toMatchObject({ running: 0, waiting: 0, open: 0 });
    const reply = await (await post({ messages, tools, max_tokens: 5 })).json();
    expect(reply.seed).toBe(8);
  });
});

describe('the model endpoint with an adapter', () => {
  it('serves the adapter under a name of its own, and samples what `shaderl sample --adapter` does', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'shaderl-serve-'));
    const tiny = join(folder, 'tiny');
    cpSync(goldenPath('tiny-qwen3-tied'), tiny, { recursive: true });
    // Its eos id would be an ordinary byte of this tokenizer.
    rmSync(join(tiny, 'generation_config.json'));
    const config = JSON.parse(readFileSync(goldenPath('tiny-qwen3-tied/config.json'), 'utf8'));
    writeFileSync(join(tiny, 'config.json'), JSON.stringify({ ...config, eos_token_id: 257 }));
    writeFileSync(join(tiny, 'tokenizer.json'), JSON.stringify(smallTokenizerJson()));
    const textConfig = { eos_token: '<|im_end|>', chat_template: CHATML };
    writeFileSync(join(tiny, 'tokenizer_config.json'), JSON.stringify(textConfig));
    const adapter = goldenPath('tiny-qwen3-tied-lora');
    const adapted = await startModelServer({ ...defaults, model: tiny, adapter, context: 512 });
    const argv = [
      '--json',
      '--model',
      tiny,
      '--adapter',
      adapter,
      '--prompt',
      'Hi',
      '--max-tokens',
      '24',
      '--seed',
      '5',
    ];
    const ran = await runCli('sample', ...argv, '--temperature', '1', '--top-k', '0', '--top-p', '1');
    const { ids, logprobs, sources } = JSON.parse(ran.stdout) as {
      ids: number[];
      logprobs: number[];
      sources: string[];
    };
    const hi = [{ role: 'user', content: 'Hi' }];
    const body = { model: 'tiny+tiny-qwen3-tied-lora', messages: hi, tools: null, seed: 5, max_tokens: 24 };
    const turn = turnOf(await ask(body, adapted));
    const from = sources.indexOf('sampled');
    expect(sampledOf(turn)).toEqual({ ids: ids.slice(from), logprobs: logprobs.slice(from) });
    const { data } = (await (await fetch(`${adapted.url}/v1/models`)).json()) as { data: { adapter_sha256: string }[] };
    expect(data[0]!.adapter_sha256).toMatch(/^[0-9a-f]{64}$/);
    await adapted.stop();
    rmSync(folder, { recursive: true });
  });

  it('is refused where model, adapter, template or port do not do', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'shaderl-serve-'));
    const refusal = async (more: Partial<ServeModelOptions>) => {
      const error = await startModelServer({ ...defaults, ...more }).catch((failure: Error) => failure);
      return error instanceof Error ? error.message : 'it was started';
    };
    expect(await refusal({ model: folder })).toMatch(/config\.json/);
    expect(await refusal({ adapter: folder })).toMatch(/adapter_config\.json/);
    expect(await refusal({ context: 5000 })).toMatch(/found --context 5000; wanted at most 1024/);
    expect(await refusal({ port: Number(new URL(server.url).port) })).toMatch(/a free port is wanted/);
    writeFileSync(join(folder, 'token'), 'short\n');
    expect(() => readToken(join(folder, 'token'))).toThrow(/found 5 characters; wanted 16 to 4,096/);
    writeFileSync(join(folder, 'token'), 'a-token-of-good-length\n');
    expect(readToken(join(folder, 'token'))).toBe('a-token-of-good-length');
    rmSync(folder, { recursive: true });
  });
});

describe('shaderl serve-model', () => {
  it('prints its address, asks for the token of the file, and stops on SIGTERM', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'shaderl-serve-'));
    const token = 'a-token-of-good-length';
    writeFileSync(join(folder, 'token'), token);
    const script = fileURLToPath(new URL('../../cli/bin.mjs', import.meta.url));
    const argv = ['serve-model', '--model', model, '--token-file', join(folder, 'token'), '--max-concurrent', '2'];
    const child = spawn(process.execPath, [script, ...argv, '--json'], { stdio: ['ignore', 'pipe', 'ignore'] });
    const exit = new Promise((resolve) => child.once('exit', (code) => resolve(code)));
    let out = '';
    child.stdout.on('data', (chunk) => {
      out += chunk;
    });
    await expect.poll(() => out, { timeout: 60_000 }).toContain('\n');
    const { url, ...about } = JSON.parse(out) as { url: string };
    expect(about).toMatchObject({ model: 'embedded-policy', token: true, family: 'portable', slots: 2, context: 1024 });
    expect(new URL(url).hostname).toBe('127.0.0.1');
    const statusWith = async (headers: Record<string, string>) => (await fetch(`${url}/v1/models`, { headers })).status;
    expect(await statusWith({})).toBe(401);
    expect(await statusWith({ authorization: `Bearer ${token}` })).toBe(200);
    child.kill('SIGTERM');
    expect(await exit).toBe(0);
    rmSync(folder, { recursive: true });
  });
});
