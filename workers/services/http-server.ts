// A small HTTP server with the manners of FastAPI under uvicorn: exact routes, 404, 405 with allow, 307 for a slash
// too many. Not a framework, and not hono: the quirks of the recorded servers need the raw request. Invariant: it
// listens on the given host alone, and `stop` leaves no socket open.
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { EnvError } from '../../src/lib/errors.ts';

export interface ServerReply {
  status: number;
  /** Default: application/json. */
  contentType?: string | null;
  headers?: Record<string, string>;
  body: string;
}

export interface ServerRequest {
  method: string;
  /** Raw path, still encoded, without the query. */
  path: string;
  contentType: string | null;
  cookie: string | null;
  host: string;
  /** All headers, with lower-case names. */
  headers: IncomingHttpHeaders;
  body: string;
}

/** `R`: a request with what a server has put beside it. */
export interface Route<R extends ServerRequest = ServerRequest> {
  method: 'GET' | 'POST';
  path: string;
  run(request: R): Promise<ServerReply> | ServerReply;
}

export const jsonReply = (status: number, body: string, headers?: Record<string, string>): ServerReply =>
  headers ? { status, body, headers } : { status, body };

/** FastAPI's replies around the routes. `any` answers every POST that no route takes (a catch-all). */
export async function routeRequest<R extends ServerRequest>(
  routes: readonly Route<R>[],
  request: R,
  any?: (request: R) => Promise<ServerReply> | ServerReply,
): Promise<ServerReply> {
  const here = routes.filter((route) => route.path === request.path);
  const route = here.find((candidate) => candidate.method === request.method);
  if (route) return route.run(request);
  if (any && here.length === 0 && request.method === 'POST') return any(request);
  if (here.length > 0 || any) {
    const allow = here.length > 0 ? here.map((candidate) => candidate.method).join(', ') : 'POST';
    return jsonReply(405, '{"detail":"Method Not Allowed"}', { allow });
  }
  const bare = request.path.replace(/\/$/, '');
  if (bare !== request.path && routes.some((candidate) => candidate.path === bare)) {
    return { status: 307, contentType: null, headers: { location: `http://${request.host}${bare}` }, body: '' };
  }
  return jsonReply(404, '{"detail":"Not Found"}');
}

export interface HttpServiceOptions {
  host: string;
  /** 0: any free port. */
  port: number;
  keepAliveMs: number;
  handle(request: ServerRequest): Promise<ServerReply>;
  upgrade?(request: IncomingMessage, socket: Duplex, head: Buffer): void;
}

export interface HttpService {
  url: string;
  stop(): Promise<void>;
}

/** Requests beyond this many bytes are refused with 413. */
const MAX_REQUEST_BYTES = 64 * 1024 * 1024;

/** The body as text; null where it is too large. Rejects where the peer leaves before its end. */
function readBody(request: IncomingMessage): Promise<string | null> {
  // Listeners and no async iteration, which costs several turns of the loop for each request.
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    request.on('data', (chunk: Buffer) => {
      size += chunk.length;
      if (size > MAX_REQUEST_BYTES) resolve(null);
      else chunks.push(chunk);
    });
    request.once('end', () => resolve((chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)).toString('utf8')));
    request.once('error', reject);
    request.once('close', () => reject(request.errored));
  });
}

function write(response: ServerResponse, method: string | undefined, reply: ServerReply): void {
  const type = reply.contentType === undefined ? 'application/json' : reply.contentType;
  const length = String(Buffer.byteLength(reply.body, 'utf8'));
  const headers: Record<string, string> = { ...reply.headers, 'content-length': length };
  if (type !== null) headers['content-type'] = type;
  response.writeHead(reply.status, headers);
  // A text and no bytes: Node puts the head before it, and both leave in one write.
  response.end(method === 'HEAD' ? undefined : reply.body, 'utf8');
}

/** Listens. Throws EnvError `service-port` where the port is taken. */
export async function startHttpService(options: HttpServiceOptions): Promise<HttpService> {
  const sockets = new Set<Socket>();
  const server: Server = createServer({ keepAliveTimeout: options.keepAliveMs }, (request, response) => {
    const url = request.url ?? '/';
    const path = url.split('?')[0]!;
    const serve = async (): Promise<void> => {
      const body = await readBody(request);
      if (body === null) return write(response, request.method, jsonReply(413, '{"detail":"Request too large"}'));
      const reply = await options.handle({
        method: request.method ?? 'GET',
        path,
        contentType: request.headers['content-type'] ?? null,
        cookie: request.headers.cookie ?? null,
        host: request.headers.host ?? 'localhost',
        headers: request.headers,
        body,
      });
      write(response, request.method, reply);
    };
    // A peer that leaves in mid-request is no error of the service.
    serve().catch(() => response.destroy());
  });
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.setKeepAlive(true, 10_000);
    socket.on('error', () => {});
    socket.once('close', () => sockets.delete(socket));
  });
  if (options.upgrade) server.on('upgrade', options.upgrade);
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) =>
      reject(
        new EnvError(
          'service-port',
          `listening on ${options.host}:${options.port}: ${error.message}; a free port is wanted. Choose another one.`,
          { cause: error },
        ),
      ),
    );
    // Node's backlog of 511 overflows when 1,024 sessions ask at once: connections then wait a second to be tried again.
    server.listen({ port: options.port, host: options.host, backlog: 4096 }, resolve);
  });
  const { port } = server.address() as AddressInfo;
  const name = options.host.includes(':') ? `[${options.host}]` : options.host;
  return {
    url: `http://${name}:${port}`,
    async stop() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}
