// Plays the recorded server's lines to a client: a WebSocket and HTTP server that answers each request as the record
// does. Not a server of ours: it checks nothing but hands over what it was sent.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { type RawData, type WebSocket, WebSocketServer } from 'ws';
import type { Line } from './transcript.ts';

export interface Heard {
  conn: string;
  kind: 'ws-text' | 'http-request';
  text: string;
  path: string;
  cookie: string | null;
}

export interface Player {
  url: string;
  heard: Heard[];
  stop(): Promise<void>;
}

/** The lines of one connection, without those of the recorder. */
export const linesOf = (lines: readonly Line[], conn: string): Line[] =>
  lines.filter((line) => line.conn === conn && line.dir !== '-');

function playSocket(socket: WebSocket, conn: string, lines: Line[], heard: Heard[]): void {
  // The upgrade and its reply are behind us.
  const rest = lines.slice(2);
  const speak = (): void => {
    while (rest[0]?.dir === '<') {
      const line = rest.shift()!;
      if (line.kind === 'ws-text') socket.send(line.text!);
      else if (line.kind === 'ws-close') socket.close(line.code ?? undefined);
      else if (line.kind === 'tcp-end') socket.terminate();
    }
  };
  socket.on('error', () => {});
  socket.on('message', (data: RawData) => {
    heard.push({ conn, kind: 'ws-text', text: (data as Buffer).toString('utf8'), path: '', cookie: null });
    // Lines that this client has no part in (close frames, TCP ends) are passed over.
    while (rest[0]?.dir === '>' && rest[0].kind !== 'ws-text') rest.shift();
    rest.shift();
    speak();
  });
  speak();
}

/** HTTP requests are answered in order, whatever they ask. */
function playHttp(
  request: IncomingMessage,
  response: ServerResponse,
  conn: string,
  replies: Line[],
  heard: Heard[],
): void {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const text = Buffer.concat(chunks).toString('utf8');
    const cookie = request.headers.cookie ?? null;
    heard.push({ conn, kind: 'http-request', text, path: request.url!, cookie });
    const line = replies.shift();
    if (!line) {
      response.writeHead(599).end('the record has no further reply');
      return;
    }
    const headers = line.headers!.filter(([name]) => !['content-length', 'connection'].includes(name));
    response.writeHead(line.status!, headers.flat());
    response.end(line.body ?? '');
  });
}

/** Plays the connections in the given order, one for each socket that is opened; HTTP replies come from `httpConn`. */
export async function startPlayer(
  lines: readonly Line[],
  conns: readonly string[],
  httpConn?: string,
): Promise<Player> {
  const heard: Heard[] = [];
  const waiting = [...conns];
  const replies = httpConn === undefined ? [] : linesOf(lines, httpConn).filter((line) => line.dir === '<');
  const open = new Set<Socket>();
  const sockets = new WebSocketServer({ noServer: true });
  const server = createServer((request, response) => playHttp(request, response, httpConn ?? '', replies, heard));
  server.on('connection', (socket) => {
    open.add(socket);
    socket.on('error', () => {});
  });
  server.on('upgrade', (request, socket, head) => {
    const conn = waiting.shift()!;
    const own = linesOf(lines, conn);
    if (own[1]?.status !== 101) {
      socket.end(`HTTP/1.1 ${own[1]?.status} Refused\r\ncontent-length: 0\r\nconnection: close\r\n\r\n`);
      return;
    }
    sockets.handleUpgrade(request, socket, head, (ws) => playSocket(ws, conn, own, heard));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    heard,
    async stop() {
      for (const socket of open) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
