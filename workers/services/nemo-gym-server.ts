// A NeMo Gym resources or Gymnasium server: session cookies, seed, tools, verify, and the replies around them. Not an
// agent or model server. Invariant: every reply but the 500 of an unhandled exception carries the session's cookie; a
// request without a good one starts a new session, silently.
import { randomBytes, randomUUID } from 'node:crypto';
import {
  emitWireJson,
  toWire,
  WireEmitError,
  type WireMap,
  type WireValue,
} from '../../src/environments/service/wire-json.ts';
import { readBody, requireBody } from './fastapi-body.ts';
import type { Faults } from './fault-switches.ts';
import {
  jsonReply,
  type Route,
  routeRequest,
  type ServerReply,
  type ServerRequest,
  startHttpService,
} from './http-server.ts';
import { createMcpExposure, type McpExposure, type McpTool } from './nemo-gym-mcp.ts';
import { aggregateMetrics } from './nemo-gym-metrics.ts';
import type { ServiceHandle } from './openenv-server.ts';
import { type Field, issueList, list, type Model, nested, RaisedInValidator, ValidationError } from './pydantic.ts';
import { exceptionRepr, HttpError } from './python-errors.ts';
import { pythonRepr } from './python-repr.ts';
import { createParams, responseModel } from './responses-models.ts';
import { cookieValue, readSession, setCookieLine, signSession } from './session-cookie.ts';

/** What a handler gives: a JSON value, or a text that is no JSON. */
export type HandlerResult = { json: WireValue } | { text: string; status?: number };

export interface Handler {
  /** Null: any body is taken, even none. */
  model: Model | null;
  run(body: WireMap, sessionId: string, request: ServerRequest): Promise<HandlerResult> | HandlerResult;
}

export interface ResourcesServer {
  className: string;
  name: string;
  reverifyMode?: 'stateless' | 'unsupported' | 'unknown';
  /** Absent in Gymnasium servers. */
  seed?: Handler;
  /** Columns that verify takes beside params and response; those of its reply are the handler's extras. */
  verify?: {
    columns: Readonly<Record<string, Field>>;
    run(body: WireMap, sessionId: string): Promise<WireMap> | WireMap;
  };
  tools: Readonly<Record<string, Handler>>;
  /** Answers POSTs that no route takes. */
  catchAll?: Handler['run'];
  /** Sessions that hold state now. */
  openSessions(): number;
  /** Ends what runs beside requests. */
  stop?(): void;
}

export interface NemoGymServerOptions {
  server: ResourcesServer;
  host?: string;
  port?: number;
  /** Key of the cookies' signature; random by default. Upstream uses the cookie's name. */
  secret?: string;
  faults?: Faults;
  /** Tools that are offered over MCP too; none by default. */
  mcpTools?: readonly McpTool[];
  now?: () => number;
  newSessionId?: () => string;
  keepAliveMs?: number;
}

const NG_PREFIX = /^\/ng-rollout\/[A-Za-z0-9][A-Za-z0-9._-]*(\/.*)$/;

/** A reply that is made outside the session middleware: no cookie, no vary. */
class Unhandled extends Error {
  readonly repr: string;
  constructor(repr: string) {
    super(repr);
    this.name = 'Unhandled';
    this.repr = repr;
  }
}

const holdsNan = (value: WireValue): boolean => {
  if (typeof value === 'number') return !Number.isFinite(value);
  if (Array.isArray(value)) return value.some(holdsNan);
  return value instanceof Map && [...value.values()].some(holdsNan);
};

/** FastAPI's 422, or the 500 of its printing handler: it cannot print NaN. */
function invalid(error: ValidationError): ServerReply {
  if (error.issues.some(({ input }) => holdsNan(input))) {
    throw new Unhandled("ValueError('Out of range float values are not JSON compliant')");
  }
  return jsonReply(422, emitWireJson(new Map([['detail', issueList(error.issues, false)]])));
}

