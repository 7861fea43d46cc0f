// Exceptions of a service's handlers, by the name and text that Python would show.
// Not our own errors (src/lib/errors.ts): these are part of the wire. Invariant: `repr` is what an unhandled exception
// becomes in a reply.
import { pythonRepr } from './python-repr.ts';

/** An exception raised by an environment or a handler. */
export class PythonError extends Error {
  readonly className: string;
  /** `str(exc)`. */
  readonly str: string;
  /** `repr(exc)`. */
  readonly repr: string;
  constructor(className: string, argument: string | null, str = argument ?? '', repr?: string) {
    super(str);
    this.name = 'PythonError';
    this.className = className;
    this.str = str;
    this.repr = repr ?? `${className}(${argument === null ? '' : pythonRepr(argument)})`;
  }
}

/** FastAPI's HTTPException. */
export class HttpError extends Error {
  readonly status: number;
  readonly detail: string;
  constructor(status: number, detail: string) {
    super(detail);
    this.name = 'HttpError';
    this.status = status;
    this.detail = detail;
  }
}

/** Python's text of any thrown value. */
export function exceptionText(error: unknown): string {
  if (error instanceof PythonError) return error.str;
  return error instanceof Error ? error.message : String(error);
}

/** Python's repr of any thrown value. */
export function exceptionRepr(error: unknown): string {
  if (error instanceof PythonError) return error.repr;
  return `RuntimeError(${pythonRepr(exceptionText(error))})`;
}
