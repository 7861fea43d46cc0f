// The property that everything rests on, checked on a device: a token's bits do not depend on what else is in the pass.
// Not accuracy (kernels/qualify.ts). Invariant: every comparison is of bits, and each check fails on one that differs.
import { allocate, readU32, release, upload, type View } from './gpu/buffers.ts';
import type { Gpu, KernelFamily } from './gpu/device.ts';
import type { KernelCase } from './gpu/kernel.ts';
import { createRecorder, type Recorder } from './gpu/recorder.ts';
import { roundBf16, testValues } from './kernels/case-data.ts';
import { compareForms } from './kernels/forms.ts';
import { matmul, matmulGrid } from './kernels/matmul.ts';
import { type Architecture, parseArchitecture } from './model/config.ts';
import { memorySource } from './model/file-source.ts';
import { type Batch, recordForward } from './model/forward.ts';
import { loadFamilyWeights } from './model/matrix-load.ts';
import { runsFused } from './model/matrix-weights.ts';
import { openModelFiles } from './model/model-files.ts';
import { encodeSafetensors } from './model/safetensors-write.ts';
import { expectedTensors } from './model/tensor-names.ts';
import type { GpuModel } from './model/weights.ts';
import { createWorkspace } from './model/workspace.ts';

export interface CanonicalResult {
  name: string;
  passed: boolean;
  /** The first difference, or what was compared. */
  detail: string;
}

/** Where two outputs first differ, or null. NaNs are equal to themselves here: bits are compared. */
export function firstDifference(one: Uint32Array, other: Uint32Array): string | null {
  if (one.length !== other.length) return `${one.length} words against ${other.length}`;
  const at = one.findIndex((word, i) => word !== other[i]);
  return at < 0 ? null : `word ${at} of ${one.length}: ${one[at]!.toString(16)} against ${other[at]!.toString(16)}`;
}

/** Every case of matmul with one row a thread and with four: the same bits. */
async function matmulRows(gpu: Gpu, recorder: Recorder): Promise<CanonicalResult> {
  const name = 'matmul: one row a thread against four';
  const cases = matmul.cases();
  for (const run of cases) {
    const difference = firstDifference(await runMatmul(gpu, recorder, run, 1), await runMatmul(gpu, recorder, run, 4));
    if (difference) return { name, passed: false, detail: `${run.name}: ${difference}` };
  }
  return { name, passed: true, detail: `${cases.length} cases, equal bits` };
}

async function runMatmul(gpu: Gpu, recorder: Recorder, run: KernelCase, rowsPerThread: number): Promise<Uint32Array> {
  const { rows, columns, outStride } = run.params as { rows: number; columns: number; outStride: number };
  const views = matmul.bindings.map((binding): View => {
    const data = run.inputs[binding.name];
    const view = allocate(gpu, `canonical.${binding.name}`, data?.byteLength ?? rows * outStride * 4);
    if (data) upload(gpu, view, data);
    return view;
  });
  try {
    recorder.dispatch(matmul, views, run.params, matmulGrid(rows, columns, rowsPerThread), {
      ...run.constants,
      ROWS: rowsPerThread,
    });
    recorder.submit();
    return await readU32(gpu, views[2]!, rows * outStride);
  } finally {
    for (const view of views) release(gpu, view);
  }
}

// Widths that are no multiple of a workgroup, grouped heads, and QK-norm: every kernel of the forward pass takes part.
const tinyConfig = {
  model_type: 'qwen3',
  vocab_size: 67,
  hidden_size: 44,
  intermediate_size: 90,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 20,
  rms_norm_eps: 1e-6,
  rope_theta: 10_000,
  max_position_embeddings: 128,
  tie_word_embeddings: true,
};

/** Widths that the matrix family takes, for its fused pass. */
const fusedConfig = { ...tinyConfig, hidden_size: 128, intermediate_size: 192, head_dim: 32 };

/** A sequence's length: past one chunk of keys of the fused pass, and more rows than a product of few rows takes. */
const lengths: Record<KernelFamily, number> = { portable: 13, matrix: 70 };

