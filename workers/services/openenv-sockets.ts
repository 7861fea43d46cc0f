// The WebSockets of an OpenEnv server: /ws and /mcp, one session a socket, served one message after the other.
// Not the messages themselves. Invariant: the slot is freed when the loop ends, whoever ended it, and after a step that
// still runs; a half-open peer is closed by the keepalive.
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { type RawData, type WebSocket, WebSocketServer } from 'ws';
import {
  emitWireJson,
  parseWireJson,
  toWire,
  WireJsonError,
  type WireMap,
} from '../../src/environments/service/wire-json.ts';
import type { Faults } from './fault-switches.ts';
import type { EnvironmentClass } from './openenv-environment.ts';
import { answerText, errorFrame } from './openenv-messages.ts';
import { answerRpc, RPC, type RpcContext, refusedRpc, rpcError } from './openenv-rpc.ts';
import { SessionRefused, type Slot, type Slots } from './openenv-slots.ts';
import { exceptionText } from './python-errors.ts';
import { pythonType } from './python-repr.ts';

/** In-bound frames beyond this many bytes are closed with 1009, as by uvicorn. */
const MAX_FRAME_BYTES = 16 * 1024 * 1024;

/** For answers to the close frames of a shutdown. */
const SHUTDOWN_MS = 500;

/** Deflate is accepted for clients that offer it, but small frames on loopback gain nothing by it. */
const PLAIN = { compress: false };

export interface SocketTimes {
  /** Between pings, and for the answer to one. Null: no pings. */
  pingMs: number | null;
  /** For the answer to a close frame. */
  closeMs: number;
}

export interface SocketsOptions {
  environment: EnvironmentClass;
  slots: Slots;
  times: SocketTimes;
  rpcContext(own: Slot | null): RpcContext;
  faults?: Faults;
}

type Step = { done: false; text: string } | { done: true; text: string | null };

/** One text frame of a socket -> what to send, and whether the session is over. */
type Loop = (text: string | null, slot: Slot) => Promise<Step>;

interface Endpoint {
  refused(error: SessionRefused): string;
  loop: Loop;
}

function endpoints({ environment, rpcContext }: SocketsOptions): Readonly<Record<string, Endpoint>> {
  const dumps = (reply: WireMap): string => emitWireJson(reply, { dumps: true });
  return {
    '/ws': {
      refused: ({ code, message, extra }) =>
        errorFrame(
          code,
          message,
          Object.entries(extra).map(([key, value]) => [key, toWire(value)]),
        ),
      async loop(text, slot) {
        // A binary frame has no "text" in uvicorn's message.
        if (text === null) return { done: true, text: errorFrame('SESSION_ERROR', "'text'") };
        const answer = await answerText(text, environment, slot, (request) => answerRpc(request, rpcContext(slot)));
        if (answer.kind === 'close') return { done: true, text: null };
        return { done: answer.kind === 'fatal', text: answer.text };
      },
    },
    '/mcp': {
      refused: (error) => dumps(refusedRpc(null, error)),
      async loop(text, slot) {
        if (text === null) return { done: true, text: dumps(rpcError(null, RPC.server, "'text'")) };
        try {
          const value = parseWireJson(text);
          if (value instanceof Map) return { done: false, text: dumps(await answerRpc(value, rpcContext(slot))) };
          const detail = `argument after ** must be a mapping, not ${pythonType(value)}`;
          const message = `openenv.core.env_server.mcp_types.JsonRpcRequest() ${detail}`;
          return { done: true, text: dumps(rpcError(null, RPC.server, message)) };
        } catch (error) {
          const detail = error instanceof WireJsonError ? error.pythonText : exceptionText(error);
          return { done: false, text: dumps(rpcError(null, RPC.parse, `Parse error: ${detail}`)) };
        }
      },
    },
  };
}

