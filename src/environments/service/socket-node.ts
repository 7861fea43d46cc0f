// WebSockets by `ws`.
// Not a session: it knows no messages. Invariant: `ended` is told exactly once, after which the socket is destroyed;
// pings are answered by the library on this thread's event loop.
import { WebSocket } from 'ws';
import { type FaultCode, fault } from './faults.ts';
import type { ConnectSocket, WireSocket } from './transport.ts';

/** Frames beyond this many bytes are refused with 1009, as by the upstream client. */
const MAX_FRAME_BYTES = 100 * 1024 * 1024;

/** Opens a socket with `ws`. Frames that come in the packet of the handshake's reply are not lost. */
export const nodeSocket: ConnectSocket = (doing, url, connectMs, events) =>
  new Promise<WireSocket>((resolve, reject) => {
    const socket = new WebSocket(url, {
      perMessageDeflate: false,
      maxPayload: MAX_FRAME_BYTES,
      followRedirects: false,
    });
    let state: 'connecting' | 'open' | 'over' = 'connecting';
    let violation: string | null = null;
    const failed = (code: FaultCode, found: string, cause?: unknown): void => {
      if (state !== 'connecting') return;
      state = 'over';
      clearTimeout(timer);
      socket.terminate();
      reject(fault(code, { doing, found, wanted: 'a WebSocket' }, cause));
    };
    const timer = setTimeout(() => failed('service-timeout', `no handshake within ${connectMs} ms`), connectMs);

    socket.on('unexpected-response', (_request, reply) =>
      failed('service-failed', `the handshake was answered with ${reply.statusCode}`),
    );
    socket.on('error', (error: NodeJS.ErrnoException) => {
      const text = error.message || (error.code ?? 'no reason');
      if (state === 'connecting')
        failed(error.code === 'ECONNREFUSED' ? 'service-refused' : 'service-lost', text, error);
      // Invalid UTF-8, wrong masking and the like: ws has sent the close code of the error.
      violation ??= text;
      socket.terminate();
    });
    socket.on('open', () => {
      if (state !== 'connecting') return;
      state = 'open';
      clearTimeout(timer);
      resolve({
        send: (text) =>
          new Promise((sent, broken) => {
            socket.send(text, (error) => (error ? broken(error) : sent()));
          }),
        destroy: () => socket.terminate(),
      });
    });
    socket.on('message', (data: Buffer, isBinary: boolean) => {
      if (state !== 'open') return;
      if (!isBinary) return events.text(data.toString('utf8'));
      violation = 'a binary frame';
      socket.terminate();
    });
    socket.on('close', (code: number, reason: Buffer) => {
      const text = reason.length > 0 ? ` (${reason.toString('utf8')})` : '';
      if (state === 'connecting') failed('service-lost', `it was closed with ${code}${text} in the handshake`);
      if (state !== 'open') return;
      state = 'over';
      const found = violation ?? (code === 1006 ? 'the connection broke off' : `it was closed with ${code}${text}`);
      events.ended({ found, closeCode: code === 1006 ? null : code, violation: violation !== null });
    });
  });
