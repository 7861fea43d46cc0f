// Runs the peers that this machine has, on the shapes that the bench measured, and puts both times side by side.
// Not a judge: a ratio above one means that the peer took longer. Invariant: a peer that is missing or fails is named with
// the reason; its figures are never carried over from another run.
import { spawn } from 'node:child_process';
import { accessSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { BenchResult } from '../run.ts';

export interface PeerFigure {
  ours: number;
  peer: number;
  /** `ms` or `s`. */
  unit: string;
  /** The peer's time over ours. */
  ratio: number;
}

export interface PeerResults {
  peers: Record<string, Record<string, PeerFigure>>;
  notes: Record<string, string>;
  skipped: { what: string; reason: string }[];
}

const here = (name: string) => fileURLToPath(new URL(name, import.meta.url));

/** Runs a program; its last line of output. Throws with the last lines of its error output. */
function lastLine(program: string, args: readonly string[], timeoutMs: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], timeout: timeoutMs });
    let out = '';
    let err = '';
    child.stdout.on('data', (data) => {
      out += data;
    });
    child.stderr.on('data', (data) => {
      err = `${err}${data}`.slice(-4000);
    });
    child.on('error', reject);
    child.on('close', (code, signal) => {
      if (code === 0) resolve(out.trim().split('\n').at(-1) ?? '');
      else reject(new Error(`${signal ?? `exit code ${code}`}: ${err.trim().split('\n').slice(-2).join(' ')}`));
    });
  });
}

/** The product shapes that tfjs is timed on: those of the bench that a software adapter ends in good time. */
export function peerShapes(result: BenchResult): { shape: string; sizes: [number, number, number]; ms: number }[] {
  const most = result.device.software ? 2e9 : 1e13;
  return result.kernels.matmul
    .map(({ shape, ms }) => ({ shape, ms, sizes: shape.split('x').map(Number) as [number, number, number] }))
    .filter(({ sizes: [rows, columns, k] }) => 2 * rows * columns * k <= most && rows * columns < 2 ** 28);
}

async function tfjs(result: BenchResult, into: PeerResults): Promise<void> {
  const shapes = peerShapes(result);
  const inner = result.device.software ? '1' : '20';
  const args = ['--import', 'tsx', here('tfjs-child.ts'), JSON.stringify(shapes.map(({ sizes }) => sizes)), inner];
  const times = JSON.parse(await lastLine(process.execPath, args, 300_000)) as number[];
  into.peers['tfjs'] = Object.fromEntries(
    shapes.map(({ shape, ms }, i) => [shape, { ours: ms, peer: times[i]!, unit: 'ms', ratio: times[i]! / ms }]),
  );
  into.notes['tfjs'] = '@tensorflow/tfjs-backend-webgpu 4.22.0, f32 products on the same adapter';
}

/** The first Python that has torch, transformers and peft: $SHADERL_PYTHON, else python3 of the path. */
async function findPython(): Promise<string> {
  const program = process.env['SHADERL_PYTHON'] ?? 'python3';
  if (program.includes('/')) accessSync(program);
  await lastLine(program, ['-c', 'import torch, transformers, peft'], 120_000);
  return program;
}

interface HfLine {
  device: string;
  dtype: string;
  torch: string;
  decodeMs: number;
  trainSeconds: number;
  seconds: number;
}

async function transformers(
  result: BenchResult,
  config: unknown,
  mode: string,
  python: string,
  into: PeerResults,
): Promise<void> {
  const { step, decode, settings } = result;
  if (!step) throw new Error('this bench measured no whole step');
  const { group, promptTokens, newTokens, rank } = settings;
  const job = { config, group, promptTokens, newTokens, rank, mode };
  const line = JSON.parse(await lastLine(python, [here('hf_grpo.py'), JSON.stringify(job)], 900_000)) as HfLine;
  const name = mode === 'plain' ? 'transformers' : `transformers-${mode}`;
  const figure = (ours: number, peer: number, unit: string) => ({ ours, peer, unit, ratio: peer / ours });
  into.peers[name] = {
    step: figure(step.seconds, line.seconds, 's'),
    train: figure(step.trainSeconds, line.trainSeconds, 's'),
  };
  const same = decode.find(({ batch }) => batch === group);
  if (same) into.peers[name]['decode'] = figure(same.ms, line.decodeMs, 'ms');
  into.notes[name] = `transformers + peft, torch ${line.torch}, ${line.dtype} on ${line.device}`;
}

/** Runs every peer, one after the other. `config` is the model's config.json. */
export async function runPeers(
  result: BenchResult,
  config: unknown,
  modes: readonly string[],
  say: (text: string) => void,
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
    await attempt(`transformers ${mode}`, () => transformers(result, config, mode, python!, into));
  return into;
}
