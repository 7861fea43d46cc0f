// What the page asks of its device worker, and what comes back: plain data only.
// Invariant: a call that fails rejects with an error whose message has its four parts.
import type { DeviceIdentity } from '../src/gpu/device.ts';
import type { Qualification } from '../src/qualification.ts';
import type { Episode } from '../src/rollout/episode.ts';

/** A model's files: by address, or picked from a folder. */
export type ModelOrigin = { label: string; urls: [name: string, url: string][] } | { label: string; files: File[] };

export interface LoadedModel {
  label: string;
  layers: number;
  hiddenSize: number;
  vocabSize: number;
  bytes: number;
  seconds: number;
}

export interface ChatRequest {
  /** Index of the training task whose values the tools know. */
  task: number;
  /** What the person asks; null for the task's own question. */
  message: string | null;
  temperature: number;
  seed: number;
  maxTokens: number;
}

export interface TrainRequest {
  steps: number;
  groupSize: number;
  learningRate: number;
  maxTokens: number;
  seed: number;
}

export interface TrainResult {
  steps: number;
  adapterSha256: string;
  seconds: number;
}

export interface ReplayRequest {
  episode: Episode;
  /** Sealed adapters that may have sampled it: [label, adapter_config.json, adapter_model.safetensors]. */
  adapters: [label: string, config: Uint8Array, weights: Uint8Array][];
  /** The run's configuration, whose untrained adapter sampled the first step; null if it is not known. */
  config: unknown;
  /** Score with the base model where no adapter has the recorded hash. */
  baseInstead: boolean;
  /** A sealed adapter by its label, whatever sampled the rollout: how far the policy has moved. Null: what sampled it. */
  chosen: string | null;
}

export interface ReplayResult {
  /** Which weights were used. */
  policy: string;
  exact: boolean;
  logprobs: (number | null)[];
  entropies: (number | null)[];
}

export interface DeviceService {
  open(): Promise<DeviceIdentity>;
  qualify(sourceSha256: string, progress: (done: number, all: number, kernel: string) => void): Promise<Qualification>;
  load(origin: ModelOrigin): Promise<LoadedModel>;
  chat(request: ChatRequest, onText: (kind: 'sampled' | 'environment', text: string) => void): Promise<Episode>;
  train(
    request: TrainRequest,
    onFile: (name: string, bytes: Uint8Array) => void,
    onRollout: (step: number, done: number, all: number) => void,
  ): Promise<TrainResult>;
  replay(request: ReplayRequest): Promise<ReplayResult>;
  /** `lost` is called with a message whenever a device is lost, also between calls. */
  watch(lost: (message: string) => void): Promise<void>;
  /** Whether a model is still there: a lost device takes it along. */
  hasModel(): Promise<boolean>;
}
