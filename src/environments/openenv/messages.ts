// The frames of OpenEnv's session protocol (/ws) as zod schemas, and the texts that a client sends.
// Not a session. Invariant: what passes `readFrame` has the shape that its `type` promises; keys that newer servers add
// are let through.
import { z } from 'zod';

const observationData = z.looseObject({
  observation: z.looseObject({}),
  reward: z.union([z.number(), z.boolean(), z.null()]).optional(),
  done: z.boolean(),
  /** A sibling of `observation` in newer servers; absent, null and {} are the same. */
  metadata: z.looseObject({}).nullish(),
});
export type ObservationData = z.infer<typeof observationData>;

const frame = z.discriminatedUnion('type', [
  z.looseObject({ type: z.literal('observation'), data: observationData }),
  z.looseObject({
    type: z.literal('state'),
    data: z.looseObject({ episode_id: z.string().nullish(), step_count: z.int().nullish() }),
  }),
  z.looseObject({
    type: z.literal('error'),
    data: z.looseObject({ message: z.string(), code: z.string(), max_sessions: z.int().optional() }),
  }),
]);
export type Frame = z.infer<typeof frame>;

/** A frame, or what is wrong with the text. */
export function readFrame(text: string): Frame | { type: 'unreadable'; problem: string } {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return { type: 'unreadable', problem: `no JSON (${(error as Error).message})` };
  }
  const parsed = frame.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0]!;
  return { type: 'unreadable', problem: `${issue.path.join('.') || 'the frame'}: ${issue.message}` };
}

/** Errors after which the socket stays usable and that an action can cause. */
export const REFUSED_ACTION_CODES: ReadonlySet<string> = new Set(['VALIDATION_ERROR', 'EXECUTION_ERROR']);

export const resetText = (kwargs: Record<string, unknown>): string => JSON.stringify({ type: 'reset', data: kwargs });
export const stateText = '{"type":"state"}';
export const closeText = '{"type":"close"}';
export const listToolsText = '{"type":"step","data":{"type":"list_tools"}}';
/** `actionJson` is the JSON text of an object, which goes out as it is: no number in it is rewritten. */
export const stepText = (actionJson: string): string => `{"type":"step","data":${actionJson}}`;
/** `metadata` is free in upstream's action; the German service reads the arguments' own text from it. */
export const callToolText = (tool: string, argumentsJson: string, metadata?: Record<string, unknown>): string => {
  const rest = metadata === undefined ? '' : `,"metadata":${JSON.stringify(metadata)}`;
  return stepText(`{"type":"call_tool","tool_name":${JSON.stringify(tool)},"arguments":${argumentsJson}${rest}}`);
};
