// JSON-RPC of OpenEnv: tools/list, tools/call and the session methods, on POST /mcp, WS /mcp and messages of type mcp.
// Not a full MCP server: the upstream one knows no other method. Invariant: an error always has `data`, and a request
// that does not validate is answered with id null.
import type { WireMap, WireValue } from '../../src/environments/service/wire-json.ts';
import { toWire } from '../../src/environments/service/wire-json.ts';
import type { ToolBox } from './openenv-environment.ts';
import { SessionRefused, type Slot, type Slots } from './openenv-slots.ts';
import { anything, dict, type Model, oneOf, text, ValidationError, validate, validationText } from './pydantic.ts';
import { exceptionText } from './python-errors.ts';

export const RPC = { parse: -32700, request: -32600, method: -32601, params: -32602, internal: -32603, server: -32000 };

const requestModel: Model = {
  title: 'JsonRpcRequest',
  extra: 'forbid',
  fields: {
    jsonrpc: { check: oneOf('2.0') },
    method: { check: text() },
    params: { check: dict(), fallback: () => new Map() },
    id: { check: anything, fallback: () => null },
  },
};

const envelope = (id: WireValue, key: 'result' | 'error', value: WireValue): WireMap =>
  new Map<string, WireValue>([
    ['jsonrpc', '2.0'],
    ['id', id],
    [key, value],
  ]);

export const rpcError = (id: WireValue, code: number, message: string, data: unknown = null): WireMap =>
  envelope(id, 'error', toWire({ code, message, data }));

/** A refused session as JSON-RPC says it. */
export const refusedRpc = (id: WireValue, refused: SessionRefused): WireMap =>
  rpcError(id, RPC.server, refused.message, refused.extra);

export interface RpcContext {
  slots: Slots;
  /** The socket's own session, or null over HTTP. */
  own: Slot | null;
  /** An environment for one request over HTTP without a session; throws what the factory throws. */
  throwaway(): { tools: () => ToolBox | null; close: () => Promise<void> };
  /** Sessions that HTTP created, by id. */
  httpSessions: Map<string, Slot>;
}

const listed = (box: ToolBox): WireValue =>
  toWire({
    tools: box.list().map(({ name, title, description, inputSchema, outputSchema }) => ({
      name,
      title,
      description,
      input_schema: inputSchema,
      execution: null,
      output_schema: outputSchema,
      icons: null,
      annotations: null,
      meta: { fastmcp: { tags: [] } },
    })),
  });

async function runTools(method: string, params: WireMap, id: WireValue, box: ToolBox | null): Promise<WireMap> {
  if (!box) return rpcError(id, RPC.internal, 'Environment does not support MCP');
  if (method === 'tools/list') return envelope(id, 'result', listed(box));
  const name = params.get('name');
  if (typeof name !== 'string') return rpcError(id, RPC.params, "Missing 'name' in params");
  const args = params.get('arguments');
  const outcome = await box.call(name, args instanceof Map ? args : new Map());
  return outcome.ok ? envelope(id, 'result', outcome.result) : rpcError(id, RPC.internal, outcome.message);
}

function createSession(id: WireValue, context: RpcContext): WireMap {
  if (context.own) return envelope(id, 'result', toWire({ session_id: context.own.id }));
  try {
    const slot = context.slots.take();
    context.httpSessions.set(slot.id, slot);
    return envelope(id, 'result', toWire({ session_id: slot.id }));
  } catch (error) {
    if (error instanceof SessionRefused) return refusedRpc(id, error);
    throw error;
  }
}

async function closeSession(id: WireValue, params: WireMap, context: RpcContext): Promise<WireMap> {
  const sessionId = params.get('session_id');
  if (typeof sessionId !== 'string') return rpcError(id, RPC.params, "Invalid params - 'session_id' is required");
  if (sessionId === context.own?.id) {
    return rpcError(id, RPC.request, 'Cannot close active WebSocket-managed session via MCP method');
  }
  const slot = context.httpSessions.get(sessionId);
  if (!slot) return rpcError(id, RPC.params, `Unknown session_id: ${sessionId}`);
  context.httpSessions.delete(sessionId);
  await slot.end();
  return envelope(id, 'result', toWire({ session_id: sessionId, closed: true }));
}

/** Answers one request that is a JSON object. Rejects only where a throwaway environment cannot be made. */
export async function answerRpc(request: WireMap, context: RpcContext): Promise<WireMap> {
  let checked: WireMap;
  try {
    checked = validate(requestModel, request);
  } catch (error) {
    if (!(error instanceof ValidationError)) throw error;
    const detail = validationText(requestModel.title, error.issues);
    return rpcError(null, RPC.request, `Invalid request: ${detail}`);
  }
  const id = checked.get('id')!;
  const method = checked.get('method') as string;
  const params = checked.get('params') as WireMap;
  if (method === 'openenv/session/create') return createSession(id, context);
  if (method === 'openenv/session/close') return closeSession(id, params, context);
  if (method !== 'tools/list' && method !== 'tools/call') {
    return rpcError(id, RPC.method, `Method not found: ${method}`);
  }
  const sessionId = params.get('session_id');
  const named = typeof sessionId === 'string' ? context.httpSessions.get(sessionId) : undefined;
  if (typeof sessionId === 'string' && !named && sessionId !== context.own?.id) {
    return rpcError(id, RPC.params, `Unknown session_id: ${sessionId}`);
  }
  const slot = named ?? context.own;
  const guarded = (box: () => ToolBox | null) =>
    runTools(method, params, id, box()).catch((error: unknown) => rpcError(id, RPC.internal, exceptionText(error)));
  if (slot) {
    slot.touch();
    return guarded(() => slot.instance.tools?.() ?? null);
  }
  const once = context.throwaway();
  try {
    return await guarded(once.tools);
  } finally {
    await once.close();
  }
}
