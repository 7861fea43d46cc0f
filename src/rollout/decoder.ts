// Decoding with the token on the device: a step's draw is the next step's input, so steps are sent ahead of their
// results. Not stop detection: the host sees an id some steps later and throws away what was drawn after a stop.
// Invariant: a row's draws are those that single passes give, because each depends on its own tokens and key alone.
import { allocate, readBytes, release, upload, type View } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import { createProgram, type Program } from '../gpu/program.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { readResults, recordAdvance, resultWords, type StepResult } from '../kernels/advance.ts';
import { keyRow, keyWords } from '../kernels/sample.ts';
import { KernelError } from '../lib/errors.ts';
import type { SampleKey } from '../lib/rng.ts';
import type { GpuAdapter } from '../model/adapter-gpu.ts';
import { fusedAdapter, recordTranspose } from '../model/fused-adapter.ts';
import { chunksAt, recordFusedPass } from '../model/fused-forward.ts';
import { type Head, recordLogits } from '../model/head.ts';
import { recordDraw, type SamplingSettings } from '../model/head-draw.ts';
import type { GpuModel } from '../model/weights.ts';
import type { Workspace } from '../model/workspace.ts';

/** One slot's next input: a token that is not cached yet, its position, and the key of the draw after it. */
export interface DecodeRow {
  slot: number;
  position: number;
  token: number;
  key: SampleKey;
}

export interface Decoding {
  /** Steps that may still be sent: no row runs past its cache. */
  readonly left: number;
  /**
   * Sends `steps` steps of all rows and resolves to their results, [step][row] in the order of the rows. Further steps
   * may be sent before these have resolved, as far as the ring goes.
   */
  send(steps: number): Promise<(StepResult | null)[][]>;
}

export interface Decoder {
  /** Most steps whose results may be outstanding. */
  readonly ring: number;
  /** Starts from rows of different slots. An earlier decoding must not send afterwards. */
  start(rows: readonly DecodeRow[], adapter: GpuAdapter | null): Decoding;
  destroy(): void;
}

const ring = 32;
/** Programs are made for this many chunks of keys at a time, so that a growing context seldom needs a new one. */
const chunksTogether = 4;

/** The buffers of draws that a decoder shares with its sampler: by row. */
export interface DrawBuffers {
  keys: View;
  ids: View;
  truncated: View;
  stats: View;
}

/** Makes a decoder on a sampler's workspace, head and draw buffers. `recorder` is the sampler's. */
export function createDecoder(
  gpu: Gpu,
  model: GpuModel,
  workspace: Workspace,
  head: Head,
  draws: DrawBuffers,
  settings: SamplingSettings,
  recorder: Recorder,
): Decoder {
  const rowsMost = Math.min(workspace.fused!.partialRows, head.rows);
  const results = allocate(gpu, 'decoder.results', ring * rowsMost * resultWords * 4);
  const counter = allocate(gpu, 'decoder.steps', 4);
  const programs = new Map<string, Program>();
  const adapterIds = new WeakMap<GPUBuffer, number>();
  let nextAdapter = 1;

  function adapterId(adapter: GpuAdapter | null): number {
    if (!adapter) return 0;
    const { buffer } = adapter.views.flat;
    let id = adapterIds.get(buffer);
    if (!id) adapterIds.set(buffer, (id = nextAdapter++));
    return id;
  }

  function programOf(rows: number, chunks: number, adapter: GpuAdapter | null): Program {
    const upTo = Math.min(workspace.fused!.chunks, Math.ceil(chunks / chunksTogether) * chunksTogether);
    const key = `${rows} ${upTo} ${adapterId(adapter)}`;
    const known = programs.get(key);
    if (known) return known;
    const program = createProgram(gpu, `decode ${key}`);
    const r = program.recorder;
    recordFusedPass({ r, gpu, model, workspace, adapter, rows, attention: { chunks: upTo } });
    const chunk = { first: 0, rows };
    recordLogits(r, model, workspace, head, chunk);
    recordDraw(r, head, chunk, draws, settings);
    const { keys, ids, truncated, stats } = draws;
    const { tokens, meta } = workspace;
    recordAdvance(r, { ids, truncated, stats, tokens, meta, keys, results, steps: counter }, rows, ring);
    programs.set(key, program);
    return program;
  }

  function start(rows: readonly DecodeRow[], adapter: GpuAdapter | null): Decoding {
    if (rows.length > rowsMost || new Set(rows.map(({ slot }) => slot)).size < rows.length) {
      const message = `decoding ${rows.length} rows: wanted at most ${rowsMost}, each of a slot of its own; give fewer.`;
      throw new KernelError('bad-batch', message);
    }
    const furthest = rows.reduce((most, { position }) => Math.max(most, position), 0);
    const room = Math.min(workspace.shape.cacheLength, model.positions) - furthest;
    let sent = 0;
    recorder.submit();
    upload(
      gpu,
      workspace.tokens,
      Uint32Array.from(rows, ({ token }) => token),
    );
    upload(gpu, workspace.meta, Uint32Array.from(rows.flatMap(({ slot, position }) => [slot, position])));
    upload(
      gpu,
      head.index,
      Uint32Array.from(rows, (_, i) => i),
    );
    upload(gpu, counter, Uint32Array.of(0));
    const words = new Uint32Array(rows.length * keyWords);
    for (const [i, { key }] of rows.entries()) words.set(keyRow(key), i * keyWords);
    upload(gpu, draws.keys, words);
    if (adapter) {
      recordTranspose(recorder, adapter, fusedAdapter(gpu, model, adapter));
      recorder.submit();
    }
    return {
      get left() {
        return room - sent;
      },
      async send(steps) {
        if (steps > room - sent || steps > ring) {
          const message = `decoding ${steps} steps more: ${room - sent} fit the cache, ${ring} the ring; send fewer.`;
          throw new KernelError('no-room', message);
        }
        for (let s = 0; s < steps; s++) programOf(rows.length, chunksAt(furthest + sent + s), adapter).run();
        const first = sent;
        sent += steps;
        const bytes = await readBytes(gpu, results, ring * rows.length * resultWords * 4);
        const all = new Uint32Array(bytes);
        return Array.from({ length: steps }, (_, s) => readResults(all, first + s, rows.length));
      },
    };
  }

  return {
    ring,
    start,
    destroy() {
      for (const program of programs.values()) program.destroy();
      release(gpu, results);
      release(gpu, counter);
    },
  };
}
