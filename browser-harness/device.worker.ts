// The device worker: owns the browser's WebGPU device and runs what the page asks of it, one call at a time.
// Not a second implementation: the same src and shaders as in Node. Invariant: a lost device ends the call with its
// error, and the next call opens a new one.
import { expose } from 'comlink';
import { type Gpu, openGpu } from '../src/gpu/device.ts';
import { qualify } from '../src/qualification.ts';
import type { DeviceService } from './device-api.ts';
import { runChat } from './device-chat.ts';
import { type DeviceModel, loadDeviceModel, requireModel } from './device-model.ts';
import { runReplay } from './device-replay.ts';
import { runTraining } from './device-train.ts';

let gpu: Gpu | null = null;
let model: DeviceModel | null = null;
let queue: Promise<unknown> = Promise.resolve();
let onLost: (message: string) => void = () => {};

async function device(): Promise<Gpu> {
  if (gpu) return gpu;
  const opened = await openGpu();
  gpu = opened;
  void opened.device.lost.then((info) => {
    if (gpu === opened) {
      gpu = null;
      model = null;
    }
    onLost(lostText(info));
  });
  return opened;
}

function lostSoon({ device: { lost } }: Gpu): Promise<GPUDeviceLostInfo | null> {
  return Promise.race([lost, new Promise<null>((resolve) => setTimeout(() => resolve(null), 500))]);
}

const lostText = ({ reason, message }: GPUDeviceLostInfo) =>
  `using the GPU: found that the device was lost (${reason}: ${message}); wanted it to stay. The model that was on it ` +
  'is gone; runs and rollouts are not. Load the model again: a new device is opened for it.';

/** Runs a job after the ones before it. A device that failed is dropped with everything on it. */
function inTurn<T>(job: (gpu: Gpu) => Promise<T>): Promise<T> {
  const result = queue.then(async () => {
    let own: Gpu | null = null;
    try {
      own = await device();
      return await job(own);
    } catch (error) {
      // What was under way fails before the loss itself is told, and with words that say nothing of it.
      const lost = own && (await lostSoon(own));
      if (lost) throw new Error(lostText(lost));
      try {
        gpu?.check();
      } catch {
        gpu = null;
        model = null;
      }
      // Class and code do not cross; the message does, and it has all four parts.
      throw new Error(error instanceof Error ? error.message : String(error));
    }
  });
  queue = result.catch(() => {});
  return result;
}

const service: DeviceService = {
  open: () => inTurn(async ({ identity }) => identity),
  qualify: (sourceSha256, onProgress) =>
    inTurn((own) => qualify(own, { family: 'portable', sourceSha256, repeats: 2, onProgress })),
  load: (origin) =>
    inTurn(async (own) => {
      model?.gpuModel.destroy();
      model = null;
      const [loaded, facts] = await loadDeviceModel(own, origin);
      model = loaded;
      return facts;
    }),
  chat: (request, onText) => inTurn((own) => runChat(own, requireModel(model), request, onText)),
  train: (request, onFile, onRollout) =>
    inTurn((own) => runTraining(own, requireModel(model), request, onFile, onRollout)),
  async watch(lost) {
    onLost = lost;
  },
  hasModel: async () => model !== null,
  replay: (request) => inTurn((own) => runReplay(own, requireModel(model), request)),
};
expose(service);