/** A JSON reply; starlette refuses NaN, pydantic's own serialiser writes null. */
function resultReply(result: HandlerResult, nan: 'null' | 'refuse'): ServerReply {
  if ('text' in result) {
    return { status: result.status ?? 200, contentType: 'text/plain; charset=utf-8', body: result.text };
  }
  try {
    return jsonReply(200, emitWireJson(result.json, { nan }));
  } catch (error) {
    if (!(error instanceof WireEmitError)) throw error;
    if (error.reason === 'nan') throw new Unhandled(`ValueError(${pythonRepr(error.message)})`);
    throw new Unhandled(`PydanticSerializationError(${error.message})`);
  }
}

/** A handler's body. Not sent as JSON: the upstream handler fails while it prints the bytes. */
function readModel(request: ServerRequest, model: Model): WireMap {
  if (readBody(request).kind === 'raw') {
    throw new Unhandled("TypeError('Object of type bytes is not JSON serializable')");
  }
  try {
    return requireBody(request, model);
  } catch (error) {
    if (error instanceof RaisedInValidator) {
      throw new Unhandled("TypeError('Object of type ValueError is not JSON serializable')");
    }
    throw error;
  }
}

const aggregateModel: Model = {
  title: 'AggregateMetricsRequest',
  extra: 'ignore',
  fields: { verify_responses: { check: list() } },
};

/** Model of a body with params, response and own columns. */
export const rowModel = (
  columns: ResourcesServer['tools'] | Readonly<Record<string, Field>>,
  withResponse: boolean,
): Model => ({
  title: 'Row',
  extra: 'ignore',
  fields: {
    responses_create_params: { check: nested(createParams) },
    ...(withResponse ? { response: { check: nested(responseModel) } } : {}),
    ...(columns as Readonly<Record<string, Field>>),
  },
});

/** The offer of MCP in the reply to seeding, and the tools behind it: their handlers, without the routes. */
function exposeOverMcp(server: ResourcesServer, secret: string, tools: readonly McpTool[]): McpExposure {
  return createMcpExposure({
    serverName: server.name,
    secret,
    tools,
    async call(tool, args, sessionId, request) {
      const { model, run } = server.tools[tool]!;
      try {
        const inner = { ...request, path: `/${tool}`, body: emitWireJson(args) };
        const { status, body } = resultReply(
          await run(model ? readModel(inner, model) : args, sessionId, inner),
          'refuse',
        );
        return { text: body, error: status >= 300 };
      } catch (error) {
        const from = (code: number, detail: string) => ({
          text: `HTTP ${code} from POST /${tool}: ${detail}`,
          error: true,
        });
        if (error instanceof HttpError) return from(error.status, error.detail);
        if (error instanceof ValidationError) return from(422, emitWireJson(issueList(error.issues, true)));
        return from(500, error instanceof Unhandled ? error.repr : exceptionRepr(error));
      }
    },
  });
}

/** A seed handler whose reply has the offer. */
const offering = (seed: Handler, mcp: McpExposure): Handler => ({
  model: seed.model,
  async run(body, sessionId, request) {
    const result = await seed.run(body, sessionId, request);
    if ('json' in result && result.json instanceof Map) result.json.set('mcp', mcp.metadata(sessionId));
    return result;
  },
});

/** A request that the session middleware has seen. */
interface SessionRequest extends ServerRequest {
  sessionId: string;
}
type SessionRoute = Route<SessionRequest>;

