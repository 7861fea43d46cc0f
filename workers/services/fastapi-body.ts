// Request bodies as FastAPI reads them: JSON only under a JSON content type, and its error entries.
// Not a validator (pydantic.ts). Invariant: an absent body and JSON null are the same.
import {
  parseWireJson,
  WireJsonError,
  type WireMap,
  type WireValue,
} from '../../src/environments/service/wire-json.ts';
import type { ServerRequest } from './http-server.ts';
import { type Issue, type Model, ValidationError, validate } from './pydantic.ts';

/** `raw`: the body did not come as JSON, so a handler that wants an object sees its text. */
export type Body = { kind: 'absent' } | { kind: 'json'; value: WireValue } | { kind: 'raw'; text: string };

function invalidJson(error: WireJsonError): ValidationError {
  const issue: Issue = {
    type: 'json_invalid',
    loc: ['body', error.position],
    msg: 'JSON decode error',
    input: new Map(),
    ctx: { error: error.message },
  };
  return new ValidationError('body', [issue]);
}

/** Reads a body. Throws ValidationError `json_invalid`. */
export function readBody({ body, contentType }: ServerRequest): Body {
  if (body === '') return { kind: 'absent' };
  const type = (contentType ?? '').split(';')[0]!.trim().toLowerCase();
  if (!/^application\/([\w.+-]+\+)?json$/.test(type)) return { kind: 'raw', text: body };
  try {
    const value = parseWireJson(body);
    return value === null ? { kind: 'absent' } : { kind: 'json', value };
  } catch (error) {
    if (error instanceof WireJsonError) throw invalidJson(error);
    throw error;
  }
}

/** A body that must be there, through its model. Throws ValidationError with locations that begin with "body". */
export function requireBody(request: ServerRequest, model: Model): WireMap {
  const body = readBody(request);
  if (body.kind === 'absent') {
    throw new ValidationError('body', [{ type: 'missing', loc: ['body'], msg: 'Field required', input: null }]);
  }
  return validate(model, body.kind === 'raw' ? body.text : body.value, ['body']);
}
