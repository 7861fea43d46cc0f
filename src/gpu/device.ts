// Opens the one device of an adapter, with the limits and features that the kernels need.
// Not a pool: an adapter gives a single device. Invariant: the object from create() stays referenced while a device
// lives (collected, it crashes the process), and the first GPU error is fatal for everything after it.
import { createGpuObject, dawnVersion, napUntil } from '#dawn';
import { DeviceError } from '../lib/errors.ts';

export type KernelFamily = 'portable' | 'matrix';

export interface DeviceOptions {
  /** Index clamps in shaders. On by default; releases may switch it off, and results must be the same bits. */
  robustness?: boolean;
  /** Limit on every GPU wait, in milliseconds. */
  timeoutMs?: number;
  /** Lower limits than the adapter's, to test how large tensors are split. */
  limits?: Partial<Record<LimitName, number>>;
}

export interface DeviceIdentity {
  vendor: string;
  architecture: string;
  device: string;
  description: string;
  /** True for lavapipe, SwiftShader and other adapters that run on the CPU. */
  software: boolean;
  dawn: string;
  toggles: string[];
  features: string[];
  subgroupSize: [number, number];
  limits: Record<LimitName, number>;
}

export interface Gpu {
  readonly device: GPUDevice;
  readonly identity: DeviceIdentity;
  readonly timeoutMs: number;
  /** Throws the first uncaptured error or device loss, if there was one. */
  check(): void;
  /** Waits for `work`, but no longer than the time limit and not past a device loss. */
  wait<T>(doing: string, work: Promise<T>): Promise<T>;
  destroy(): void;
}

const limitNames = [
  'maxBufferSize',
  'maxStorageBufferBindingSize',
  'maxStorageBuffersPerShaderStage',
  'maxComputeWorkgroupStorageSize',
  'maxComputeInvocationsPerWorkgroup',
  'maxComputeWorkgroupSizeX',
  'maxComputeWorkgroupsPerDimension',
  'minStorageBufferOffsetAlignment',
  'minUniformBufferOffsetAlignment',
] as const;
export type LimitName = (typeof limitNames)[number];

const softwareNames = /llvmpipe|lavapipe|swiftshader|software|basic render/i;

/** Whether an adapter's own names say that it runs on the CPU. */
export function isSoftware(names: readonly string[]): boolean {
  return softwareNames.test(names.join(' '));
}

// Pinned for the life of the process: see the header.
const pinned: GPU[] = [];

/** Dawn flags: f16 and experimental features on NVIDIA need both enabling toggles. */
function dawnFlags(robustness: boolean): string[] {
  const enable = ['allow_unsafe_apis', 'vulkan_enable_f16_on_nvidia'];
  if (!robustness) enable.push('disable_robustness');
  return [`enable-dawn-features=${enable.join(',')}`, 'disable-dawn-features=timestamp_quantization'];
}

/** The adapters' own description, without opening a device; null where there is no adapter. */
export async function findAdapter(
  options: DeviceOptions = {},
): Promise<{ adapter: GPUAdapter; flags: string[] } | null> {
  const flags = dawnFlags(options.robustness ?? true);
  const gpu = createGpuObject(flags);
  pinned.push(gpu);
  const adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' });
  return adapter ? { adapter, flags } : null;
}

/** The identity of an adapter: what a qualification and a plan are bound to. */
export function identify(adapter: GPUAdapter, flags: string[]): DeviceIdentity {
  const info = adapter.info;
  const limits = Object.fromEntries(limitNames.map((name) => [name, adapter.limits[name]])) as Record<
    LimitName,
    number
  >;
  return {
    vendor: info.vendor,
    architecture: info.architecture,
    device: info.device,
    description: info.description,
    software: isSoftware([info.device, info.description, info.architecture]),
    dawn: dawnVersion,
    toggles: flags,
    features: [...adapter.features].sort(),
    subgroupSize: [info.subgroupMinSize ?? 0, info.subgroupMaxSize ?? 0],
    limits,
  };
}

const noAdapter =
  'opening a GPU: found no Vulkan adapter that Dawn accepts; wanted one with WebGPU core limits. ' +
  'Install a driver, or run ./setup.sh, which installs a software adapter (lavapipe of Mesa 25 or newer).';

/**
 * Opens the high-performance adapter's device with the adapter's own limits.
 * @throws DeviceError `no-adapter` or `limit-too-small`, each with its remedy.
 */
export async function openGpu(options: DeviceOptions = {}): Promise<Gpu> {
  const found = await findAdapter(options);
  if (!found) throw new DeviceError('no-adapter', noAdapter);
  const { adapter, flags } = found;
  const identity = identify(adapter, flags);
  const requiredLimits: Record<string, number> = {};
  for (const name of limitNames) requiredLimits[name] = options.limits?.[name] ?? adapter.limits[name];
  // The last is the draft's name of subgroup matrices, which the types do not know yet.
  const wanted = ['timestamp-query', 'shader-f16', 'subgroups', 'chromium-experimental-subgroup-matrix'];
  const requiredFeatures = (wanted as GPUFeatureName[]).filter((name) => adapter.features.has(name));
  const device = await adapter.requestDevice({ requiredLimits, requiredFeatures });
  return guard(
    device,
    { ...identity, limits: { ...identity.limits, ...options.limits } },
    options.timeoutMs ?? 120_000,
  );
}

/** Wraps a device so that its first error stops whatever uses it. */
function guard(device: GPUDevice, identity: DeviceIdentity, timeoutMs: number): Gpu {
  let failure: DeviceError | null = null;
  let destroyed = false;
  let reject: (error: DeviceError) => void = () => {};
  const failed = new Promise<never>((_, r) => {
    reject = r;
  });
  failed.catch(() => {});
  const fail = (error: DeviceError) => {
    failure ??= error;
    reject(failure);
  };
  device.addEventListener('uncapturederror', (event) => {
    const message = event.error.message;
    const code = /out of memory/i.test(message) ? 'out-of-memory' : 'gpu-error';
    fail(
      new DeviceError(
        code,
        `running GPU commands: ${message}. Nothing of this step was kept; resume from the last checkpoint.`,
      ),
    );
  });
  void device.lost.then((info) => {
    if (destroyed) return;
    fail(
      new DeviceError(
        'device-lost',
        `running GPU commands: the device was lost (${info.reason}: ${info.message}). Resume from the last checkpoint.`,
      ),
    );
  });
  return {
    device,
    identity,
    timeoutMs,
    check() {
      if (failure) throw failure;
    },
    async wait(doing, work) {
      let timer: ReturnType<typeof setTimeout> | undefined;
      const late = new Promise<never>((_, r) => {
        timer = setTimeout(() => {
          const message = `${doing}: the GPU gave no answer within ${timeoutMs} ms; use a larger time limit or a smaller batch.`;
          r(new DeviceError('gpu-timeout', message));
        }, timeoutMs);
      });
      const first = Promise.race([work, failed, late]).finally(() => clearTimeout(timer));
      if (identity.software) napUntil(first);
      const result = await first;
      if (failure) throw failure;
      return result;
    },
    destroy() {
      destroyed = true;
      device.destroy();
    },
  };
}
