// A resources server's tools over MCP: what `expose_tools_over_mcp` adds to a NeMo Gym server (seen in 0.7.0 with mcp
// 1.30.0): a token in the reply to seeding, and stateless JSON-RPC at /mcp.
// Not an MCP server in general: tools alone, no stream, no handshake needed. Invariant: the token names the session; a
// call without a good one reaches no tool. Unlike upstream, a tool's own error text is passed on as it is, so that an
// episode has the same observations by either way.
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import {
  emitWireJson,
  parseWireJson,
  toWire,
  WireJsonError,
  type WireMap,
  type WireValue,
} from '../../src/environments/service/wire-json.ts';
import { jsonReply, type ServerReply, type ServerRequest } from './http-server.ts';
import { pythonRepr } from './python-repr.ts';

export interface McpTool {
  name: string;
  description: string;
  inputSchema: object;
}

/** What a tool gave: the body of its reply, and whether that is an error. */
export interface McpToolResult {
  text: string;
  error: boolean;
}

export interface McpExposure {
  /** `mcp` of the reply to /seed_session. */
  metadata(sessionId: string): WireMap;
  /** Any request to /mcp. */
  answer(request: ServerRequest): Promise<ServerReply>;
}

export interface McpExposureOptions {
  serverName: string;
  /** Key of the tokens' signature: that of the session cookies. */
  secret: string;
  tools: readonly McpTool[];
  call(tool: string, args: WireMap, sessionId: string, request: ServerRequest): Promise<McpToolResult>;
}

const TOKEN_HEADER = 'X-NeMo-Gym-Session-Token';
const SALT = 'nemo-gym-mcp-session-token';
const VERSIONS = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25'];
/** Requests of MCP that a server with tools alone does not have; what is no request of MCP at all is invalid. */
const OTHER_METHODS = new Set(['prompts/list', 'resources/list', 'resources/templates/list', 'tasks/list']);

/** itsdangerous URLSafeSerializer with its default key derivation (`django-concat`), SHA-1. */
function signature(secret: string, value: string): Buffer {
  const key = createHash('sha1').update(`${SALT}signer${secret}`, 'utf8').digest();
  return createHmac('sha1', key).update(value, 'latin1').digest();
}

function signToken(secret: string, sessionId: string): string {
  const value = Buffer.from(JSON.stringify({ sid: sessionId, tools: null }), 'utf8').toString('base64url');
  return `${value}.${signature(secret, value).toString('base64url')}`;
}

/** The session of a token, or null where it does not hold. */
function readToken(secret: string, token: string): string | null {
  const end = token.lastIndexOf('.');
  if (end < 0) return null;
  const given = Buffer.from(token.slice(end + 1), 'base64url');
  const own = signature(secret, token.slice(0, end));
  if (own.length !== given.length || !timingSafeEqual(own, given)) return null;
  const { sid } = JSON.parse(Buffer.from(token.slice(0, end), 'base64url').toString('utf8')) as { sid: string };
  return sid;
}

const header = (request: ServerRequest, name: string): string => {
  const value = request.headers[name];
  return typeof value === 'string' ? value : '';
};

const rpcReply = (id: WireValue, outcome: Record<string, unknown>): ServerReply =>
  jsonReply(
    200,
    emitWireJson(new Map<string, WireValue>([['jsonrpc', '2.0'], ['id', id], ...(toWire(outcome) as WireMap)])),
  );

/** What the transport refuses before any request is read. */
const refused = (status: number, code: number, message: string, headers?: Record<string, string>): ServerReply =>
  jsonReply(status, emitWireJson(toWire({ jsonrpc: '2.0', id: 'server-error', error: { code, message } })), headers);

const invalidParams = (id: WireValue): ServerReply =>
  rpcReply(id, { error: { code: -32602, message: 'Invalid request parameters', data: '' } });

function toolResult(id: WireValue, { text, error }: McpToolResult): ServerReply {
  let structured: WireValue | undefined;
  try {
    const value = error ? null : parseWireJson(text);
    if (value instanceof Map) structured = value;
  } catch (failure) {
    if (!(failure instanceof WireJsonError)) throw failure;
  }
  const result = new Map<string, WireValue>([['content', toWire([{ type: 'text', text }])]]);
  if (structured !== undefined) result.set('structuredContent', structured);
  result.set('isError', error);
  return jsonReply(
    200,
    emitWireJson(
      new Map<string, WireValue>([
        ['jsonrpc', '2.0'],
        ['id', id],
        ['result', result],
      ]),
    ),
  );
}

