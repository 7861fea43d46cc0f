// Time from the start of a process to its first sampled token, the checkpoint in the page cache.
// Not the bench's own process: start-child.ts is what is timed. Invariant: the checkpoint is a real folder; random weights
// are written to a temporary one first, which also puts them in the page cache.
import { mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import type { KernelFamily } from '../src/gpu/device.ts';
import type { FileSource } from '../src/model/file-source.ts';
import { runChild } from './child.ts';

/** What the child is asked to do. */
export interface StartOrder {
  folder: string;
  family: KernelFamily;
  robustness: boolean;
  promptTokens: number;
  positions: number;
  /** When the parent asked for the process, in milliseconds of the system clock. */
  beganMs: number;
}

export interface StartAnswer {
  /** When each stage was over, in seconds from the start of the process. `pipelines` and `weights` end side by side. */
  marks: { name: string; seconds: number }[];
  pipelines: number;
  bytes: number;
  id: number;
}

export interface StartFigure {
  /** From the opened checkpoint to all weights on the device. */
  loadSeconds: number;
  /** From the start of the process. */
  firstTokenSeconds: number;
  marks: StartAnswer['marks'];
  pipelines: number;
}

const pieceBytes = 64 * 2 ** 20;

/** Writes every file of a source to a folder. */
export async function writeSource(source: FileSource, folder: string): Promise<void> {
  for (const name of await source.list()) {
    const size = (await source.size(name))!;
    const handle = await open(join(folder, name), 'w');
    try {
      for (let at = 0; at < size; at += pieceBytes) {
        await handle.write(await source.read(name, at, Math.min(pieceBytes, size - at)));
      }
    } finally {
      await handle.close();
    }
  }
}

/** Reads the weights of a folder once, so that they are in the page cache. */
async function readThrough(source: FileSource): Promise<void> {
  for (const name of (await source.list()).filter((file) => file.endsWith('.safetensors'))) {
    const size = (await source.size(name))!;
    for (let at = 0; at < size; at += pieceBytes) await source.read(name, at, Math.min(pieceBytes, size - at));
  }
}

/** Runs `work` with a folder of the source's files: `folder` itself, or a temporary one that is removed afterwards. */
export async function withFolder<T>(
  source: FileSource,
  folder: string | null,
  work: (folder: string) => Promise<T>,
): Promise<T> {
  if (folder !== null) {
    await readThrough(source);
    return work(folder);
  }
  const made = await mkdtemp(join(tmpdir(), 'shaderl-bench-'));
  try {
    await writeSource(source, made);
    return await work(made);
  } finally {
    await rm(made, { recursive: true, force: true });
  }
}

/** Starts the child on a checkpoint folder. @throws Error with the child's last words. */
export async function measureStart(order: Omit<StartOrder, 'beganMs'>): Promise<StartFigure> {
  const beganMs = performance.timeOrigin + performance.now();
  const { marks, pipelines } = await runChild<StartAnswer>(
    new URL('start-child.ts', import.meta.url),
    { ...order, beganMs } satisfies StartOrder,
    600_000,
  );
  const at = (name: string) => marks.find((mark) => mark.name === name)!.seconds;
  return { loadSeconds: at('weights') - at('files'), firstTokenSeconds: at('token'), marks, pipelines };
}
