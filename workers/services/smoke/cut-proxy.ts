// A TCP proxy that passes bytes until it is told to cut the connections or to hold replies back.
// Not a test double: the smoke proof puts it between the client and the user's service. Invariant: it counts what the
// client sends, so that a request that is sent twice is seen.
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { PlanError } from '../../../src/lib/errors.ts';

export interface CutProxy {
  url: string;
  /** Bytes that the client sent so far. */
  sentBytes(): number;
  /** Ends all connections and refuses new ones. */
  cut(): void;
  /** From now on, replies are kept back. */
  stall(): void;
  stop(): Promise<void>;
}

/** Throws PlanError for addresses that are not plain HTTP. */
export async function startCutProxy(targetUrl: string): Promise<CutProxy> {
  const target = new URL(targetUrl);
  if (target.protocol !== 'http:') {
    throw new PlanError(
      'smoke-url',
      `proving ${targetUrl}: found ${target.protocol}; http: is wanted, because the proof cuts the connection. ` +
        'Prove the service at its plain address.',
    );
  }
  const sockets = new Set<Socket>();
  let sent = 0;
  let stalled = false;
  const server = createServer((client) => {
    const upstream = connect({ host: target.hostname, port: Number(target.port || 80) });
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', () => socket.destroy());
      socket.on('close', () => sockets.delete(socket));
    }
    client.on('close', () => upstream.destroy());
    // A reply that is kept back includes the end of its connection.
    upstream.on('close', () => {
      if (!stalled) client.destroy();
    });
    client.on('data', (chunk) => {
      sent += chunk.length;
      upstream.write(chunk);
    });
    upstream.on('data', (chunk) => {
      if (!stalled) client.write(chunk);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const cut = (): void => {
    server.close();
    for (const socket of sockets) socket.destroy();
  };
  return {
    url: `http://127.0.0.1:${port}`,
    sentBytes: () => sent,
    cut,
    stall() {
      stalled = true;
    },
    async stop() {
      cut();
      await new Promise((resolve) => setImmediate(resolve));
    },
  };
}
