// The port through which rollouts meet an environment: in process, in a worker, or over a wire.
// Not a protocol: NeMo Gym and OpenEnv clients implement this. Invariant: a failure of the service throws EnvError and is never a reward.
import type { ServerLogEntry, Verdict } from '../rollout/episode.ts';

/** A chat message as the templates take it. */
export interface Message {
  role: 'system' | 'user' | 'assistant' | 'tool';
  content: string;
}

/** An OpenAI-style function schema; key order is kept, because the chat template renders it as JSON. */
export interface ToolSpec {
  type: 'function';
  function: { name: string; description: string; parameters: Record<string, unknown> };
}

/** One task instance; `payload` is the environment's own, and answer keys in it never reach the prompt. */
export interface Task {
  id: string;
  payload: Record<string, unknown>;
}

export interface OpenedSession {
  sessionId: string;
  messages: Message[];
  tools: ToolSpec[];
}

export interface Observation {
  content: string;
  /** The environment reported an error of its own (an unknown key, a bad expression). */
  error: boolean;
}

export interface EnvironmentPort {
  /** Starts a session for a task: its prompt and tools. */
  open(task: Task): Promise<OpenedSession>;
  /** Runs one tool. `argumentsJson` is the text of a JSON object. */
  call(sessionId: string, tool: string, argumentsJson: string): Promise<Observation>;
  /** Scores the session. `finalText` is the last assistant turn after its last `</think>`. `invalidDispatches` are the rollout's own count. */
  verify(sessionId: string, finalText: string, invalidDispatches: number): Promise<Verdict>;
  /** The environment's own log so far. */
  log(sessionId: string): Promise<ServerLogEntry[]>;
  close(sessionId: string): Promise<void>;
}