export function createMcpExposure({ serverName, secret, tools, call }: McpExposureOptions): McpExposure {
  const names = new Set(tools.map(({ name }) => name));

  async function callTool(id: WireValue, params: WireValue | undefined, request: ServerRequest): Promise<ServerReply> {
    const name = params instanceof Map ? params.get('name') : undefined;
    const args = params instanceof Map ? (params.get('arguments') ?? new Map()) : undefined;
    if (typeof name !== 'string' || !(args instanceof Map)) return invalidParams(id);
    const failed = (text: string) => toolResult(id, { text, error: true });
    if (!names.has(name)) {
      return failed(`Unknown tool: ${pythonRepr(name)}. Available tools: ${pythonRepr([...names].sort())}`);
    }
    const token = header(request, TOKEN_HEADER.toLowerCase());
    if (token === '') return failed(`Missing ${TOKEN_HEADER} for Gym MCP tool call.`);
    const sessionId = readToken(secret, token);
    if (sessionId === null) return failed('Invalid Gym MCP session token.');
    return toolResult(id, await call(name, args, sessionId, request));
  }

  async function answerPost(request: ServerRequest): Promise<ServerReply> {
    if (!header(request, 'accept').includes('application/json')) {
      return refused(406, -32600, 'Not Acceptable: Client must accept application/json');
    }
    if (!request.contentType?.startsWith('application/json')) {
      return { status: 400, contentType: null, body: 'Invalid Content-Type header' };
    }
    const version = header(request, 'mcp-protocol-version');
    if (version !== '' && !VERSIONS.includes(version)) {
      const supported = `Supported versions: ${VERSIONS.join(', ')}`;
      return refused(400, -32600, `Bad Request: Unsupported protocol version: ${version}. ${supported}`);
    }
    let message: WireValue;
    try {
      message = parseWireJson(request.body);
    } catch (error) {
      if (!(error instanceof WireJsonError)) throw error;
      return refused(400, -32700, `Parse error: ${error.pythonText}`);
    }
    const method = message instanceof Map ? message.get('method') : undefined;
    if (!(message instanceof Map) || message.get('jsonrpc') !== '2.0' || typeof method !== 'string') {
      const isReply = message instanceof Map && (message.has('result') || message.has('error'));
      return isReply ? { status: 202, body: '' } : refused(400, -32602, 'Validation error: no JSON-RPC message');
    }
    const id = message.get('id');
    if (id === undefined) return { status: 202, body: '' };
    const params = message.get('params');
    if (method === 'ping') return rpcReply(id, { result: {} });
    if (method === 'tools/call') return callTool(id, params, request);
    if (method === 'tools/list') {
      const shown = tools.map(({ name, description, inputSchema }) => ({
        name,
        ...(description === '' ? {} : { description }),
        inputSchema,
      }));
      return rpcReply(id, { result: { tools: shown } });
    }
    if (method === 'initialize') {
      const wanted = params instanceof Map ? params.get('protocolVersion') : undefined;
      if (typeof wanted !== 'string') return invalidParams(id);
      const protocolVersion = VERSIONS.includes(wanted) ? wanted : VERSIONS.at(-1);
      const capabilities = { experimental: {}, tools: { listChanged: false } };
      return rpcReply(id, {
        result: { protocolVersion, capabilities, serverInfo: { name: serverName, version: '1' } },
      });
    }
    if (!OTHER_METHODS.has(method)) return invalidParams(id);
    return rpcReply(id, { error: { code: -32601, message: 'Method not found' } });
  }

  return {
    metadata: (sessionId) =>
      toWire({
        server_name: serverName,
        url_path: '/mcp',
        transport: 'http',
        headers: { [TOKEN_HEADER]: signToken(secret, sessionId) },
      }) as WireMap,
    async answer(request) {
      if (request.method === 'POST') return answerPost(request);
      if (request.method === 'DELETE') {
        return refused(405, -32600, 'Method Not Allowed: Session termination not supported');
      }
      if (request.method === 'GET' && !header(request, 'accept').includes('text/event-stream')) {
        return refused(406, -32600, 'Not Acceptable: Client must accept text/event-stream');
      }
      // There is nothing that the server would say by itself, so no stream is opened.
      return refused(405, -32600, 'Method Not Allowed', { allow: 'POST' });
    },
  };
}
