// HTTP exchanges by node:http, one connection each.
// Not a pool: a kept-alive connection can be closed by the server at the moment of sending, and a stray reply on it
// would answer the next request. Invariant: after any fault the socket is destroyed and nothing is sent again.
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
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

/**
 * A connection for one request alone. Without an agent, whose queues and listeners would cost as much as the request
 * itself; Node then also sends `connection: close`, so a server reads no second request.
 */
function connectOnce({ hostname, port, protocol }: URL): Socket {
  const host = hostname.replace(/^\[|\]$/g, '');
  const keep = { noDelay: true, keepAlive: true, keepAliveInitialDelay: 10_000 };
  if (protocol !== 'https:') return connectTcp({ host, port: Number(port || 80), ...keep });
  const servername = isIP(host) === 0 ? { servername: host } : {};
  return connectTls({ host, port: Number(port || 443), ALPNProtocols: ['http/1.1'], ...servername, ...keep });
}

/** The transport of Node. Addresses may be http: or https:. */
export const nodeHttp: HttpTransport = (doing, { method, url, headers, body }, { connectMs, replyMs }) =>
  new Promise<HttpReply>((resolve, reject) => {
    const at = new URL(url);
    const secure = at.protocol === 'https:';
    const socket = connectOnce(at);
    const request = (secure ? httpsRequest : httpRequest)({
      host: at.hostname.replace(/^\[|\]$/g, ''),
      port: at.port === '' ? null : at.port,
      path: `${at.pathname}${at.search}`,
      method,
      headers: body === null ? headers : { ...headers, 'content-length': String(Buffer.byteLength(body, 'utf8')) },
      createConnection: () => socket,
    });
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
    socket.once(secure ? 'secureConnect' : 'connect', () => {
      connected = true;
      clearTimeout(timer);
      timer = setTimeout(late(replyMs, 'reply'), replyMs);
    });
    request.on('response', (reply) => readReply(doing, reply, settle));
    request.on('error', (error: NodeJS.ErrnoException) => {
      if (error instanceof EnvError) return settle(error);
      const refused = !connected && error.code === 'ECONNREFUSED';
      const unreadable = error.code?.startsWith('HPE_') === true;
      const code = refused ? 'service-refused' : unreadable ? 'service-protocol' : 'service-lost';
      const remedy = refused ? { remedy: `Start the service, or correct the address ${at.origin}.` } : {};
      settle(
        fault(
          code,
          { doing, found: error.message || (error.code ?? 'no reason'), wanted: 'a reply', ...remedy },
          error,
        ),
      );
    });
    // One text with the head before it, so that both leave in one write.
    request.end(body ?? undefined, 'utf8');
  });
