// A connection by hand: HTTP requests and WebSocket frames as bytes, so that a test can also send what no library
// sends. Not a client. Invariant: every event of the peer is queued in order and read exactly once.
import { connect, type Socket } from 'node:net';

export type RawEvent =
  | { kind: 'http-response'; status: number; headers: [string, string][]; body: string }
  | { kind: 'ws-text'; text: string }
  | { kind: 'ws-binary' | 'ws-ping' | 'ws-pong'; bytes: number }
  | { kind: 'ws-close'; code: number | null; reason: string }
  | { kind: 'tcp-end' };

export interface RawConnection {
  request(method: string, path: string, headers: [string, string][], body: string | null): void;
  frame(opcode: number, payload: Buffer, options?: { fin?: boolean; masked?: boolean }): void;
  close(code: number | null): void;
  /** Ends TCP: with a reset, or with a FIN. */
  end(reset: boolean): void;
  /** The next event, or null after `ms`. */
  next(ms: number): Promise<RawEvent | null>;
}

const OPCODES: Readonly<Record<number, 'ws-binary' | 'ws-ping' | 'ws-pong'>> = {
  2: 'ws-binary',
  9: 'ws-ping',
  10: 'ws-pong',
};

export async function openRaw(url: string): Promise<RawConnection> {
  const { hostname, port, host } = new URL(url);
  const socket: Socket = connect({ host: hostname, port: Number(port) });
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve);
    socket.once('error', reject);
  });
  const events: RawEvent[] = [];
  let wake: (() => void) | null = null;
  let buffer = Buffer.alloc(0);
  let upgraded = false;
  let lastMethod = 'GET';
  let ended = false;
  const push = (event: RawEvent): void => {
    events.push(event);
    wake?.();
  };

  function readHttp(): boolean {
    const end = buffer.indexOf('\r\n\r\n');
    if (end < 0) return false;
    const [first, ...rest] = buffer.subarray(0, end).toString('latin1').split('\r\n');
    const headers = rest.map((line): [string, string] => {
      const at = line.indexOf(':');
      return [line.slice(0, at).toLowerCase(), line.slice(at + 1).trim()];
    });
    const status = Number(first!.split(' ')[1]);
    const length = Number(headers.find(([name]) => name === 'content-length')?.[1] ?? 0);
    const bodyLength = lastMethod === 'HEAD' || status === 101 ? 0 : length;
    if (buffer.length < end + 4 + bodyLength) return false;
    const body = buffer.subarray(end + 4, end + 4 + bodyLength).toString('utf8');
    buffer = buffer.subarray(end + 4 + bodyLength);
    upgraded = status === 101;
    push({ kind: 'http-response', status, headers, body });
    return true;
  }

  function readFrame(): boolean {
    if (buffer.length < 2) return false;
    const opcode = buffer[0]! & 0x0f;
    let length = buffer[1]! & 0x7f;
    let at = 2;
    if (length === 126) {
      if (buffer.length < 4) return false;
      length = buffer.readUInt16BE(2);
      at = 4;
    } else if (length === 127) {
      if (buffer.length < 10) return false;
      length = Number(buffer.readBigUInt64BE(2));
      at = 10;
    }
    if (buffer.length < at + length) return false;
    const payload = buffer.subarray(at, at + length);
    buffer = buffer.subarray(at + length);
    if (opcode === 1) push({ kind: 'ws-text', text: payload.toString('utf8') });
    else if (opcode === 8) {
      const code = payload.length >= 2 ? payload.readUInt16BE(0) : null;
      push({ kind: 'ws-close', code, reason: payload.subarray(2).toString('utf8') });
    } else push({ kind: OPCODES[opcode]!, bytes: length });
    return true;
  }

  socket.on('data', (chunk) => {
    buffer = Buffer.concat([buffer, chunk]);
    while (upgraded ? readFrame() : readHttp());
  });
  const finish = (): void => {
    if (ended) return;
    ended = true;
    push({ kind: 'tcp-end' });
  };
  socket.on('end', finish);
  socket.on('error', finish);
  socket.on('close', finish);

  const frame: RawConnection['frame'] = (opcode, payload, { fin = true, masked = true } = {}) => {
    const head = [(fin ? 0x80 : 0) | opcode];
    const bit = masked ? 0x80 : 0;
    if (payload.length < 126) head.push(bit | payload.length);
    else if (payload.length < 65_536) head.push(bit | 126, payload.length >> 8, payload.length & 255);
    else {
      const size = Buffer.alloc(8);
      size.writeBigUInt64BE(BigInt(payload.length));
      head.push(bit | 127, ...size);
    }
    // A masking key of zeros is a key, and leaves the payload as it is.
    socket.write(Buffer.concat([Buffer.from(head), ...(masked ? [Buffer.alloc(4)] : []), payload]));
  };

  return {
    request(method, path, headers, body) {
      lastMethod = method;
      const own = headers.filter(([name]) => !['host', 'content-length'].includes(name.toLowerCase()));
      const lines = [`${method} ${path} HTTP/1.1`, `host: ${host}`, ...own.map(([name, value]) => `${name}: ${value}`)];
      const bytes = Buffer.from(body ?? '', 'utf8');
      if (body !== null) lines.push(`content-length: ${bytes.length}`);
      socket.write(Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), bytes]));
    },
    frame,
    close(code) {
      const payload = code === null ? Buffer.alloc(0) : Buffer.from([code >> 8, code & 255]);
      frame(8, payload);
    },
    end(reset) {
      if (reset) socket.resetAndDestroy();
      else socket.destroy();
    },
    async next(ms) {
      if (events.length === 0) {
        await new Promise<void>((resolve) => {
          const timer = setTimeout(resolve, ms);
          wake = () => {
            clearTimeout(timer);
            resolve();
          };
        });
        wake = null;
      }
      return events.shift() ?? null;
    },
  };
}
