// One OpenEnv socket: one request at a time, and exactly one reply of the expected type for each.
// Not a client: it never connects again. Invariant: after a timeout, a violation or an end, the socket is destroyed and
// every request gets the first reason; a reply is never taken for that of another request's type.
import type { EnvError } from '../../lib/errors.ts';
import { type Deadlines, within } from '../service/deadlines.ts';
import { excerpt, type FaultCode, fault } from '../service/faults.ts';
import type { ConnectSocket, WireSocket } from '../service/transport.ts';
import { closeText, type Frame, REFUSED_ACTION_CODES, readFrame } from './messages.ts';

type DataFrame = Exclude<Frame, { type: 'error' }>;
/** `raw` is the frame's text, in which integers beyond 2^53 are whole. */
export type Reply<K extends DataFrame['type']> =
  | { ok: true; data: Extract<DataFrame, { type: K }>['data']; raw: string }
  | { ok: false; code: string; message: string; details: unknown };

export interface Channel {
  request<K extends DataFrame['type']>(doing: string, text: string, expected: K): Promise<Reply<K>>;
  /** Sends the close message and waits for the close frame. Whether it came in time. */
  finish(): Promise<boolean>;
  /** Ends the connection; requests reject with `error`. */
  destroy(error: EnvError): void;
}

interface Waiter {
  doing: string;
  expected: string;
  resolve(reply: Reply<DataFrame['type']>): void;
  reject(error: EnvError): void;
}

/** How long a failed send still listens: a full server's error frame comes before its close. */
const LAST_FRAME_MS = 250;

/** Connects. `onCap` hears the server's cap when it says so. Rejects with a fault. */
export async function openChannel(
  doing: string,
  url: string,
  connect: ConnectSocket,
  deadlines: Deadlines,
  onCap: (cap: number) => void,
): Promise<Channel> {
  let socket: WireSocket | null = null;
  let lost: EnvError | null = null;
  /** The session was ended here; nothing more is sent or read. */
  let finished = false;
  let waiter: Waiter | null = null;
  let replies = 0;
  let closing: ((closedByFrame: boolean) => void) | null = null;
  let onLost: (() => void) | null = null;

  function lose(error: EnvError): EnvError {
    if (lost) return lost;
    lost = error;
    socket?.destroy();
    const open = waiter;
    waiter = null;
    open?.reject(error);
    onLost?.();
    return error;
  }
  const loss = (code: FaultCode, found: string, wanted: string, at = waiter?.doing ?? doing): EnvError =>
    lose(fault(code, { doing: at, found, wanted }));

  function fatal(code: string, message: string, cap: number | undefined): void {
    if (cap !== undefined) onCap(cap);
    const full = code === 'CAPACITY_REACHED' && replies === 0;
    loss(full ? 'service-capacity' : 'service-failed', `error ${code}: ${message}`, 'a session that goes on');
  }

  function receive(text: string): void {
    if (lost || finished) return;
    const frame = readFrame(text);
    if (frame.type === 'unreadable') {
      loss('service-protocol', `${frame.problem} in ${excerpt(text)}`, 'a frame of the session protocol');
      return;
    }
    if (frame.type === 'error' && !REFUSED_ACTION_CODES.has(frame.data.code)) {
      fatal(frame.data.code, frame.data.message, frame.data.max_sessions);
      return;
    }
    const open = waiter;
    if (!open) {
      loss('service-protocol', `a frame that nothing asked for: ${excerpt(text)}`, 'one reply for each request');
      return;
    }
    if (frame.type !== 'error' && frame.type !== open.expected) {
      loss('service-protocol', `a reply of type ${frame.type}`, `one of type ${open.expected}`);
      return;
    }
    waiter = null;
    replies += 1;
    if (frame.type !== 'error') open.resolve({ ok: true, data: frame.data, raw: text });
    else open.resolve({ ok: false, code: frame.data.code, message: frame.data.message, details: frame.data['errors'] });
  }

  socket = await connect(doing, url, deadlines.connectMs, {
    text: receive,
    ended: ({ found, closeCode, violation }) => {
      if (closing) closing(closeCode !== null && !violation);
      else loss(violation ? 'service-protocol' : 'service-lost', found, 'an open connection');
    },
  });
  // A fatal frame can have come with the handshake.
  if (lost) socket.destroy();

  async function send(text: string, at: string): Promise<void> {
    const late = (): EnvError =>
      loss('service-timeout', `the peer took no bytes for ${deadlines.sendMs} ms`, 'a peer that reads', at);
    try {
      await within(deadlines.sendMs, socket!.send(text), late);
    } catch (error) {
      if (lost) throw lost;
      await new Promise<void>((resolve) => {
        onLost = resolve;
        setTimeout(resolve, LAST_FRAME_MS);
      });
      throw lose(
        fault('service-lost', { doing: at, found: 'the message could not be sent', wanted: 'a live peer' }, error),
      );
    }
  }

  return {
    async request(at, text, expected) {
      if (finished) throw fault('service-lost', { doing: at, found: 'the session was closed', wanted: 'an open one' });
      if (lost) throw lost;
      const reply = new Promise<Reply<DataFrame['type']>>((resolve, reject) => {
        waiter = { doing: at, expected, resolve, reject };
      });
      reply.catch(() => {});
      await send(text, at);
      const late = (): EnvError =>
        loss('service-timeout', `no reply within ${deadlines.replyMs} ms`, 'a reply; it may have taken effect', at);
      return (await within(deadlines.replyMs, reply, late)) as never;
    },

    async finish() {
      if (lost || finished) return false;
      finished = true;
      const closed = new Promise<boolean>((resolve) => {
        closing = resolve;
      });
      const polite = socket!.send(closeText).then(
        () => closed,
        () => false,
      );
      const inTime = await within(deadlines.closeMs, polite, () => new Error('late')).catch(() => false);
      socket!.destroy();
      return inTime;
    },

    destroy(error) {
      lose(error);
    },
  };
}