/** A two-layer model of deterministic bf16 weights, loaded as a checkpoint is. */
async function tinyModel(gpu: Gpu, family: KernelFamily): Promise<GpuModel> {
  const label = 'the model of the qualification';
  const config = family === 'matrix' ? fusedConfig : tinyConfig;
  const shapes = expectedTensors(parseArchitecture(config, null, label));
  const tensors = [...shapes].map(([name, shape], index) => {
    const count = shape.reduce((product, extent) => product * extent, 1);
    const isNorm = shape.length === 1;
    const values = roundBf16(testValues(count, 500 + index, isNorm ? 0.1 : 0.25).map((v) => (isNorm ? 1 + v : v)));
    const words = new Uint32Array(values.buffer);
    const bytes = new Uint8Array(Uint16Array.from(words, (word) => word >>> 16).buffer);
    return { name, dtype: 'BF16' as const, shape, bytes };
  });
  const files = await openModelFiles(
    memorySource(label, {
      'config.json': new TextEncoder().encode(JSON.stringify(config)),
      'model.safetensors': encodeSafetensors(tensors, { format: 'pt' }),
    }),
  );
  return (await loadFamilyWeights(gpu, files, family, { positions: lengths[family] })).model;
}

/** The passes that a sequence is cut into: each a run of positions. */
interface Schedule {
  name: string;
  /** New tokens of each pass. */
  passes: readonly number[];
  /** The slot, and how many other sequences stand before it in every pass. */
  slot: number;
}

const schedulesOf = (length: number): readonly Schedule[] => [
  { name: 'one pass', passes: [length], slot: 0 },
  { name: 'token by token', passes: Array.from({ length }, () => 1), slot: 0 },
  { name: 'in three passes', passes: [5, 1, length - 6], slot: 0 },
  { name: 'third of three sequences', passes: [length], slot: 2 },
  { name: 'second of two, token by token', passes: Array.from({ length }, () => 1), slot: 1 },
];

/** Prefill, decode and neighbours through the whole forward pass: the same bits for every position. */
async function forwardSchedules(gpu: Gpu, recorder: Recorder, family: KernelFamily): Promise<CanonicalResult[]> {
  const model = await tinyModel(gpu, family);
  const length = lengths[family];
  const [whole, ...others] = schedulesOf(length);
  const pass = family === 'matrix' ? 'fused forward pass' : 'forward pass';
  try {
    const wanted = await runSchedule(gpu, recorder, model, whole!, length);
    const results: CanonicalResult[] = [];
    for (const schedule of others) {
      const difference = firstDifference(wanted, await runSchedule(gpu, recorder, model, schedule, length));
      const detail = difference ?? `${length} positions, equal bits`;
      results.push({ name: `${pass}: ${schedule.name} against one pass`, passed: difference === null, detail });
    }
    return results;
  } finally {
    model.destroy();
  }
}

/** The residual stream after the last layer, of every position of the sequence, as bits. */
async function runSchedule(
  gpu: Gpu,
  recorder: Recorder,
  model: GpuModel,
  { passes, slot }: Schedule,
  length: number,
): Promise<Uint32Array> {
  const arch: Architecture = model.architecture;
  const slots = slot + 1;
  const workspace = createWorkspace(gpu, arch, null, {
    rows: length * slots,
    slots,
    cacheLength: length,
    training: false,
    fused: runsFused(gpu, model),
  });
  const { stride } = workspace.output;
  const out = new Uint32Array(length * stride);
  // The sequence itself, and different ones in the slots before it.
  const token = (s: number, t: number) => ((slot - s) * 11 + t * 7 + 3) % arch.vocabSize;
  try {
    let done = 0;
    for (const count of passes) {
      const rows = Array.from({ length: slots }, (_, s) =>
        Array.from({ length: count }, (_, i) => ({ slot: s, position: done + i, token: token(s, done + i) })),
      ).flat();
      const batch: Batch = {
        tokens: Uint32Array.from(rows, (row) => row.token),
        slots: Uint32Array.from(rows, (row) => row.slot),
        positions: Uint32Array.from(rows, (row) => row.position),
      };
      recordForward(gpu, recorder, model, workspace, null, batch);
      recorder.submit();
      const words = await readU32(gpu, workspace.output.view, rows.length * stride);
      out.set(words.subarray(slot * count * stride, (slot + 1) * count * stride), done * stride);
      done += count;
    }
    return out;
  } finally {
    workspace.destroy();
  }
}

/** All checks, in a fixed order. */
export async function canonicalChecks(gpu: Gpu, family: KernelFamily): Promise<CanonicalResult[]> {
  const recorder = createRecorder(gpu);
  const families: KernelFamily[] = family === 'matrix' ? ['portable', 'matrix'] : ['portable'];
  const results = [await matmulRows(gpu, recorder), ...(await compareForms(gpu))];
  for (const each of families) results.push(...(await forwardSchedules(gpu, recorder, each)));
  return results;
}