function keepAlive(socket: WebSocket, pingMs: number): () => void {
  let answered = true;
  socket.on('pong', () => {
    answered = true;
  });
  const timer = setInterval(() => {
    if (!answered) {
      socket.close(1011, 'keepalive ping timeout');
      socket.terminate();
      return;
    }
    answered = false;
    socket.ping();
  }, pingMs);
  return () => clearInterval(timer);
}

async function serveSocket(
  socket: WebSocket,
  endpoint: Endpoint,
  { slots, times, faults }: SocketsOptions,
): Promise<void> {
  const queue: (string | null)[] = [];
  let gone = false;
  let wake: (() => void) | null = null;
  const stir = (): void => {
    wake?.();
    wake = null;
  };
  socket.on('message', (data: RawData, isBinary: boolean) => {
    queue.push(isBinary ? null : (data as Buffer).toString('utf8'));
    stir();
  });
  socket.on('close', () => {
    gone = true;
    stir();
  });
  // ws sends the close code of a protocol error by itself; `close` follows.
  socket.on('error', () => {});
  const stopPings = times.pingMs === null ? () => {} : keepAlive(socket, times.pingMs);
  socket.once('close', stopPings);

  let slot: Slot;
  try {
    slot = slots.take();
  } catch (error) {
    if (!(error instanceof SessionRefused)) throw error;
    socket.send(endpoint.refused(error), PLAIN);
    socket.close(1000);
    return;
  }
  try {
    for (;;) {
      while (queue.length === 0 && !gone) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
      if (gone) return;
      const frame = queue.shift()!;
      const run = () => endpoint.loop(frame, slot);
      const over: Step = { done: true, text: null };
      const step = faults
        ? await faults.frame<Step>(frame, socket, over, run, (text) => ({ done: false, text }))
        : await run();
      if (step.text !== null) socket.send(step.text, PLAIN);
      if (step.done) return;
    }
  } finally {
    // The environment goes first, then the close frame: a client that saw the frame finds the slot free.
    await slot.end();
    socket.close(1000);
  }
}

export interface Sockets {
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void;
  /** Closes every socket with 1012 at once. */
  shutDown(): Promise<void>;
}

export function createSockets(options: SocketsOptions): Sockets {
  const known = endpoints(options);
  const listen = (deflate: object): WebSocketServer =>
    new WebSocketServer({
      noServer: true,
      maxPayload: MAX_FRAME_BYTES,
      closeTimeout: options.times.closeMs,
      perMessageDeflate: { serverMaxWindowBits: 12, threshold: 1024, ...deflate },
      handleProtocols: () => false,
    } as ConstructorParameters<typeof WebSocketServer>[0] & object);
  // ws takes an offer with client_max_window_bits and one without it only under different options.
  const servers = { bits: listen({ clientMaxWindowBits: 12 }), plain: listen({}) };
  const clients = (): WebSocket[] => Object.values(servers).flatMap((server) => [...server.clients]);
  const loops = new Set<Promise<void>>();
  return {
    upgrade(request, socket, head) {
      const path = (request.url ?? '/').split('?')[0]!;
      const endpoint = known[path];
      if (!endpoint) {
        const head403 = 'HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\ncontent-type: text/plain; charset=utf-8';
        socket.end(`${head403}\r\nconnection: close\r\n\r\n`);
        return;
      }
      const offer = request.headers['sec-websocket-extensions'] ?? '';
      const server = offer.includes('client_max_window_bits') ? servers.bits : servers.plain;
      server.handleUpgrade(request, socket, head, (ws) => {
        const loop = serveSocket(ws, endpoint, options).catch(() => ws.terminate());
        loops.add(loop);
        void loop.finally(() => loops.delete(loop));
      });
    },
    async shutDown() {
      for (const socket of clients()) socket.close(1012);
      // What does not answer the close frame is ended; environments that still run a step are waited for.
      const ending = setTimeout(() => {
        for (const socket of clients()) socket.terminate();
      }, SHUTDOWN_MS);
      await Promise.all(loops);
      clearTimeout(ending);
      for (const socket of clients()) socket.terminate();
      for (const server of Object.values(servers)) server.close();
    },
  };
}
