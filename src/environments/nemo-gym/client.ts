// NeMo Gym resources servers as an EnvironmentPort, over HTTP: seed, tools by name, verify exactly once.
// Not the agent server's /run, and no Ray: it does what simple_agent does, with checked names, merged cookies and
// deadlines. Invariant: no request is sent twice, and /verify only by `verify`.
import { EnvError } from '../../lib/errors.ts';
import type { Observation, ToolSpec } from '../port.ts';
import { DEFAULT_DEADLINES, type Deadlines } from '../service/deadlines.ts';
import { fault } from '../service/faults.ts';
import { germanRow } from '../service/german-tasks.ts';
import { createServicePort, type ServicePort, type ServiceProtocol, type ServiceSession } from '../service/port.ts';
import { baseUrl, type HttpReply, type HttpTransport } from '../service/transport.ts';
import { readExtras, readReward, type ServiceVerdict } from '../service/verdict.ts';
import { createExchange, type Exchange, isGatewayFailure, successObject } from './exchange.ts';
import { openGymnasium } from './gymnasium.ts';
import { createMcpTools, type McpOffer, type McpTools, readMcpOffer } from './mcp.ts';
import { logItems, makeResponse, messageItem } from './response.ts';
import { type RowPrompt, readRow } from './row.ts';

/** Plain data, so that it can be posted to a worker. */
export interface NemoGymOptions {
  /** http(s)://host:port of the server. */
  url: string;
  /** Sessions at once: the protocol has no admission of its own. */
  maxSessions: number;
  deadlines?: Partial<Deadlines>;
  /** `german`: the German task's episodes; `row`: payloads that are dataset rows. */
  tasks: 'german' | 'row';
  /** `resources` (seed_session, tools, verify) by default, or `gymnasium` (reset, step). */
  style?: 'resources' | 'gymnasium';
  /** Calls /close_session for sessions that end before verify; by default only where seeding named a session. */
  closeSession?: boolean;
  /**
   * Tools over MCP, where seeding offers them: `auto`, the default, for rows that declare no tool (the server's list is
   * then theirs); `always` for every call, and a server without them is a fault; `never`.
   */
  mcp?: 'auto' | 'always' | 'never';
  /** Reward from which an episode is a strict success where the service does not say; 1 by default. */
  strictReward?: number;
}

/** What a reply to /verify says. Throws a fault for everything but a finite reward of a judged rollout. */
export function readVerifyReply(doing: string, reply: HttpReply): ServiceVerdict {
  const body = successObject(doing, reply);
  const failure = body['_ng_failure_class'];
  if (failure !== undefined && failure !== null) {
    const found = `failure class ${JSON.stringify(failure)}`;
    throw fault('no-verdict', { doing, found, wanted: 'a judged rollout' });
  }
  if (body['mask_sample'] === true) {
    throw fault('no-verdict', { doing, found: 'mask_sample', wanted: 'a rollout that may be trained on' });
  }
  return { reward: readReward(doing, body['reward'], false), ...readExtras(doing, body) };
}

/** Whether a session's tools are called over MCP, and which it has. */
async function chooseTools(
  doing: string,
  offer: McpOffer | null,
  declared: ToolSpec[],
  exchange: Exchange,
  when: NonNullable<NemoGymOptions['mcp']>,
): Promise<{ mcp: McpTools | null; tools: ToolSpec[] }> {
  if (!offer && when === 'always') {
    const found = 'a reply without mcp';
    throw fault('service-protocol', { doing, found, wanted: 'tools over MCP, as the client was told to use them' });
  }
  if (!offer || when === 'never' || (when === 'auto' && declared.length > 0)) return { mcp: null, tools: declared };
  const mcp = createMcpTools(exchange, offer);
  const listed = await mcp.list(`${doing}, tools/list`);
  if (declared.length === 0) return { mcp, tools: listed };
  const names = new Set(listed.map((tool) => tool.function.name));
  const missing = declared.find((tool) => !names.has(tool.function.name));
  if (!missing) return { mcp, tools: declared };
  const found = `no tool "${missing.function.name}" over MCP`;
  throw fault('service-protocol', { doing, found, wanted: 'every tool that the row declares' });
}

