// Gymnasium-style NeMo Gym servers: /reset, then /step with a Responses object, rewards summed.
// Not a resources server: there is no seed and no verify. Invariant: one /step for each call and one for the final
// message; nothing is sent after the server said that the episode is over.
import { z } from 'zod';
import type { Observation } from '../port.ts';
import { fault } from '../service/faults.ts';
import type { ServiceSession } from '../service/port.ts';
import { readReward } from '../service/verdict.ts';
import { type Exchange, isGatewayFailure, successObject } from './exchange.ts';
import { callId, callItem, makeResponse, messageItem, type OutputItem } from './response.ts';
import type { RowPrompt } from './row.ts';

const info = z.looseObject({
  supports_explicit_close: z.boolean().optional(),
  supports_step_idempotency: z.boolean().optional(),
  tool_outputs: z.array(z.looseObject({ call_id: z.string(), output: z.string() })).optional(),
});
const resetReply = z.looseObject({ observation: z.string().nullable(), info: info.default({}) });
const stepReply = z.looseObject({
  observation: z.string().nullish(),
  reward: z.unknown(),
  terminated: z.boolean(),
  truncated: z.boolean(),
  info: info.default({}),
});

function parse<T>(schema: z.ZodType<T>, doing: string, reply: Record<string, unknown>): T {
  const parsed = schema.safeParse(reply);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0]!;
  const found = `${issue.path.join('.')}: ${issue.message}`;
  throw fault('service-protocol', { doing, found, wanted: 'a reply of a Gymnasium server' });
}

/** Opens a session by /reset. The first observation becomes a user message after the row's own. */
export async function openGymnasium(
  taskId: string,
  sessionId: string,
  { row, messages, tools }: RowPrompt,
  exchange: Exchange,
  closeMs: number,
): Promise<ServiceSession> {
  const doing = `opening row ${taskId}: reset`;
  const first = parse(
    resetReply,
    doing,
    successObject(doing, await exchange.send(doing, 'POST', '/reset', JSON.stringify(row))),
  );
  const prompt =
    first.observation === null ? messages : [...messages, { role: 'user' as const, content: first.observation }];
  if (prompt.length === 0) throw fault('service-failed', { doing, found: 'no message', wanted: 'a prompt' });
  let steps = 0;
  let calls = 0;
  let reward = 0;
  let over: 'terminated' | 'truncated' | null = null;

  async function step(at: string, items: OutputItem[], invalidDispatches: number) {
    steps += 1;
    const response = makeResponse(`${sessionId}_${steps}`, row.responses_create_params.tools, items, invalidDispatches);
    const request = first.info.supports_step_idempotency ? { _ng_step_request_id: `${sessionId}#${steps}` } : {};
    const reply = await exchange.send(at, 'POST', '/step', JSON.stringify({ ...row, ...request, response }));
    if (isGatewayFailure(reply)) successObject(at, reply);
    const data = parse(stepReply, at, successObject(at, reply));
    reward += readReward(at, data.reward, false);
    if (data.terminated) over = 'terminated';
    else if (data.truncated) over = 'truncated';
    return data;
  }

  return {
    messages: prompt,
    tools,
    serviceId: () => exchange.sessionId(),
    async call(tool, argumentsJson): Promise<Observation> {
      if (over !== null) return { content: `{"error":"the episode is ${over}"}`, error: true };
      const index = calls++;
      const data = await step(`calling ${tool} in session ${sessionId}`, [callItem(index, tool, argumentsJson)], 0);
      const output = data.info.tool_outputs?.find((entry) => entry.call_id === callId(index))?.output;
      return { content: output ?? data.observation ?? '', error: false };
    },
    async verify(finalText, invalidDispatches) {
      if (over === null) await step(`verifying session ${sessionId}`, [messageItem(finalText)], invalidDispatches);
      return { reward, parts: { terminated: over === 'terminated' ? 1 : 0, truncated: over === 'truncated' ? 1 : 0 } };
    },
    async end() {
      // Without the opt-in close the server has no way to end a session; one that is over holds nothing more.
      if (!first.info.supports_explicit_close) return over !== null;
      const at = `closing session ${sessionId}`;
      const reply = await exchange
        .send(at, 'POST', '/close', JSON.stringify(row), { replyMs: closeMs })
        .catch(() => null);
      return reply !== null && reply.status < 300;
    },
  };
}
