// What the model endpoint refuses, in the shape of OpenAI's errors.
// Not for faults of the program: those become one fixed reply without their text (workers/serve-model/). Invariant: a
// message says what was read, what was found, what is wanted and what to do; nothing is silently ignored.
import { ShaderlError } from '../lib/errors.ts';

/** A request that is answered with an error status. */
export class ApiError extends ShaderlError {
  readonly status: number;
  /** OpenAI's error type. */
  readonly type: string;
  /** The field of the request that is at fault, or null. */
  readonly param: string | null;
  constructor(status: number, type: string, code: string, param: string | null, message: string) {
    super(code, message);
    this.status = status;
    this.type = type;
    this.param = param;
  }
}

/** OpenAI's body of an error. */
export const errorBody = ({ message, type, param, code }: ApiError) => ({ error: { message, type, param, code } });

/** An error in four parts. `remedy` is a sentence. */
export function refused(
  status: number,
  code: string,
  parts: { doing: string; found: string; wanted: string; remedy: string; param?: string; type?: string },
): ApiError {
  const message = `${parts.doing}: found ${parts.found}; wanted ${parts.wanted}. ${parts.remedy}`;
  return new ApiError(status, parts.type ?? 'invalid_request_error', code, parts.param ?? null, message);
}

/** A request that is wrong: status 400. `found` and `wanted` read as in "found 3; wanted a text". */
export function badRequest(
  param: string | null,
  parts: { found: string; wanted: string; remedy: string; code?: string },
): ApiError {
  const where = param === null ? 'reading the request' : `reading \`${param}\``;
  const message = `${where}: found ${parts.found}; wanted ${parts.wanted}. ${parts.remedy}`;
  return new ApiError(400, 'invalid_request_error', parts.code ?? 'invalid_value', param, message);
}

/** A parameter of OpenAI's API that this endpoint does not have: status 400, code `unsupported_parameter`. */
export function notGiven(param: string, value: unknown, wanted: string, why: string): ApiError {
  const text = JSON.stringify(value) ?? 'nothing';
  const found = text.length > 80 ? `${text.slice(0, 80)}...` : text;
  return badRequest(param, { found, wanted, remedy: `${why} Leave it out.`, code: 'unsupported_parameter' });
}
