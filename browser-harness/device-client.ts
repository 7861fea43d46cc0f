// The page's end of the device worker: one worker for the page, started on first use.
// Not a device. Invariant: views share its state through `changed`; without WebGPU nothing is started.
import { proxy, type Remote, wrap } from 'comlink';
import type { DeviceIdentity } from '../src/gpu/device.ts';
import type { Text } from '../src/model/text.ts';
import { loadText } from '../src/model/text.ts';
import DeviceWorker from './device.worker.ts?worker&inline';
import type { DeviceService, LoadedModel, ModelOrigin } from './device-api.ts';
import { createEmitter } from './dom.ts';
import { embeddedText } from './embedded-text.ts';
import { pickedSource } from './picked-source.ts';

export const hasWebGpu = 'gpu' in navigator;

export const deviceState = {
  identity: null as DeviceIdentity | null,
  model: null as LoadedModel | null,
  /** The loaded model's tokenizer, for showing what it made. */
  text: null as Text | null,
  busy: '',
  changed: createEmitter(),
};

let remote: Remote<DeviceService> | null = null;

let reportLoss: (error: Error) => void = () => {};

/** Where the loss of a device is said, also of one that is idle. */
export function onDeviceLost(report: (error: Error) => void): void {
  reportLoss = report;
}

function lost(message: string): void {
  deviceState.identity = null;
  deviceState.model = null;
  deviceState.changed.emit();
  reportLoss(new Error(message));
}

/** Rejects if the worker does not start, or fails outside of a call: such a call would never end. */
let failed: Promise<never> = new Promise(() => {});

function service(): Remote<DeviceService> {
  if (!remote) {
    const worker = new DeviceWorker();
    failed = new Promise((_, reject) => {
      worker.addEventListener('error', ({ message }) => {
        remote = null;
        worker.terminate();
        deviceState.identity = null;
        deviceState.model = null;
        const found = message || 'a worker that does not start';
        reject(new Error(`running the device worker: found ${found}; wanted it to go on. Load the model again.`));
      });
    });
    failed.catch(() => {});
    remote = wrap<DeviceService>(worker);
    void remote.watch(proxy(lost));
  }
  return remote;
}

/** Runs work that is not the device worker's while the state says what is being done. */
export async function exclusively<T>(doing: string, work: () => Promise<T>): Promise<T> {
  deviceState.busy = doing;
  deviceState.changed.emit();
  try {
    return await work();
  } finally {
    deviceState.busy = '';
    deviceState.changed.emit();
  }
}

/** Runs a call while the state says what is being done. */
export async function onDevice<T>(doing: string, call: (service: Remote<DeviceService>) => Promise<T>): Promise<T> {
  deviceState.busy = doing;
  deviceState.changed.emit();
  try {
    const own = service();
    deviceState.identity ??= await Promise.race([own.open(), failed]);
    return await Promise.race([call(own), failed]);
  } catch (error) {
    // A lost device is gone with its model; both are opened anew on the next use.
    if (remote && !(await remote.hasModel())) {
      deviceState.identity = null;
      deviceState.model = null;
    }
    throw error;
  } finally {
    deviceState.busy = '';
    deviceState.changed.emit();
  }
}

/** Loads a model and its tokenizer. */
export async function loadModel(origin: ModelOrigin): Promise<void> {
  const text = 'files' in origin ? await loadText(pickedSource(origin.label, origin.files)) : await embeddedText();
  deviceState.model = null;
  deviceState.model = await onDevice(`loading ${origin.label}`, (device) => device.load(origin));
  deviceState.text = text;
  deviceState.changed.emit();
}

/** A callback that the worker may call. */
export const callback = <F extends (...args: never[]) => void>(fn: F): F => proxy(fn) as unknown as F;
