// What the protocol clients need of a network: one HTTP exchange, one WebSocket.
// Not an implementation: those are http-node.ts and socket-node.ts. Invariant: an implementation never sends anything
// twice, and a request that missed a deadline leaves no open connection.

export interface HttpRequest {
  method: 'GET' | 'POST';
  url: string;
  headers: Record<string, string>;
  body: string | null;
}

export interface HttpReply {
  status: number;
  /** Lower case, or '' if there is none. */
  contentType: string;
  setCookies: string[];
  headers: Readonly<Record<string, string>>;
  text: string;
}

/**
 * One exchange on a connection of its own. Rejects with a fault: `service-refused` only where nothing was sent,
 * `service-timeout`, `service-lost`, or `service-protocol` for bytes that are no HTTP or no UTF-8.
 */
export type HttpTransport = (
  doing: string,
  request: HttpRequest,
  deadlines: { connectMs: number; replyMs: number },
) => Promise<HttpReply>;

export interface SocketEvents {
  /** One whole text frame. */
  text(text: string): void;
  /** The connection is over, once: a close frame, a TCP end, or a violation of the protocol. */
  ended(end: { found: string; closeCode: number | null; violation: boolean }): void;
}

export interface WireSocket {
  /** Resolves when the bytes are with the kernel. */
  send(text: string): Promise<void>;
  /** Ends TCP at once, without a close frame. Safe to repeat. */
  destroy(): void;
}

/** Opens a WebSocket. Rejects with a fault: `service-refused` only where the TCP connection was refused. */
export type ConnectSocket = (
  doing: string,
  url: string,
  connectMs: number,
  events: SocketEvents,
) => Promise<WireSocket>;

/** A service's address without a trailing slash. */
export function baseUrl(url: string): string {
  return url.replace(/\/+$/, '');
}
