// One message of OpenEnv's /ws and what it is answered: the session protocol without the socket.
// Not the loop that keeps order (openenv-sockets.ts). Invariant: every message but `close` has exactly one answer, and
// only the codes that upstream treats so end the session.
import {
  emitWireJson,
  parseWireJson,
  WireEmitError,
  WireJsonError,
  type WireMap,
  type WireValue,
} from '../../src/environments/service/wire-json.ts';
import type { EnvironmentClass, StepOutcome } from './openenv-environment.ts';
import type { Slot } from './openenv-slots.ts';
import { toolStep } from './openenv-tools.ts';
import { dict, issueList, type Model, oneOf, RaisedInValidator, ValidationError, validate } from './pydantic.ts';
import { exceptionText } from './python-errors.ts';
import { pythonStr, pythonType } from './python-repr.ts';

/** What to do with a message. */
export type Answer = { kind: 'reply'; text: string } | { kind: 'fatal'; text: string } | { kind: 'close' };

/** Handles a JSON-RPC request inside a message of type mcp. */
export type RpcHandler = (request: WireMap, slot: Slot) => Promise<WireMap>;

const frame = (type: string, data: WireValue): string =>
  emitWireJson(
    new Map<string, WireValue>([
      ['type', type],
      ['data', data],
    ]),
  );

export const errorFrame = (code: string, message: string, extra: readonly [string, WireValue][] = []): string =>
  frame('error', new Map<string, WireValue>([['message', message], ['code', code], ...extra]));

const dataField = (required: boolean) => ({
  data: required ? { check: dict() } : { check: dict(), fallback: (): WireValue => new Map() },
});
const message = (type: string, fields: Model['fields']): Model => ({
  title: `WS${type}Message`,
  extra: 'forbid',
  fields: { type: { check: oneOf(type), fallback: () => type }, ...fields },
});
const models: Readonly<Record<string, Model>> = {
  reset: message('reset', dataField(false)),
  step: message('step', dataField(true)),
  state: message('state', {}),
  close: message('close', {}),
  mcp: message('mcp', dataField(true)),
};

/** The data of an observation frame or of an HTTP reply. */
export function outcomeData({ observation, reward, done, metadata }: StepOutcome): WireMap {
  const data: WireMap = new Map<string, WireValue>([
    ['observation', observation],
    ['reward', reward],
    ['done', done],
  ]);
  if (metadata && metadata.size > 0) data.set('metadata', metadata);
  return data;
}

/** Runs a step through the environment's own model, or as a tool action. Throws what the environment throws. */
export async function runStep(environment: EnvironmentClass, slot: Slot, data: WireMap): Promise<StepOutcome> {
  if (environment.action === null) return toolStep(slot.instance, data);
  return slot.instance.step(validate(environment.action, data));
}

/** Keyword arguments that reset's signature takes. */
export function resetKwargs(environment: EnvironmentClass, data: WireMap): WireMap {
  const { resetParameters } = environment;
  if (resetParameters === 'any') return data;
  return new Map([...data].filter(([name]) => resetParameters.includes(name)));
}

async function act(environment: EnvironmentClass, slot: Slot, type: string, checked: WireMap, rpc: RpcHandler) {
  const data = (checked.get('data') ?? new Map()) as WireMap;
  if (type === 'reset') {
    slot.touch();
    return frame('observation', outcomeData(await slot.instance.reset(resetKwargs(environment, data))));
  }
  if (type === 'step') {
    slot.touch();
    return frame('observation', outcomeData(await runStep(environment, slot, data)));
  }
  if (type === 'state') return frame('state', await slot.instance.state());
  return frame('mcp', await rpc(data, slot));
}

function validationFrame(error: ValidationError): Answer {
  try {
    const errors = issueList(error.issues, true);
    return { kind: 'reply', text: errorFrame('VALIDATION_ERROR', 'Invalid message', [['errors', errors]]) };
  } catch (unwritable) {
    // A lone surrogate in the echoed input: the error list cannot be written down.
    return { kind: 'fatal', text: errorFrame('SESSION_ERROR', exceptionText(unwritable)) };
  }
}

/** Answers one text frame. Never rejects. */
export async function answerText(
  text: string,
  environment: EnvironmentClass,
  slot: Slot,
  rpc: RpcHandler,
): Promise<Answer> {
  const reply = (frameText: string): Answer => ({ kind: 'reply', text: frameText });
  let value: WireValue;
  try {
    value = parseWireJson(text);
  } catch (error) {
    const detail = error instanceof WireJsonError ? error.pythonText : exceptionText(error);
    return reply(errorFrame('INVALID_JSON', `Invalid JSON: ${detail}`));
  }
  if (!(value instanceof Map)) {
    const detail = `'${pythonType(value)}' object has no attribute 'get'`;
    return { kind: 'fatal', text: errorFrame('SESSION_ERROR', detail) };
  }
  const type = value.has('type') ? pythonStr(value.get('type')!) : '';
  const model = typeof value.get('type') === 'string' && Object.hasOwn(models, type) ? models[type]! : null;
  if (!model) return reply(errorFrame('UNKNOWN_TYPE', `Unknown message type: ${type}`));
  try {
    const checked = validate(model, value);
    return type === 'close' ? { kind: 'close' } : reply(await act(environment, slot, type, checked, rpc));
  } catch (error) {
    if (error instanceof ValidationError) {
      return validationFrame(error);
    }
    if (error instanceof RaisedInValidator) {
      // The upstream server fails while it writes the error list down.
      const detail = "Unable to serialize unknown type: <class 'ValueError'>";
      return { kind: 'fatal', text: errorFrame('SESSION_ERROR', detail) };
    }
    const detail = error instanceof WireEmitError ? error.message : exceptionText(error);
    return reply(errorFrame('EXECUTION_ERROR', detail));
  }
}
