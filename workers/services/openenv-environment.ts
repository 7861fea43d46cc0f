// What an environment is to the OpenEnv server: a class that makes instances, and what a step gives.
// Not a server. Invariant: an instance belongs to one session and is called by it alone, one call at a time.
import type { WireMap, WireValue } from '../../src/environments/service/wire-json.ts';
import type { Model } from './pydantic.ts';

export interface StepOutcome {
  observation: WireMap;
  reward: boolean | bigint | number | null;
  done: boolean;
  /** A sibling of `observation` on the wire; left out when empty. */
  metadata?: WireMap;
}

type Awaitable<T> = T | Promise<T>;

export interface EnvironmentInstance {
  /** `kwargs` are filtered by `resetParameters`. */
  reset(kwargs: WireMap): Awaitable<StepOutcome>;
  /** An action of the class's own model. */
  step(action: WireMap): Awaitable<StepOutcome>;
  state(): Awaitable<WireMap>;
  close(): Awaitable<void>;
  /** Environments with tools: list_tools and call_tool of step, and JSON-RPC. Null once closed. */
  tools?(): ToolBox | null;
}

/** A tool as MCP describes it. */
export interface ToolDescription {
  name: string;
  title: string;
  description: string;
  inputSchema: WireValue;
  outputSchema: WireValue;
}

/** The outcome of a tool call; `type` is upstream's error_type. */
export type ToolOutcome =
  | { ok: true; result: WireMap; reward?: number | null; done?: boolean; metadata?: WireMap }
  | { ok: false; type: 'execution_error' | 'invalid_args' | 'tool_not_found' | 'timeout'; message: string };

export interface ToolBox {
  list(): readonly ToolDescription[];
  /** `metadata` is the action's; absent over JSON-RPC. */
  call(name: string, args: WireMap, metadata?: WireMap): Awaitable<ToolOutcome>;
}

export interface EnvironmentClass {
  /** Names /metadata. */
  name: string;
  description: string;
  version: string;
  /** Shown in FACTORY_ERROR. */
  factoryName: string;
  /** Parameters of reset; others are dropped without a message. `any` for an environment that takes all. */
  resetParameters: readonly string[] | 'any';
  /** Model of step's data; null for an environment of tools, whose actions are list_tools and call_tool. */
  action: Model | null;
  /** /schema, as JSON texts. */
  actionSchema: string;
  observationSchema: string;
  /** Throws where the factory fails. */
  create(): EnvironmentInstance;
}
