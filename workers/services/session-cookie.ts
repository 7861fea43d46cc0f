// The session cookie of Starlette's SessionMiddleware: base64 JSON, a timestamp and an itsdangerous signature.
// Not encrypted: the session id can be read by everyone who holds the cookie. Invariant: a cookie of another secret, an
// older one than the limit, or one from the future counts as none, without a message.
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';

/** 14 days, in seconds. */
export const MAX_AGE_S = 1_209_600;

const base64url = (bytes: Buffer): string => bytes.toString('base64url');

/** The key that was derived last: a server has one secret, and signs and checks with it in every exchange. */
let derived: { secret: string; key: Buffer } | null = null;

function keyOf(secret: string): Buffer {
  if (derived?.secret !== secret) {
    derived = { secret, key: createHash('sha1').update(`itsdangerous.Signer${'signer'}${secret}`, 'utf8').digest() };
  }
  return derived.key;
}

/** itsdangerous Signer with its default salt and key derivation (`django-concat`), SHA-1. */
function signature(secret: string, value: string): string {
  const key = keyOf(secret);
  return base64url(createHmac('sha1', key).update(value, 'latin1').digest());
}

function timestampText(seconds: number): string {
  const bytes: number[] = [];
  for (let rest = seconds; rest > 0; rest = Math.floor(rest / 256)) bytes.unshift(rest % 256);
  return base64url(Buffer.from(bytes));
}

/** Cookies that were signed here lately: a client sends its newest one back, and gets the same within a second. */
interface Signed {
  sessionId: string;
  seconds: number;
}
const REMEMBERED = 4096;
let remembered: { secret: string; cookies: Map<string, Signed>; ofSession: Map<string, string> } | null = null;

function memoryOf(secret: string): NonNullable<typeof remembered> {
  if (remembered?.secret !== secret) remembered = { secret, cookies: new Map(), ofSession: new Map() };
  return remembered;
}

/** A signed cookie value. `seconds` is the time of signing. */
export function signSession(secret: string, sessionId: string, seconds: number): string {
  const { cookies, ofSession } = memoryOf(secret);
  const last = ofSession.get(sessionId);
  if (last !== undefined && cookies.get(last)?.seconds === seconds) return last;
  const signed = signAnew(secret, sessionId, seconds);
  if (last !== undefined) cookies.delete(last);
  if (cookies.size >= REMEMBERED) {
    cookies.clear();
    ofSession.clear();
  }
  cookies.set(signed, { sessionId, seconds });
  ofSession.set(sessionId, signed);
  return signed;
}

function signAnew(secret: string, sessionId: string, seconds: number): string {
  const payload = Buffer.from(`{"session_id": "${sessionId}"}`, 'latin1').toString('base64');
  const value = `${payload}.${timestampText(seconds)}`;
  return `${value}.${signature(secret, value)}`;
}

/** Neither older than the limit nor from the future. */
const inTime = (signedAt: number, seconds: number): boolean => seconds >= signedAt && seconds - signedAt <= MAX_AGE_S;

/** The session id of a cookie value, or null where it does not hold. */
export function readSession(secret: string, cookie: string, seconds: number): string | null {
  const known = remembered?.secret === secret ? remembered.cookies.get(cookie) : undefined;
  if (known) return inTime(known.seconds, seconds) ? known.sessionId : null;
  const end = cookie.lastIndexOf('.');
  if (end < 0) return null;
  const value = cookie.slice(0, end);
  const [own, given] = [Buffer.from(signature(secret, value)), Buffer.from(cookie.slice(end + 1))];
  if (own.length !== given.length || !timingSafeEqual(own, given)) return null;
  const middle = value.lastIndexOf('.');
  if (middle < 0) return null;
  let signedAt = 0;
  for (const byte of Buffer.from(value.slice(middle + 1), 'base64url')) signedAt = signedAt * 256 + byte;
  if (!inTime(signedAt, seconds)) return null;
  try {
    const session: unknown = JSON.parse(Buffer.from(value.slice(0, middle), 'base64').toString('utf8'));
    const id = (session as { session_id?: unknown } | null)?.session_id;
    return typeof id === 'string' ? id : null;
  } catch {
    return null;
  }
}

/** The value of a cookie in a Cookie header; of two with one name the last counts, and quotes are taken off. */
export function cookieValue(header: string | null, name: string): string | null {
  let found: string | null = null;
  for (const part of (header ?? '').split(';')) {
    const at = part.indexOf('=');
    if (at < 0 || part.slice(0, at).trim() !== name) continue;
    const value = part.slice(at + 1).trim();
    found = /^".*"$/.test(value) ? value.slice(1, -1).replace(/\\(.)/g, '$1') : value;
  }
  return found;
}

/** The Set-Cookie line. */
export const setCookieLine = (name: string, value: string): string =>
  `${name}=${value}; path=/; Max-Age=${MAX_AGE_S}; httponly; samesite=lax`;
