// The HTTP side of an OpenEnv server: health, metadata, schema, the stateless reset, step and state, and POST /mcp.
// Not the session protocol: each reset, step and state here makes an environment and closes it. Invariant: none of
// these requests takes a slot but openenv/session/create.
import {
  emitWireJson,
  parseWireJson,
  toWire,
  type WireMap,
  type WireValue,
} from '../../src/environments/service/wire-json.ts';
import { readBody, requireBody } from './fastapi-body.ts';
import { jsonReply, type Route, type ServerReply, type ServerRequest } from './http-server.ts';
import type { EnvironmentClass, EnvironmentInstance, StepOutcome } from './openenv-environment.ts';
import { outcomeData, resetKwargs } from './openenv-messages.ts';
import { answerRpc, RPC, type RpcContext, rpcError } from './openenv-rpc.ts';
import { STATE_SCHEMA } from './openenv-schemas.ts';
import { toolStep } from './openenv-tools.ts';
import { dict, float, int, issueList, type Model, nullable, text, ValidationError, validate } from './pydantic.ts';

const none = { fallback: (): WireValue => null };
const resetRequest: Model = {
  title: 'ResetRequest',
  extra: 'allow',
  fields: {
    seed: { check: nullable(int({ ge: 0 })), ...none },
    episode_id: { check: nullable(text({ maxLength: 255 })), ...none },
  },
};
const stepRequest: Model = {
  title: 'StepRequest',
  extra: 'allow',
  fields: {
    action: { check: dict() },
    timeout_s: { check: nullable(float({ gt: 0 })), ...none },
    request_id: { check: nullable(text({ maxLength: 255 })), ...none },
  },
};

const serverError: ServerReply = {
  status: 500,
  contentType: 'text/plain; charset=utf-8',
  body: 'Internal Server Error',
};
const json = (value: WireValue): ServerReply => jsonReply(200, emitWireJson(value));
const invalid = (error: ValidationError, withUrl: boolean): ServerReply =>
  jsonReply(422, emitWireJson(new Map([['detail', issueList(error.issues, withUrl)]])));

/** HTTP coerces rewards to float; the socket does not. */
function httpOutcome(outcome: StepOutcome): ServerReply {
  const { reward, observation, done } = outcome;
  const coerced = reward === null || typeof reward === 'number' ? reward : Number(reward);
  return json(outcomeData({ observation, reward: coerced, done }));
}

/** Anything that is thrown becomes the 500 of an unhandled exception. */
const guarded =
  (run: (request: ServerRequest) => Promise<ServerReply> | ServerReply) =>
  async (request: ServerRequest): Promise<ServerReply> => {
    try {
      return await run(request);
    } catch {
      return serverError;
    }
  };

/** The routes. In production mode reset, step and state are absent. */
export function openEnvRoutes(environment: EnvironmentClass, production: boolean, rpc: () => RpcContext): Route[] {
  async function once<T>(use: (instance: EnvironmentInstance) => Promise<T> | T): Promise<T> {
    const instance = environment.create();
    try {
      return await use(instance);
    } finally {
      await instance.close();
    }
  }

  async function reset(request: ServerRequest): Promise<ServerReply> {
    let kwargs: WireMap;
    try {
      const body = readBody(request);
      const value =
        body.kind === 'absent' ? new Map<string, WireValue>() : body.kind === 'raw' ? body.text : body.value;
      kwargs = validate(resetRequest, value, ['body']);
    } catch (error) {
      if (error instanceof ValidationError) return invalid(error, false);
      throw error;
    }
    // exclude_unset: defaults that were not sent are not passed on.
    for (const name of ['seed', 'episode_id']) if (kwargs.get(name) === null) kwargs.delete(name);
    return httpOutcome(await once((instance) => instance.reset(resetKwargs(environment, kwargs))));
  }

  async function step(request: ServerRequest): Promise<ServerReply> {
    let action: WireMap;
    try {
      action = requireBody(request, stepRequest).get('action') as WireMap;
    } catch (error) {
      if (error instanceof ValidationError) return invalid(error, false);
      throw error;
    }
    return once(async (instance) => {
      if (environment.action === null) {
        try {
          return httpOutcome(await toolStep(instance, action));
        } catch (error) {
          if (error instanceof ValidationError) return invalid(error, true);
          throw error;
        }
      }
      let checked: WireMap;
      try {
        checked = validate(environment.action, action);
      } catch (error) {
        if (error instanceof ValidationError) return invalid(error, true);
        throw error;
      }
      return httpOutcome(await instance.step(checked));
    });
  }

  async function state(): Promise<ServerReply> {
    // Fields that a State subclass declares are dropped here.
    const full = await once((instance) => instance.state());
    return json(new Map(['episode_id', 'step_count'].map((name) => [name, full.get(name) ?? null])));
  }

  async function metadata(): Promise<ServerReply> {
    const { name, description, version } = environment;
    await once(() => {});
    return json(toWire({ name, description, readme_content: null, version, author: null, documentation_url: null }));
  }

  async function mcp({ body }: ServerRequest): Promise<ServerReply> {
    let request: WireValue = null;
    try {
      request = parseWireJson(body);
    } catch {
      // Answered as a parse error, like everything that is no object.
    }
    if (!(request instanceof Map)) return json(rpcError(null, RPC.parse, 'Parse error'));
    return json(await answerRpc(request, rpc()));
  }

  const { actionSchema, observationSchema } = environment;
  const schema = `{"action":${actionSchema},"observation":${observationSchema},"state":${STATE_SCHEMA}}`;
  const routes: Route[] = [
    { method: 'GET', path: '/health', run: () => jsonReply(200, '{"status":"healthy"}') },
    { method: 'GET', path: '/metadata', run: guarded(metadata) },
    { method: 'GET', path: '/schema', run: () => jsonReply(200, schema) },
    { method: 'POST', path: '/mcp', run: guarded(mcp) },
  ];
  if (production) return routes;
  return [
    ...routes,
    { method: 'POST', path: '/reset', run: guarded(reset) },
    { method: 'POST', path: '/step', run: guarded(step) },
    { method: 'GET', path: '/state', run: guarded(state) },
  ];
}
