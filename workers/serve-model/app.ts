// The routes of the model endpoint: OpenAI's, NeMo Gym's and vLLM's small ones, and the replies around them.
// Not the sampling. Invariant: every error has OpenAI's shape; no fault of the program shows its text to a caller; a
// client that leaves gives its place back.
import { createHash, randomUUID, timingSafeEqual } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { HttpBindings } from '@hono/node-server';
import { type Context, Hono } from 'hono';
import { streamSSE } from 'hono/streaming';
import { endsInReasoning } from '../../src/rollout/tool-calls.ts';
import { ApiError, errorBody, refused } from '../../src/serve/api-error.ts';
import { chatChunk, chatReply, closingChunks, logprobEntries, type ReplyHead } from '../../src/serve/chat-reply.ts';
import { type ChatRequest, readChatRequest } from '../../src/serve/chat-request.ts';
import { createLiveText } from '../../src/serve/live-text.ts';
import { promptOf } from '../../src/serve/prompt.ts';
import { responsesReply } from '../../src/serve/responses-reply.ts';
import { readResponsesRequest } from '../../src/serve/responses-request.ts';
import type { ReadRequest } from '../../src/serve/sampling-fields.ts';
import { readTokenizeRequest } from '../../src/serve/tokenize-request.ts';
import type { PolicyAbout } from './api.ts';
import { ClientGone, type GeneratePorts, generate, type Prepared, prepare, refuseLongText } from './generate.ts';
import { createGate } from './limits.ts';

export interface AppOptions extends GeneratePorts {
  about: PolicyAbout;
  /** The name under which the policy is served. */
  modelName: string;
  /** Bearer token that requests must carry; null: none is asked for. */
  token: string | null;
  /** Whether only loopback names may stand in the host header: a page in a browser could have another one point here. */
  loopbackOnly: boolean;
  /** Faults of the program go here, with their stack. */
  report: (error: unknown) => void;
}

const loopback = /^(127(\.\d+){3}|localhost|\[::1\])(:\d+)?$/i;
const rolloutPrefix = /^\/ng-rollout\/[A-Za-z0-9][A-Za-z0-9._-]*(\/.*)$/;
const digest = (text: string) => createHash('sha256').update(text).digest();

/** Reads a body up to a limit. Throws ApiError 413 or 415, ClientGone where it ends too early. */
async function readBody(request: Request, most: number): Promise<string> {
  const doing = 'reading the body';
  const tooLarge = (found: string) =>
    refused(413, 'request_too_large', {
      doing,
      found: `${found} bytes`,
      wanted: `at most ${most}`,
      remedy: 'Send less.',
    });
  const declared = Number(request.headers.get('content-length') ?? 0);
  if (declared > most) throw tooLarge(String(declared));
  const type = request.headers.get('content-type') ?? '';
  if (!/^application\/json\b/i.test(type)) {
    const found = `content type "${type}"`;
    throw refused(415, 'unsupported_media_type', {
      doing,
      found,
      wanted: 'application/json',
      remedy: 'Set the header.',
    });
  }
  const pieces: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const piece of (request.body ?? []) as AsyncIterable<Uint8Array>) {
      size += piece.length;
      if (size > most) throw tooLarge(`more than ${most}`);
      pieces.push(piece);
    }
  } catch (error) {
    throw error instanceof ApiError ? error : new ClientGone('the body was cut off', { cause: error });
  }
  return new TextDecoder().decode(Buffer.concat(pieces));
}

const internalFault = () =>
  refused(500, 'internal_error', {
    doing: 'answering the request',
    found: 'a fault of the policy',
    wanted: 'an answer',
    remedy: 'See the log of the server.',
    type: 'server_error',
  });

