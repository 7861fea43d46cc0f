// Runs the peers that this machine has, on the shapes that the bench measured, and puts both times side by side.
// Not a judge: a ratio above one means that the peer took longer. Invariant: a peer that is missing or fails is named with
// the reason; its figures are never carried over from another run.
import { accessSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { lastLine, runChild } from '../child.ts';
import type { BenchResult } from '../run.ts';

export interface PeerFigure {
  ours: number;
  peer: number;
  /** `ms`, `s` or `bytes`. */
  unit: string;
  /** The peer's over ours. */
  ratio: number;
}

export interface PeerResults {
  peers: Record<string, Record<string, PeerFigure>>;
  notes: Record<string, string>;
  skipped: { what: string; reason: string }[];
}

const here = (name: string) => fileURLToPath(new URL(name, import.meta.url));

/** The different products that tfjs is timed on: those of the bench whose f32 operands it makes and multiplies in good time. */
export function peerShapes(result: BenchResult): { shape: string; sizes: [number, number, number]; ms: number }[] {
  const most = result.device.software ? 2e9 : 1e13;
  return result.kernels.matmul
    .map(({ shape, layerMs: ms }) => ({ shape, ms, sizes: shape.split('x').map(Number) as [number, number, number] }))
    .filter(({ sizes: [rows, columns, k] }) => 2 * rows * columns * k <= most && Math.max(rows, k) * columns <= 2 ** 26)
    .filter(({ shape }, i, all) => all.findIndex((other) => other.shape === shape) === i);
}

/** What the tfjs child is asked to do, and what it says. */
export interface TfjsOrder {
  shapes: [rows: number, columns: number, k: number][];
  /** Products submitted together. */
  inner: number;
}

export interface TfjsAnswer {
  /** The adapter's own name. */
  adapter: string;
  /** Milliseconds of each shape. */
  times: number[];
}

async function tfjs(result: BenchResult, into: PeerResults): Promise<void> {
  requireTfjs();
  const shapes = peerShapes(result);
  const order: TfjsOrder = { shapes: shapes.map(({ sizes }) => sizes), inner: result.device.software ? 1 : 20 };
  const { adapter, times } = await runChild<TfjsAnswer>(new URL('tfjs-child.ts', import.meta.url), order, 300_000);
  if (adapter !== result.device.name)
    throw new Error(`it ran on ${adapter}, and the bench on ${result.device.name}: no ratio is given`);
  into.peers['tfjs'] = Object.fromEntries(
    shapes.map(({ shape, ms }, i) => [shape, { ours: ms, peer: times[i]!, unit: 'ms', ratio: times[i]! / ms }]),
  );
  into.notes['tfjs'] = `@tensorflow/tfjs-backend-webgpu, f32 products on ${adapter}, ours with packing, call to call`;
}

/** Throws where the packages are not installed: they are for development, and a bundle for a node has none. */
function requireTfjs(): void {
  try {
    createRequire(import.meta.url).resolve('@tensorflow/tfjs-backend-webgpu');
  } catch {
    throw new Error('@tensorflow/tfjs-backend-webgpu is not installed here; run npm ci with development packages');
  }
}

const findModules = `
import importlib.util, sys
missing = [name for name in ("torch", "transformers", "peft") if importlib.util.find_spec(name) is None]
if missing: sys.exit(f"python has no module {', '.join(missing)}")
`;

/** The first Python that has torch, transformers and peft: $SHADERL_PYTHON, else python3 of the path. */
async function findPython(): Promise<string> {
  const program = process.env['SHADERL_PYTHON'] ?? 'python3';
  if (program.includes('/')) accessSync(program);
  await lastLine(program, ['-c', findModules], 120_000);
  return program;
}

interface HfLine {
  newTokens: number;
  sampledTokens: number;
  device: string;
  dtype: string;
  torch: string;
  decodeMs: number;
  trainSeconds: number;
  seconds: number;
  peakBytes: number | null;
}

async function transformers(
  result: BenchResult,
  config: unknown,
  mode: string,
  sampledTokens: number | null,
  python: string,
  into: PeerResults,
): Promise<string> {
  const { step, decode, settings, memory } = result;
  if (!step) throw new Error('this bench measured no whole step');
  const { group, promptTokens, newTokens, rank } = settings;
  const job = { config, group, promptTokens, newTokens, rank, mode, sampledTokens };
  const line = JSON.parse(await lastLine(python, [here('hf_grpo.py'), JSON.stringify(job)], 900_000)) as HfLine;
  const name = mode === 'plain' ? 'transformers' : `transformers-${mode}`;
  const figure = (ours: number, peer: number, unit: string) => ({ ours, peer, unit, ratio: peer / ours });
  into.peers[name] = {
    step: figure(step.seconds, line.seconds, 's'),
    train: figure(step.trainSeconds, line.trainSeconds, 's'),
  };
  if (line.peakBytes !== null && memory) into.peers[name]['memory'] = figure(memory.peakBytes, line.peakBytes, 'bytes');
  // The peer's time is a mean over the growing context of its rollouts.
  const middle = promptTokens + newTokens / 2;
  const [same] = decode
    .filter(({ batch }) => batch === group)
    .sort((x, y) => Math.abs(x.context - middle) - Math.abs(y.context - middle));
  if (same) into.peers[name]['decode'] = figure(same.ms, line.decodeMs, 'ms');
  into.notes[name] = `transformers + peft, torch ${line.torch}, ${line.dtype} on ${line.device}`;
  if (line.sampledTokens < line.newTokens)
    into.notes[name] +=
      `; ${line.sampledTokens} of ${line.newTokens} tokens were sampled, the others taken to be as long each`;
  return name;
}

/**
 * Runs every peer, one after the other. `config` is the model's config.json. `onPeer` hears of each figure at once.
 * `sampledTokens` fewer than the step's make the peers sample that many alone and scale their time, where they can.
 */
export async function runPeers(
  result: BenchResult,
  config: unknown,
  modes: readonly string[],
  sampledTokens: number | null,
  say: (text: string) => void,
  onPeer: (text: string) => void,
): Promise<PeerResults> {
  const into: PeerResults = { peers: {}, notes: {}, skipped: [] };
  const attempt = async (what: string, work: () => Promise<void>) => {
    say(`peer: ${what}`);
    try {
      await work();
    } catch (error) {
      into.skipped.push({ what: `peer ${what}`, reason: (error as Error).message });
    }
  };
  await attempt('tfjs', () => tfjs(result, into));
  let python: string | null = null;
  await attempt('transformers', async () => {
    python = await findPython();
  });
  if (python === null) return into;
  for (const mode of modes)
    await attempt(`transformers ${mode}`, async () => {
      const name = await transformers(result, config, mode, sampledTokens, python!, into);
      const { ours, peer, ratio } = into.peers[name]!['step']!;
      onPeer(`${name}: step ${peer.toFixed(2)} s, ours ${ours.toFixed(2)} s, ratio ${ratio.toFixed(1)}`);
    });
  return into;
}
