// Deadlines of everything that a client of a service waits for.
// Not a retry. Invariant: no wait of the clients is without one of these.

/** Milliseconds. */
export interface Deadlines {
  /** TCP connect and WebSocket handshake. */
  connectMs: number;
  /** Until a message is handed to the kernel: a peer that stops reading blocks it. */
  sendMs: number;
  /** From the end of sending to the whole reply. */
  replyMs: number;
  /** The closing handshake, or a close request. */
  closeMs: number;
  /** All of opening a session: waiting for admission, refused connections and a full service included. */
  openMs: number;
}

export const DEFAULT_DEADLINES: Deadlines = {
  connectMs: 10_000,
  sendMs: 10_000,
  replyMs: 60_000,
  closeMs: 5_000,
  openMs: 120_000,
};

/**
 * The outcome of `work`, or rejection with `late()` after `ms`. `late` must also end the work (destroy its connection);
 * what comes of it afterwards is ignored.
 */
export function within<T>(ms: number, work: Promise<T>, late: () => Error): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const timer = setTimeout(() => reject(late()), ms);
    work.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
