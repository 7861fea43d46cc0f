// HTTP exchanges by node:http, one connection each.
// Not a pool: a kept-alive connection can be closed by the server at the moment of sending, and a stray reply on it
// would answer the next request. Invariant: after any fault the socket is destroyed and nothing is sent again.
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { EnvError } from '../../lib/errors.ts';
import { fault } from './faults.ts';
import type { HttpReply, HttpTransport } from './transport.ts';

/** Replies beyond this many bytes are refused. */
const MAX_REPLY_BYTES = 100 * 1024 * 1024;

/** Each call decodes a whole text, so that one serves all. */
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function readReply(doing: string, reply: IncomingMessage, settle: (outcome: HttpReply | Error) => void): void {
  const chunks: Buffer[] = [];
  let size = 0;
  let whole = false;
  reply.on('data', (chunk: Buffer) => {
    chunks.push(chunk);
    size += chunk.length;
    if (size > MAX_REPLY_BYTES) {
      const found = `more than ${MAX_REPLY_BYTES} bytes`;
      settle(fault('service-protocol', { doing, found, wanted: 'a smaller reply' }));
    }
  });
  const cutOff = (cause?: Error): void =>
    settle(fault('service-lost', { doing, found: `the reply ended after ${size} bytes`, wanted: 'all of it' }, cause));
  reply.on('error', cutOff);
  // Every reply closes; making an error of it each time would cost more than the rest of reading it.
  reply.on('close', () => {
    if (!whole) cutOff();
  });
  reply.on('end', () => {
    if (!reply.complete) return cutOff();
    whole = true;
    try {
      const text = utf8.decode(chunks.length === 1 ? chunks[0] : Buffer.concat(chunks));
      const headers: Record<string, string> = {};
      for (const [name, value] of Object.entries(reply.headers)) {
        if (typeof value === 'string') headers[name] = value;
      }
      const setCookies = reply.headers['set-cookie'] ?? [];
      const contentType = (reply.headers['content-type'] ?? '').toLowerCase();
      settle({ status: reply.statusCode!, contentType, setCookies, headers, text });
    } catch (error) {
      settle(fault('service-protocol', { doing, found: 'bytes that are not UTF-8', wanted: 'text' }, error));
    }
  });
}

/** The transport of Node. Addresses may be http: or https:. */
export const nodeHttp: HttpTransport = (doing, { method, url, headers, body }, { connectMs, replyMs }) =>
  new Promise<HttpReply>((resolve, reject) => {
    const bytes = body === null ? null : Buffer.from(body, 'utf8');
    const length = bytes === null ? {} : { 'content-length': String(bytes.length) };
    const secure = url.startsWith('https:');
    const send = secure ? httpsRequest : httpRequest;
    // An agent that keeps nothing alive also sends `connection: close`, so a server reads no second request.
    const options = { method, headers: { ...headers, ...length }, agent: secure ? false : new HttpAgent() };
    const request = send(url, options as Parameters<typeof httpRequest>[1] & object);
    let connected = false;
    let settled = false;
    const settle = (outcome: HttpReply | Error): void => {
      if (settled) return;
      settled = true;
      clearTimeout(timer);
      request.destroy();
      if (outcome instanceof Error) reject(outcome);
      else resolve(outcome);
    };
    const late = (ms: number, what: string) => () =>
      settle(fault('service-timeout', { doing, found: `no ${what} within ${ms} ms`, wanted: `a ${what}` }));
    let timer = setTimeout(late(connectMs, 'connection'), connectMs);
    request.on('socket', (socket) =>
      socket.once('connect', () => {
        connected = true;
        socket.setKeepAlive(true, 10_000);
        clearTimeout(timer);
        timer = setTimeout(late(replyMs, 'reply'), replyMs);
      }),
    );
    request.on('response', (reply) => readReply(doing, reply, settle));
    request.on('error', (error: NodeJS.ErrnoException) => {
      if (error instanceof EnvError) return settle(error);
      const refused = !connected && error.code === 'ECONNREFUSED';
      const unreadable = error.code?.startsWith('HPE_') === true;
      const code = refused ? 'service-refused' : unreadable ? 'service-protocol' : 'service-lost';
      const remedy = refused ? { remedy: `Start the service, or correct the address ${new URL(url).origin}.` } : {};
      settle(
        fault(
          code,
          { doing, found: error.message || (error.code ?? 'no reason'), wanted: 'a reply', ...remedy },
          error,
        ),
      );
    });
    request.end(bytes ?? undefined);
  });