export function createApp(options: AppOptions): Hono {
  const { about, modelName, text, limits, policy, context } = options;
  const gate = createGate(limits);
  const weights = [about.modelSha256, about.adapterSha256 ?? 'base'].map((sha256) => sha256.slice(0, 12));
  const fingerprint = [about.family, ...weights].join('-');
  const startedAt = Math.floor(Date.now() / 1000);
  const tokenDigest = options.token === null ? null : digest(options.token);
  const newHead = (): ReplyHead => ({
    id: randomUUID().replaceAll('-', ''),
    created: Math.floor(Date.now() / 1000),
    model: modelName,
    fingerprint,
  });

  function checkModel(request: { model: string | null }): void {
    if (request.model === null || request.model === modelName) return;
    throw refused(404, 'model_not_found', {
      doing: 'choosing the model',
      found: JSON.stringify(request.model),
      wanted: `"${modelName}", the one that is served`,
      remedy: 'Name it, or none.',
      param: 'model',
    });
  }

  const app = new Hono({
    // Correlated requests of NeMo Gym carry their rollout in front of the path.
    getPath: (request) => {
      const { pathname } = new URL(request.url);
      return rolloutPrefix.exec(pathname)?.[1] ?? pathname;
    },
  });

  app.onError((error, c) => {
    c.header('x-request-id', c.res.headers.get('x-request-id') ?? randomUUID());
    if (error instanceof ApiError) {
      if (error.status === 429) c.header('retry-after', '1');
      if (error.status === 401) c.header('www-authenticate', 'Bearer');
      return c.json(errorBody(error), error.status as 400);
    }
    if (error instanceof ClientGone) return c.body(null, 408);
    options.report(error);
    return c.json(errorBody(internalFault()), 500);
  });
  app.notFound((c) => {
    const error = refused(404, 'unknown_url', {
      doing: `finding ${c.req.method} ${c.req.path}`,
      found: 'no such route',
      wanted: '/v1/models, /v1/chat/completions or /v1/responses',
      remedy: 'Correct the address.',
    });
    return c.json(errorBody(error), 404);
  });

  app.use(async (c, next) => {
    if (options.loopbackOnly && !loopback.test(c.req.header('host') ?? '')) {
      throw refused(403, 'host_refused', {
        doing: 'checking the host header',
        found: JSON.stringify(c.req.header('host') ?? ''),
        wanted: 'a loopback name',
        remedy: 'Use 127.0.0.1, or start the server with --host.',
      });
    }
    const open = c.req.path === '/' || c.req.path === '/health';
    if (tokenDigest && !open) {
      const given = /^Bearer +(\S+) *$/i.exec(c.req.header('authorization') ?? '')?.[1];
      if (given === undefined || !timingSafeEqual(digest(given), tokenDigest)) {
        throw refused(401, 'invalid_api_key', {
          doing: 'checking the authorization',
          found: given === undefined ? 'no bearer token' : 'another token',
          wanted: "the server's token",
          remedy: 'Send "Authorization: Bearer <token>".',
        });
      }
    }
    await next();
  });

  app.get('/', (c) => c.json({ status: 'ok' }));
  app.get('/health', async (c) => {
    const stats = await policy.stats().catch(() => null);
    if (stats === null || stats.failed) return c.json({ status: 'failed' }, 503);
    const { slots, running, waiting } = stats;
    return c.json({ status: 'ok', slots, running, waiting, open: gate.open() });
  });

  const model = {
    id: modelName,
    object: 'model',
    created: startedAt,
    owned_by: 'shaderl',
    max_model_len: context,
    device: about.device,
    family: about.family,
    model_sha256: about.modelSha256,
    adapter_sha256: about.adapterSha256,
  };
  app.get('/v1/models', (c) => c.json({ object: 'list', data: [model] }));
  app.get('/v1/models/:id', (c) => {
    checkModel({ model: c.req.param('id') });
    return c.json(model);
  });

  /** Admits, reads and prepares a request; `answer` must call `leave` in the end. */
  async function admit<R extends ReadRequest>(c: Context, read: (body: string) => R) {
    const arrivedAt = performance.now();
    const body = await readBody(c.req.raw, limits.maxBodyBytes);
    // Not before the body has come: a client that sends slowly must not hold a place.
    const leave = gate.enter();
    try {
      const request = read(body);
      checkModel(request);
      const prepared = prepare(request, options);
      const head = newHead();
      c.header('x-request-id', head.id);
      const leftMs = () => Math.max(0, limits.deadlineMs - (performance.now() - arrivedAt));
      return { request, prepared, head, leave, leftMs };
    } catch (error) {
      leave();
      throw error;
    }
  }

  function stream(
    c: Context,
    request: ChatRequest,
    prepared: Prepared,
    head: ReplyHead,
    leave: () => void,
    leftMs: number,
  ) {
    const stopped = new AbortController();
    c.req.raw.signal.addEventListener('abort', () => stopped.abort(), { once: true });
    return streamSSE(c, async (sse) => {
      sse.onAbort(() => stopped.abort());
      const send = (value: unknown) => sse.writeSSE({ data: JSON.stringify(value) });
      try {
        await send(chatChunk(head, { role: 'assistant', content: '' }));
        const live = createLiveText(text, endsInReasoning(prepared.promptIds, text));
        const said = (delta: { content: string; reasoning: string }) => ({
          ...(delta.content === '' ? {} : { content: delta.content }),
          ...(delta.reasoning === '' ? {} : { reasoning_content: delta.reasoning }),
        });
        const ends = new Set([...text.stopIds, ...text.endIds]);
        let told = 0;
        const answer = await generate(request, prepared, options, stopped.signal, leftMs, async (ids, logprobs) => {
          const delta = { content: '', reasoning: '' };
          for (const id of ids) {
            if (ends.has(id)) continue;
            const { content, reasoning } = live.push(id);
            delta.content += content;
            delta.reasoning += reasoning;
          }
          told += ids.length;
          const entries = request.logprobs ? logprobEntries(ids, logprobs, text, request.tokensAsIds) : null;
          const shown = said(delta);
          if (entries || Object.keys(shown).length > 0) {
            await send(chatChunk(head, shown, entries ? { logprobs: entries } : {}));
          }
        });
        const rest = said(live.end(answer));
        const untold = answer.ids.slice(told);
        const entries = logprobEntries(untold, answer.logprobs.slice(told), text, request.tokensAsIds);
        const extra = request.logprobs && untold.length > 0 ? { logprobs: entries } : {};
        if (Object.keys({ ...rest, ...extra }).length > 0) await send(chatChunk(head, rest, extra));
        for (const chunk of closingChunks(head, answer, request)) await send(chunk);
        await sse.writeSSE({ data: '[DONE]' });
      } catch (error) {
        if (error instanceof ClientGone) return;
        if (!(error instanceof ApiError)) options.report(error);
        const shown = error instanceof ApiError ? error : internalFault();
        // A client that does not read would hold this up for ever.
        const told = await Promise.race([send(errorBody(shown)).then(() => true), sleep(1000).then(() => false)]);
        if (!told) (c.env as HttpBindings).outgoing.destroy();
      } finally {
        leave();
      }
    });
  }

  app.post('/v1/chat/completions', async (c) => {
    const { request, prepared, head, leave, leftMs } = await admit(c, readChatRequest);
    if (request.stream) return stream(c, request, prepared, head, leave, leftMs());
    try {
      const answer = await generate(request, prepared, options, c.req.raw.signal, leftMs());
      return c.json(chatReply(head, answer, request, text));
    } finally {
      leave();
    }
  });

  app.post('/v1/responses', async (c) => {
    const { request, prepared, head, leave, leftMs } = await admit(c, readResponsesRequest);
    try {
      const answer = await generate(request, prepared, options, c.req.raw.signal, leftMs());
      return c.json(responsesReply(head, answer, request, text));
    } finally {
      leave();
    }
  });

  app.post('/tokenize', async (c) => {
    const request = readTokenizeRequest(await readBody(c.req.raw, limits.maxBodyBytes));
    checkModel(request);
    if ('conversation' in request) refuseLongText(request.conversation, options);
    const tokens =
      'conversation' in request
        ? promptOf(request.conversation, text)
        : [...text.documentPrefixIds, ...text.encodeContent(request.prompt)];
    return c.json({ count: tokens.length, max_model_len: context, tokens, token_strs: null });
  });

  for (const path of ['/v1/chat/completions', '/v1/responses', '/tokenize', '/v1/models', '/health']) {
    const allow = path === '/v1/models' || path === '/health' ? 'GET' : 'POST';
    app.all(path, (c) => {
      c.header('allow', allow);
      throw refused(405, 'method_not_allowed', {
        doing: `calling ${path}`,
        found: `method ${c.req.method}`,
        wanted: allow,
        remedy: 'Change the method.',
      });
    });
  }
  return app;
}
