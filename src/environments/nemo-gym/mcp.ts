// The tools of a NeMo Gym server over MCP, where seeding offers them: JSON-RPC in single POSTs, under the session token
// that the reply to /seed_session gives.
// Not an MCP client in general: no handshake, no stream, as the server is stateless. Invariant: each call is sent once,
// and a server that lost the session is a fault, never an observation.
import { z } from 'zod';
import type { Observation, ToolSpec } from '../port.ts';
import { excerpt, fault } from '../service/faults.ts';
import type { HttpReply } from '../service/transport.ts';
import { type Exchange, successObject } from './exchange.ts';
import { RESERVED_NAMES } from './row.ts';

/** Where the tools are, and the headers that name the session. */
export interface McpOffer {
  path: string;
  headers: Readonly<Record<string, string>>;
}

const offer = z.looseObject({
  url_path: z.string().regex(/^\/(?!\/)[\w./-]*$/),
  transport: z.literal('http'),
  headers: z.record(z.string().regex(/^[\w-]+$/), z.string().regex(/^[\x20-\x7e]*$/)),
});

/** The offer in a reply to /seed_session (`mcp`, or `resources_tools` of newer servers), or null if it has none. */
export function readMcpOffer(doing: string, seeded: Readonly<Record<string, unknown>>): McpOffer | null {
  const offered = seeded['mcp'] ?? seeded['resources_tools'] ?? null;
  if (offered === null) return null;
  const parsed = offer.safeParse(offered);
  if (parsed.success) return { path: parsed.data.url_path, headers: parsed.data.headers };
  const issue = parsed.error.issues[0]!;
  const found = `mcp.${issue.path.join('.')}: ${issue.message}`;
  throw fault('service-protocol', { doing, found, wanted: 'a path of this server, transport http and headers' });
}

const listed = z.looseObject({
  tools: z.array(
    z.looseObject({
      name: z.string().regex(/^[\w-]+$/),
      description: z.string().nullish(),
      inputSchema: z.record(z.string(), z.unknown()),
    }),
  ),
  nextCursor: z.string().nullish(),
});
const called = z.looseObject({
  content: z.array(z.looseObject({ type: z.string(), text: z.string().optional() })),
  isError: z.boolean().default(false),
});

/** Texts by which a server says that it does not know the session. */
const lostSession = /^(Missing \S+ for Gym MCP tool call\.|Invalid Gym MCP session token\.)$/;

function parse<T>(schema: z.ZodType<T>, doing: string, value: unknown): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0]!;
  const found = `${issue.path.join('.')}: ${issue.message}`;
  throw fault('service-protocol', { doing, found, wanted: 'a result of MCP' });
}

/** The JSON of a reply; a server may wrap it into one event. */
function unwrapped(reply: HttpReply): HttpReply {
  if (!reply.contentType.startsWith('text/event-stream')) return reply;
  const data = reply.text.split(/\r?\n/).filter((line) => line.startsWith('data:'));
  return { ...reply, text: data.map((line) => line.slice(5).trim()).join('') };
}

export interface McpTools {
  /** The tools that the session may call, in the server's order. */
  list(doing: string): Promise<ToolSpec[]>;
  /** Runs one tool; `argumentsJson` is the text of an object and is sent as it stands. */
  call(doing: string, tool: string, argumentsJson: string): Promise<Observation>;
}

export function createMcpTools(exchange: Exchange, { path, headers }: McpOffer): McpTools {
  let nextId = 1;

  async function request(doing: string, method: string, params: string): Promise<unknown> {
    const id = nextId++;
    const body = `{"jsonrpc":"2.0","id":${id},"method":${JSON.stringify(method)},"params":${params}}`;
    const accept = 'application/json, text/event-stream';
    const reply = await exchange.send(doing, 'POST', path, body, { headers: { ...headers, accept } });
    const answer = successObject(doing, unwrapped(reply));
    if (answer['id'] !== id) {
      throw fault('service-protocol', {
        doing,
        found: `an answer to ${JSON.stringify(answer['id'])}`,
        wanted: `one to ${id}`,
      });
    }
    if ('error' in answer) {
      const found = `an error of MCP: ${excerpt(JSON.stringify(answer['error']))}`;
      throw fault('service-failed', { doing, found, wanted: 'a result' });
    }
    return answer['result'];
  }

  return {
    async list(doing) {
      const tools: ToolSpec[] = [];
      for (let cursor: string | null | undefined = null; cursor !== undefined; ) {
        const params: string = cursor === null ? '{}' : JSON.stringify({ cursor });
        const page = parse(listed, doing, await request(doing, 'tools/list', params));
        for (const { name, description, inputSchema } of page.tools) {
          const twice = tools.some((tool) => tool.function.name === name);
          if (twice || RESERVED_NAMES.has(name)) {
            const found = `tool "${name}" ${twice ? 'twice' : ', which is a route of the protocol'}`;
            throw fault('service-protocol', { doing, found, wanted: 'names of tools, each once' });
          }
          const parameters = inputSchema;
          tools.push({ type: 'function', function: { name, description: description ?? '', parameters } });
        }
        cursor = page.nextCursor ?? undefined;
        if (tools.length > 1024) {
          throw fault('service-protocol', { doing, found: 'more than 1,024 tools', wanted: 'a list that ends' });
        }
      }
      return tools;
    },
    async call(doing, tool, argumentsJson) {
      const params = `{"name":${JSON.stringify(tool)},"arguments":${argumentsJson}}`;
      const { content, isError } = parse(called, doing, await request(doing, 'tools/call', params));
      const text = content
        .map((part) => (part.type === 'text' && part.text !== undefined ? part.text : JSON.stringify(part)))
        .join('\n');
      if (isError && lostSession.test(text)) {
        throw fault('session-changed', { doing, found: text, wanted: 'the session of the token' });
      }
      return { content: text, error: isError };
    },
  };
}
