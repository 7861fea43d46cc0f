// OpenEnv environments as an EnvironmentPort, over WebSocket /ws. Not HTTP /step: that is stateless. Invariant: one
// socket for each session, from before reset to the closing handshake; a lost socket is a lost session, never a fresh
// environment in its place.
import { z } from 'zod';
import type { ToolSpec } from '../port.ts';
import { DEFAULT_DEADLINES, type Deadlines } from '../service/deadlines.ts';
import { excerpt, fault } from '../service/faults.ts';
import { germanReset } from '../service/german-tasks.ts';
import { createServicePort, type ServicePort, type ServiceProtocol, type ServiceSession } from '../service/port.ts';
import { baseUrl, type ConnectSocket, type HttpTransport } from '../service/transport.ts';
import { readExtras, readReward } from '../service/verdict.ts';
import { type Channel, openChannel, type Reply } from './channel.ts';
import { actionTool, observationJson, promptMessages, readToolResult, readTools } from './content.ts';
import { callToolText, listToolsText, type ObservationData, resetText, stateText, stepText } from './messages.ts';
import { readOpenEnvTask } from './task.ts';

/** Plain data, so that it can be posted to a worker. */
export interface OpenEnvOptions {
  /** http(s)://host:port; the socket's address follows from it. */
  url: string;
  /** Sessions at once; lowered when the server names a smaller cap. */
  maxSessions: number;
  deadlines?: Partial<Deadlines>;
  /** `german`: the German task's episodes; `reset`: payloads as in task.ts. */
  tasks: 'german' | 'reset';
  /** A tool that scores the session, called once with the final text; it must not be in list_tools. */
  verdictTool?: string | null;
  /** Without a verdict tool: the last reward that is no null, or the sum of all. `last` by default. */
  rewardRule?: 'last' | 'sum';
  /** Without a verdict tool: the reward of a policy that took no step; left out, it has no verdict and is left out. */
  rewardWithoutSteps?: number;
  /** Reward from which an episode is a strict success where the service does not say; 1 by default. */
  strictReward?: number;
}

const schemaReply = z.looseObject({ action: z.looseObject({ title: z.string().optional() }) });
/** Action classes for which upstream servers route list_tools and call_tool. */
const MCP_ACTIONS: ReadonlySet<string> = new Set(['Action', 'CallToolAction', 'ListToolsAction']);

type ToolMode = { kind: 'mcp' } | { kind: 'action'; tool: ToolSpec };

export interface OpenEnvTransports {
  connect: ConnectSocket;
  http: HttpTransport;
}

