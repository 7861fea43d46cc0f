// One error class a boundary. Every message says what was being done, what was found, what was wanted and what to do.
// Not a logger: nothing here prints. Invariant: an error keeps its class, code and cause across a worker boundary.

/** The base of all errors that shaderl raises on purpose. `code` is kebab-case and stable; `exitCode` is the CLI's. */
export class ShaderlError extends Error {
  readonly code: string;
  /** 1 failed check, 2 usage or bad input, 3 no device, 4 infrastructure. */
  get exitCode(): 1 | 2 | 3 | 4 {
    return 2;
  }
  constructor(code: string, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
    this.name = new.target.name;
  }
}

/** A plan, run configuration or command line that cannot be run. */
export class PlanError extends ShaderlError {}

/** No usable adapter, a missing feature, a limit that is too small, a lost device. */
export class DeviceError extends ShaderlError {
  override get exitCode(): 1 | 2 | 3 | 4 {
    return 3;
  }
}

/** A shader that does not compile, or a kernel called with shapes that it does not take. */
export class KernelError extends ShaderlError {
  override get exitCode(): 1 | 2 | 3 | 4 {
    return 1;
  }
}

/** A checkpoint, tokenizer, adapter or data file that is missing, malformed or contradictory. */
export class ModelFileError extends ShaderlError {}

/** An environment service that failed. Never a reward. */
export class EnvError extends ShaderlError {
  override get exitCode(): 1 | 2 | 3 | 4 {
    return 4;
  }
}

/** A rollout whose record contradicts itself or a recomputation. */
export class AuditError extends ShaderlError {
  override get exitCode(): 1 | 2 | 3 | 4 {
    return 1;
  }
}

/** A sealed checkpoint or journal that cannot be trusted. */
export class CheckpointError extends ShaderlError {
  override get exitCode(): 1 | 2 | 3 | 4 {
    return 1;
  }
}

/** An evaluation that cannot be made or compared. */
export class EvaluationError extends ShaderlError {
  override get exitCode(): 1 | 2 | 3 | 4 {
    return 1;
  }
}

const classes = {
  PlanError,
  DeviceError,
  KernelError,
  ModelFileError,
  EnvError,
  AuditError,
  CheckpointError,
  EvaluationError,
} as const;

export interface PlainError {
  name: string;
  code: string;
  message: string;
  cause?: PlainError;
}

/** An error as plain data that a worker can post. */
export function errorToPlain(error: unknown): PlainError {
  if (!(error instanceof Error)) return { name: 'Error', code: 'unknown', message: String(error) };
  const code = error instanceof ShaderlError ? error.code : 'unknown';
  const plain: PlainError = { name: error.name, code, message: error.message };
  return error.cause === undefined ? plain : { ...plain, cause: errorToPlain(error.cause) };
}

/** The inverse of `errorToPlain`: the same class, code, message and cause on the far side of a worker. */
export function errorFromPlain(plain: PlainError): Error {
  const options = plain.cause === undefined ? undefined : { cause: errorFromPlain(plain.cause) };
  const Class = Object.hasOwn(classes, plain.name) ? classes[plain.name as keyof typeof classes] : undefined;
  if (Class) return new Class(plain.code, plain.message, options);
  const error = new Error(plain.message, options);
  error.name = plain.name;
  return error;
}
