// HTTP exchanges of one rollout with one NeMo Gym server, and their cookies. Not a client pool: the jar belongs to
// this rollout and this server alone. Invariant: the newest cookie is sent back; a reply without one keeps the old
// one; a session that changed behind an unchanged name is a lost session.
import { CookieJar } from 'tough-cookie';
import type { Deadlines } from '../service/deadlines.ts';
import { excerpt, fault } from '../service/faults.ts';
import type { HttpReply, HttpTransport } from '../service/transport.ts';

/** What one request has of its own. */
export interface OwnSending {
  /** Deadline of the reply; that of the client by default. */
  replyMs?: number;
  /** Beside cookie and content type, which are the exchange's. */
  headers?: Readonly<Record<string, string>>;
}

export interface Exchange {
  /** One request, once. Rejects with a fault; any status is a reply. */
  send(doing: string, method: 'GET' | 'POST', path: string, body: string | null, own?: OwnSending): Promise<HttpReply>;
  /** The session id that the server's own cookie names, for the record. */
  sessionId(): string | null;
}

/** The session id inside a Starlette session cookie; null where the cookie is something else. */
export function cookieSessionId(value: string): string | null {
  const [payload, ...rest] = value.replace(/^"|"$/g, '').split('.');
  if (rest.length < 2 || !payload) return null;
  try {
    const parsed: unknown = JSON.parse(atob(payload.replaceAll('-', '+').replaceAll('_', '/')));
    const id = (parsed as { session_id?: unknown } | null)?.session_id;
    return typeof id === 'string' ? id : null;
  } catch {
    return null;
  }
}

/** Cookies expire by the second, and servers sign the same one anew each second: nothing is remembered for longer. */
const FRESH_MS = 1_000;

export function createExchange(base: string, http: HttpTransport, deadlines: Deadlines): Exchange {
  const jar = new CookieJar(undefined, { rejectPublicSuffixes: false, allowSpecialUseDomain: true });
  /** Cookie name -> session id. */
  const sessions = new Map<string, string>();
  /** Whether every cookie goes to all paths, so that one answer of the jar is that for each of them. */
  let rooted = true;
  let stored = { lines: '', until: 0 };
  let sent = { cookies: new Map<string, string>(), until: 0 };

  async function cookiesFor(url: string): Promise<string> {
    const now = performance.now();
    if (now >= sent.until) sent = { cookies: new Map(), until: now + FRESH_MS };
    const key = rooted ? '' : url;
    const known = sent.cookies.get(key);
    if (known !== undefined) return known;
    const cookies = await jar.getCookieString(url);
    sent.cookies.set(key, cookies);
    return cookies;
  }

  async function store(doing: string, url: string, reply: HttpReply): Promise<void> {
    if (reply.setCookies.length === 0) return;
    // Where a cookie counts if it names no path of its own.
    const folder = url.slice(0, url.lastIndexOf('/'));
    const lines = [folder, ...reply.setCookies].join('\n');
    const now = performance.now();
    if (lines === stored.lines && now < stored.until) return;
    for (const line of reply.setCookies) {
      const cookie = await jar.setCookie(line, url, { ignoreError: true });
      if (!cookie) continue;
      rooted &&= cookie.path === '/';
      const id = cookieSessionId(cookie.value);
      if (id === null) continue;
      const before = sessions.get(cookie.key);
      if (before !== undefined && before !== id) {
        const found = `the server went on in session ${id}`;
        throw fault('session-changed', { doing, found, wanted: `session ${before}` });
      }
      sessions.set(cookie.key, id);
    }
    stored = { lines, until: now + FRESH_MS };
    sent.until = 0;
  }

  return {
    async send(doing, method, path, body, { replyMs = deadlines.replyMs, headers: own } = {}) {
      const url = `${base}${path}`;
      const cookie = await cookiesFor(url);
      const headers: Record<string, string> = { accept: '*/*', ...own };
      if (cookie !== '') headers['cookie'] = cookie;
      if (body !== null) headers['content-type'] = 'application/json';
      const reply = await http(doing, { method, url, headers, body }, { connectMs: deadlines.connectMs, replyMs });
      await store(doing, url, reply);
      return reply;
    },
    sessionId: () => [...sessions.values()][0] ?? null,
  };
}

/** A reply's body as a JSON object, for statuses 2xx. Throws a fault for anything else. */
export function successObject(doing: string, reply: HttpReply): Record<string, unknown> {
  if (reply.status < 200 || reply.status > 299) {
    const found = `status ${reply.status}: ${excerpt(reply.text)}`;
    throw fault('service-failed', { doing, found, wanted: 'status 2xx' });
  }
  let value: unknown;
  try {
    value = JSON.parse(reply.text);
  } catch (error) {
    throw fault('service-protocol', { doing, found: excerpt(reply.text), wanted: 'a JSON object' }, error);
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw fault('service-protocol', { doing, found: excerpt(reply.text), wanted: 'a JSON object' });
}

/**
 * Whether an error comes from something between us and the server: a 5xx of the server itself has a JSON body, a string
 * for an unhandled exception or an object with `detail`; no error of its own is without a content type.
 */
export function isGatewayFailure(reply: HttpReply): boolean {
  if (reply.status >= 400 && reply.contentType === '') return true;
  if (reply.status < 500) return false;
  if (!reply.contentType.startsWith('application/json')) return true;
  try {
    const value: unknown = JSON.parse(reply.text);
    return !(typeof value === 'string' || (typeof value === 'object' && value !== null && 'detail' in value));
  } catch {
    return true;
  }
}