function routesOf(server: ResourcesServer, mcp: McpExposure | null): SessionRoute[] {
  const guarded =
    (run: SessionRoute['run']) =>
    async (request: SessionRequest): Promise<ServerReply> => {
      try {
        return await run(request);
      } catch (error) {
        if (error instanceof ValidationError) return invalid(error);
        if (error instanceof HttpError) return jsonReply(error.status, emitWireJson(toWire({ detail: error.detail })));
        if (error instanceof Unhandled) throw error;
        throw new Unhandled(exceptionRepr(error));
      }
    };
  const post = (path: string, run: SessionRoute['run']): SessionRoute => ({ method: 'POST', path, run: guarded(run) });
  const handler = (path: string, { model, run }: Handler): SessionRoute =>
    post(path, async (request) => {
      const body = model ? readModel(request, model) : new Map<string, WireValue>();
      return resultReply(await run(body, request.sessionId, request), 'refuse');
    });

  const routes: SessionRoute[] = [
    { method: 'GET', path: '/', run: () => jsonReply(200, '{"status":"ok"}') },
    ...Object.entries(server.tools).map(([name, tool]) => handler(`/${name}`, tool)),
  ];
  if (server.seed) routes.push(handler('/seed_session', mcp ? offering(server.seed, mcp) : server.seed));
  const { verify } = server;
  if (verify) {
    const model = rowModel(verify.columns, true);
    const mode = emitWireJson(server.reverifyMode ?? 'unknown');
    routes.push({ method: 'GET', path: '/reverify_mode', run: () => jsonReply(200, mode) });
    routes.push(
      post('/verify', async (request) => {
        const body = readModel(request, model);
        const reply: WireMap = new Map<string, WireValue>([
          ['responses_create_params', body.get('responses_create_params')!],
          ['response', body.get('response')!],
        ]);
        for (const [name, value] of await verify.run(body, request.sessionId)) reply.set(name, value);
        return resultReply({ json: reply }, 'null');
      }),
      post('/aggregate_metrics', (request) => {
        const body = readModel(request, aggregateModel);
        return jsonReply(200, emitWireJson(aggregateMetrics(body.get('verify_responses') as WireValue[])));
      }),
    );
  }
  return routes;
}

/** Starts the server. Throws EnvError where the port is taken. */
export async function serveNemoGym(options: NemoGymServerOptions): Promise<ServiceHandle> {
  const { server } = options;
  const cookieName = `${server.className}___${server.name}`;
  const secret = options.secret ?? randomBytes(32).toString('hex');
  const now = options.now ?? (() => Date.now());
  const newSessionId = options.newSessionId ?? randomUUID;

  const mcp = options.mcpTools ? exposeOverMcp(server, secret, options.mcpTools) : null;
  const routes = routesOf(server, mcp);
  const { catchAll } = server;
  const any = catchAll
    ? async (unrouted: SessionRequest) => {
        const body = readBody(unrouted);
        const value = body.kind === 'json' && body.value instanceof Map ? body.value : new Map<string, WireValue>();
        return resultReply(await catchAll(value, unrouted.sessionId, unrouted), 'refuse');
      }
    : undefined;

  async function handle(request: ServerRequest): Promise<ServerReply> {
    const seconds = Math.floor(now() / 1000);
    const cookie = cookieValue(request.cookie, cookieName);
    const sessionId = (cookie === null ? null : readSession(secret, cookie, seconds)) ?? newSessionId();
    const stripped = NG_PREFIX.exec(request.path)?.[1];
    const inner = { ...request, sessionId, ...(stripped === undefined ? {} : { path: stripped }) };
    try {
      const atMcp = mcp !== null && /^\/mcp(\/|$)/.test(inner.path);
      const answer = atMcp ? mcp.answer(inner) : routeRequest(routes, inner, any);
      const reply = await answer.catch((error: unknown) => {
        if (error instanceof HttpError) return jsonReply(error.status, emitWireJson(toWire({ detail: error.detail })));
        throw error;
      });
      const line = setCookieLine(cookieName, signSession(secret, sessionId, seconds));
      return { ...reply, headers: { ...reply.headers, vary: 'Cookie', 'set-cookie': line } };
    } catch (error) {
      const repr = error instanceof Unhandled ? error.repr : exceptionRepr(error);
      return jsonReply(500, emitWireJson(repr));
    }
  }

  const http = await startHttpService({
    host: options.host ?? '127.0.0.1',
    port: options.port ?? 0,
    keepAliveMs: options.keepAliveMs ?? 30_000,
    handle: options.faults ? options.faults.http(handle) : handle,
  });
  return {
    url: http.url,
    openSessions: () => server.openSessions(),
    async stop() {
      server.stop?.();
      await http.stop();
    },
  };
}
