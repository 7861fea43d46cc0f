// What can go wrong with an environment service, as EnvError with a stable code.
// Not a retry policy by itself. Invariant: only the two codes of `neverStarted` may be tried again, because in them the
// service has done nothing yet; no code of this file ever becomes a reward.
import { EnvError } from '../../lib/errors.ts';

export type FaultCode =
  /** The connection was refused: nothing was sent. */
  | 'service-refused'
  /** The service answered that it is full, before it did anything. */
  | 'service-capacity'
  /** The connection ended or broke. */
  | 'service-lost'
  /** A deadline passed; the connection was destroyed. */
  | 'service-timeout'
  /** A reply that the protocol does not allow here. */
  | 'service-protocol'
  /** The service said that it failed: a factory error, a gateway's 502, an exception in reset or verify. */
  | 'service-failed'
  /** The service went on in another session. */
  | 'session-changed'
  /** There is no usable reward: none, not a finite number, a failed judge, a masked sample. */
  | 'no-verdict'
  /** The service's own log of the session is not what the client sent and got. */
  | 'log-mismatch'
  /** Members of one group got different first observations. */
  | 'group-fingerprint';

/** An EnvError in four parts. `wanted` reads "a reply within 500 ms"; `remedy` is a sentence. */
export function fault(
  code: FaultCode,
  parts: { doing: string; found: string; wanted: string; remedy?: string },
  cause?: unknown,
): EnvError {
  const remedy = parts.remedy ?? 'The episode is void: start it again from reset.';
  const message = `${parts.doing}: ${parts.found}; wanted ${parts.wanted}. ${remedy}`;
  return new EnvError(code, message, cause === undefined ? undefined : { cause });
}

/** Whether the service did nothing yet, so that opening again cannot run anything twice. */
export function neverStarted(error: unknown): boolean {
  return error instanceof EnvError && (error.code === 'service-refused' || error.code === 'service-capacity');
}

/** The first characters of a reply, for messages. */
export function excerpt(text: string): string {
  return text.length <= 200
    ? JSON.stringify(text)
    : `${JSON.stringify(text.slice(0, 200))} and ${text.length - 200} more`;
}