/** The port of an OpenEnv server. Nothing is contacted before the first session. */
export function createOpenEnvPort(options: OpenEnvOptions, { connect, http }: OpenEnvTransports): ServicePort {
  const deadlines: Deadlines = { ...DEFAULT_DEADLINES, ...options.deadlines };
  const base = baseUrl(options.url);
  const socketUrl = `${base.replace(/^http/, 'ws')}/ws`;
  const verdictTool = options.verdictTool ?? null;
  let mode: Promise<ToolMode> | null = null;

  async function readMode(): Promise<ToolMode> {
    const doing = `reading ${base}/schema`;
    const reply = await http(doing, { method: 'GET', url: `${base}/schema`, headers: {}, body: null }, deadlines);
    let parsed: z.infer<typeof schemaReply>;
    try {
      if (reply.status !== 200) throw new Error(`status ${reply.status}`);
      parsed = schemaReply.parse(JSON.parse(reply.text));
    } catch (error) {
      const found = `${(error as Error).message} in ${excerpt(reply.text)}`;
      throw fault('service-failed', { doing, found, wanted: 'the schemas of action, observation and state' }, error);
    }
    const { action } = parsed;
    return MCP_ACTIONS.has(action.title ?? '') ? { kind: 'mcp' } : { kind: 'action', tool: actionTool(action) };
  }

  /** Read once; a failure is not remembered. */
  function toolMode(): Promise<ToolMode> {
    mode ??= readMode().catch((error: unknown) => {
      mode = null;
      throw error;
    });
    return mode;
  }

  function must<K extends 'observation' | 'state'>(doing: string, reply: Reply<K>) {
    if (reply.ok) return reply;
    const found = `${reply.code}: ${reply.message}`;
    throw fault('service-failed', { doing, found, wanted: 'success' });
  }

  async function listTools(channel: Channel, tools: ToolMode, doing: string): Promise<ToolSpec[]> {
    if (tools.kind === 'action') return [tools.tool];
    const at = `${doing}: listing tools`;
    const { data } = must(at, await channel.request(at, listToolsText, 'observation'));
    const listed = readTools(at, data.observation);
    if (listed.some((tool) => tool.function.name === verdictTool)) {
      const found = `list_tools offers "${verdictTool}", which scores the session`;
      throw fault('service-failed', {
        doing: at,
        found,
        wanted: 'a hidden verdict tool',
        remedy: 'Correct verdictTool.',
      });
    }
    return listed;
  }

  function makeSession(
    channel: Channel,
    kind: ToolMode['kind'],
    episodeId: string,
  ): Omit<ServiceSession, 'messages' | 'tools'> {
    const rewards: number[] = [];
    let steps = 0;
    let over = false;
    let parts: Record<string, number> | undefined;
    function note(doing: string, data: ObservationData): void {
      if (data.reward !== null && data.reward !== undefined) rewards.push(readReward(doing, data.reward, true));
      // 0.3 dropped metadata, later servers put it beside the observation, and 0.10 inside it.
      const metadata = data.metadata ?? data.observation['metadata'] ?? {};
      parts = readExtras(doing, metadata).parts ?? parts;
      over ||= data.done;
    }
    return {
      serviceId: () => episodeId,
      async call(tool, argumentsJson) {
        // What an environment does with a step after its end is its own affair: it could start anew, or score again.
        if (over) return { content: '{"error":"the episode is over"}', error: true };
        const doing = `calling ${tool} in session ${episodeId}`;
        steps += 1;
        const own = options.tasks === 'german' ? { arguments_json: argumentsJson } : undefined;
        const text = kind === 'mcp' ? callToolText(tool, argumentsJson, own) : stepText(argumentsJson);
        const reply = await channel.request(doing, text, 'observation');
        if (!reply.ok) {
          // The action was refused or raised; a policy can cause both, and the session goes on.
          const details = reply.details === undefined ? '' : ` ${JSON.stringify(reply.details)}`;
          return { content: `${reply.message}${details}`, error: true };
        }
        note(doing, reply.data);
        if (kind === 'action') return { content: observationJson(reply.raw), error: false };
        const { content, error } = readToolResult(doing, tool, reply.data.observation);
        return { content, error };
      },
      async verify(finalText, invalidDispatches) {
        const doing = `verifying session ${episodeId}`;
        // A barrier: were the replies shifted by one, a step's observation would come here instead of a state.
        must(doing, await channel.request(`${doing}: reading the state`, stateText, 'state'));
        if (verdictTool === null) {
          if (steps === 0 && options.rewardWithoutSteps !== undefined) return { reward: options.rewardWithoutSteps };
          const last = options.rewardRule === 'sum' ? rewards.reduce((a, b) => a + b, 0) : rewards.at(-1);
          return { reward: readReward(doing, rewards.length === 0 ? undefined : last, false), parts };
        }
        const args = JSON.stringify({ final_text: finalText, invalid_dispatches: invalidDispatches });
        const { data } = must(doing, await channel.request(doing, callToolText(verdictTool, args), 'observation'));
        const { value, error, content } = readToolResult(doing, verdictTool, data.observation);
        if (error) throw fault('no-verdict', { doing, found: content, wanted: 'a verdict' });
        return { reward: readReward(doing, data.reward, true), ...readExtras(doing, value) };
      },
      end: () => channel.finish(),
    };
  }

  const protocol: ServiceProtocol = {
    keepsUnknownSessions: false,
    async open(task, sessionId, admission) {
      const doing = `opening task ${task.id}`;
      const { reset, messages: own } =
        options.tasks === 'german' ? { reset: germanReset(task), messages: [] } : readOpenEnvTask(task);
      const tools = await toolMode();
      const channel = await openChannel(doing, socketUrl, connect, deadlines, (cap) => admission.lower(cap));
      try {
        const at = `${doing}: reset`;
        const first = must(
          at,
          await channel.request(at, resetText({ ...reset, episode_id: sessionId }), 'observation'),
        );
        const messages = promptMessages(own, first.data.observation, first.raw);
        if (messages.length === 0) {
          const found = 'neither the task nor the first observation holds a message';
          throw fault('service-failed', { doing: at, found, wanted: 'a prompt', remedy: 'Give the task messages.' });
        }
        return {
          messages,
          tools: await listTools(channel, tools, doing),
          ...makeSession(channel, tools.kind, sessionId),
        };
      } catch (error) {
        await channel.finish();
        throw error;
      }
    },
  };
  const strictReward = options.strictReward ?? 1;
  return createServicePort(protocol, { maxSessions: options.maxSessions, deadlines, strictReward });
}
