// A TCP proxy that does one wrong thing at one chunk of the traffic.
// Not a protocol: it sees bytes; on loopback a chunk is one message. Invariant: without a fault it changes nothing, and
// `stop` leaves no socket open.
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

export const FAULT_KINDS = ['drop', 'delay', 'duplicate', 'truncate', 'garble', 'kill'] as const;

export interface Fault {
  kind: (typeof FAULT_KINDS)[number];
  /** `up`: client to server. */
  direction: 'up' | 'down';
  /** Chunks of that direction are counted over all connections, from 0. */
  chunk: number;
}

export interface FaultProxy {
  url: string;
  /** Whether the fault was reached. */
  struck(): boolean;
  /** Chunks that passed, by direction. */
  chunks: { up: number; down: number };
  stop(): Promise<void>;
}

/** Bytes that are no UTF-8, no HTTP and no frame of the session protocol. */
const garbled = (chunk: Buffer): Buffer => {
  const copy = Buffer.from(chunk);
  copy.fill(0xff, copy.length >> 1);
  return copy;
};

export async function startFaultProxy(targetUrl: string, fault: Fault | null, delayMs: number): Promise<FaultProxy> {
  const target = new URL(targetUrl);
  const sockets = new Set<Socket>();
  const chunks = { up: 0, down: 0 };
  let struck = false;
  const server = createServer((client) => {
    const upstream = connect({ host: target.hostname, port: Number(target.port) });
    const cut = (): void => {
      client.destroy();
      upstream.destroy();
    };
    const pipe = (from: Socket, to: Socket, direction: Fault['direction']): void => {
      // Later chunks wait for a delayed one: TCP keeps order.
      let tail = Promise.resolve();
      from.on('data', (chunk: Buffer) => {
        const index = chunks[direction]++;
        const hit = fault?.direction === direction && fault.chunk === index;
        if (hit) struck = true;
        const kind = hit ? fault.kind : null;
        tail = tail.then(async () => {
          if (kind === 'drop') return;
          if (kind === 'kill') {
            server.close();
            for (const socket of sockets) socket.destroy();
            return;
          }
          if (kind === 'delay') await new Promise((resolve) => setTimeout(resolve, delayMs));
          if (kind === 'truncate') {
            to.end(chunk.subarray(0, chunk.length >> 1), cut);
            return;
          }
          if (to.destroyed) return;
          to.write(kind === 'garble' ? garbled(chunk) : chunk);
          if (kind === 'duplicate') to.write(chunk);
        });
      });
      from.on('end', () => void tail.then(() => to.end()));
      from.on('close', () => void tail.then(() => to.destroy()));
    };
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.setNoDelay(true);
      socket.on('error', cut);
      socket.on('close', () => sockets.delete(socket));
    }
    pipe(client, upstream, 'up');
    pipe(upstream, client, 'down');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    struck: () => struck,
    chunks,
    async stop() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