/** One tool by its own route. */
async function callRoute(doing: string, exchange: Exchange, tool: string, argumentsJson: string): Promise<Observation> {
  const reply = await exchange.send(doing, 'POST', `/${encodeURIComponent(tool)}`, argumentsJson);
  // The body is the model's, at any status of the server's own; a gateway's page is not the server's.
  if (isGatewayFailure(reply)) successObject(doing, reply);
  return { content: reply.text, error: reply.status >= 400 };
}

/** Opens a session by /seed_session. */
async function openResources(
  taskId: string,
  sessionId: string,
  { row, messages, tools: declared }: RowPrompt,
  exchange: Exchange,
  options: NemoGymOptions,
  closeMs: number,
): Promise<ServiceSession> {
  const at = `opening row ${taskId}: seed_session`;
  const rowText = JSON.stringify(row);
  const seeded = successObject(at, await exchange.send(at, 'POST', '/seed_session', rowText));
  const named = seeded['resources_session_id'];
  const resourcesSessionId = typeof named === 'string' ? named : null;
  const { mcp, tools } = await chooseTools(at, readMcpOffer(at, seeded), declared, exchange, options.mcp ?? 'auto');
  const canClose = options.closeSession ?? resourcesSessionId !== null;
  const log: { tool: string; argumentsJson: string; observation: string }[] = [];

  return {
    messages,
    tools,
    serviceId: () => resourcesSessionId ?? exchange.sessionId(),
    async call(tool, argumentsJson) {
      const doing = `calling ${tool} in session ${sessionId}`;
      const observation = mcp
        ? await mcp.call(doing, tool, argumentsJson)
        : await callRoute(doing, exchange, tool, argumentsJson);
      log.push({ tool, argumentsJson, observation: observation.content });
      return observation;
    },
    async verify(finalText, invalidDispatches) {
      const doing = `verifying session ${sessionId}`;
      const output = [...logItems(log), messageItem(finalText)];
      const response = makeResponse(sessionId, row.responses_create_params.tools, output, invalidDispatches);
      const body = JSON.stringify({ ...row, response });
      return readVerifyReply(doing, await exchange.send(doing, 'POST', '/verify', body));
    },
    async end(verified) {
      if (verified) return true;
      if (!canClose) return false;
      const doing = `closing session ${sessionId}`;
      const body = JSON.stringify({
        resources_session_id: resourcesSessionId ?? exchange.sessionId() ?? sessionId,
        episode_id: { rollout_id: sessionId, attempt: 0 },
      });
      // 404 and 405 mean that the server has no such route: the session is left to its time-to-live.
      const reply = await exchange.send(doing, 'POST', '/close_session', body, { replyMs: closeMs }).catch(() => null);
      return reply !== null && reply.status < 300;
    },
  };
}

/** The port of a NeMo Gym server. Nothing is contacted before the first session. */
export function createNemoGymPort(options: NemoGymOptions, http: HttpTransport): ServicePort {
  const deadlines: Deadlines = { ...DEFAULT_DEADLINES, ...options.deadlines };
  const base = baseUrl(options.url);
  const protocol: ServiceProtocol = {
    keepsUnknownSessions: true,
    async open(task, sessionId) {
      const prompt = readRow(task.id, options.tasks === 'german' ? germanRow(task) : task.payload);
      if (prompt.messages.length === 0 && options.style !== 'gymnasium') {
        throw new EnvError(
          'bad-task',
          `reading row ${task.id}: its input is empty; a message is wanted. Correct the row.`,
        );
      }
      const exchange = createExchange(base, http, deadlines);
      if (options.style === 'gymnasium') {
        return openGymnasium(task.id, sessionId, prompt, exchange, deadlines.closeMs);
      }
      return openResources(task.id, sessionId, prompt, exchange, options, deadlines.closeMs);
    },
  };
  const strictReward = options.strictReward ?? 1;
  return createServicePort(protocol, { maxSessions: options.maxSessions, deadlines, strictReward });
}
