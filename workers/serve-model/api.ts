// What the worker with the device is asked and what it answers: plain data that crosses a worker's boundary.
import type { KernelFamily } from '../../src/gpu/device.ts';
import type { EngineJob, EngineStats, Taken } from '../../src/serve/engine.ts';

export interface PolicyOptions {
  model: string;
  adapter: string | null;
  family: KernelFamily;
  /** Requests that are sampled side by side; no answer depends on it. */
  slots: number;
  /** Most tokens of prompt and answer together; at most the model's positions. */
  context: number;
}

export interface PolicyAbout {
  device: string;
  family: KernelFamily;
  /** Tree hash of the model's folder. */
  modelSha256: string;
  /** Of the adapter's tensors, or null. */
  adapterSha256: string | null;
  /** What the adapter's canary showed after it was loaded, as a sentence; null for the base model. */
  canary: string | null;
  slots: number;
  context: number;
}

export interface PolicyService {
  about(): Promise<PolicyAbout>;
  submit(job: EngineJob): Promise<number>;
  take(id: number, wait: 'some' | 'all'): Promise<Taken>;
  cancel(id: number): Promise<void>;
  stats(): Promise<EngineStats>;
}
