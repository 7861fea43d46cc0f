// `shaderl bench`: measures the device's limits and the model's kernels and steps, against both and against peers.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Command, InvalidArgumentError } from 'commander';
import { addCommand } from '../command.ts';
import type { OpenSession } from '../main.ts';

interface BenchCommandOptions {
  json?: boolean;
  shape: string;
  batch?: number[];
  context?: number[];
  trace?: string;
  peer?: boolean | string;
}

const embedded = new URL('../../fixtures/embedded-policy', import.meta.url).pathname;
const peerModes = ['plain', 'det', 'compiled'];

function parseCounts(text: string): number[] {
  const counts = text.split(',').map(Number);
  if (counts.every((count) => Number.isSafeInteger(count) && count >= 1)) return counts;
  throw new InvalidArgumentError('Wanted whole numbers of at least 1, separated by commas.');
}

function parsePeers(text: string): string {
  const unknown = text.split(',').find((mode) => !peerModes.includes(mode));
  if (unknown !== undefined)
    throw new InvalidArgumentError(`Wanted some of ${peerModes.join(', ')}; found ${unknown}.`);
  return text;
}

export function addBench(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'bench',
    summary: 'measure kernels, decoding and training against the device and against peers',
    details:
      'Measures copy bandwidth and matmul rate first, then the products of the shape, decoding, prefill, a training step, ' +
      'a whole GRPO step, and the GPU time of each kernel. Named shapes have random weights. On software adapters the ' +
      'sizes are small. --peer also times tfjs (products, same adapter) and transformers + peft (whole step) where ' +
      '$SHADERL_PYTHON or python3 has them.',
    examples: ['shaderl bench', 'shaderl bench --shape qwen3-1.7b --peer --json', 'shaderl bench --trace trace.json'],
  })
    .option('--shape <shape>', 'qwen3-0.6b, qwen3-1.7b, qwen3-4b, embedded, or a checkpoint folder', 'embedded')
    .option('--batch <list>', 'batch sizes of decoding, separated by commas', parseCounts)
    .option('--context <list>', 'contexts of decoding, separated by commas', parseCounts)
    .option('--trace <file>', 'write the GPU time of every dispatch in the Chrome trace format')
    .option(
      '--peer [modes]',
      'time peers too; modes of transformers: plain, det, compiled (default: plain)',
      parsePeers,
    )
    .action(async (options: BenchCommandOptions) => {
      const session = openSession(options);
      const { namedShapes, randomSource } = await import('../../bench/models.ts');
      const { runBench } = await import('../../bench/run.ts');
      const { benchText } = await import('../../bench/text.ts');
      const { openGpu } = await import('../../src/gpu/device.ts');
      const { chromeTrace } = await import('../../src/gpu/timing.ts');
      const { folderSource } = await import('../../src/model/file-source-node.ts');
      const { shape } = options;
      const named = namedShapes[shape];
      const folder = shape === 'embedded' ? embedded : shape;
      const source = named ? randomSource(shape) : folderSource(folder);
      const gpu = await openGpu();
      let result: Awaited<ReturnType<typeof runBench>>;
      try {
        result = await runBench(gpu, source, {
          ...(options.batch ? { batches: options.batch } : {}),
          ...(options.context ? { contexts: options.context } : {}),
          onProgress: (text) => session.progress.update(text),
          onSpans: (spans) => {
            if (options.trace === undefined) return;
            writeFileSync(options.trace, chromeTrace(spans, gpu.identity.description || gpu.identity.device));
          },
        });
      } finally {
        gpu.destroy();
      }
      if (options.trace !== undefined && result.kernels.trace.length > 0) {
        session.progress.line(`wrote ${options.trace}`);
      }
      let peers: Awaited<ReturnType<typeof import('../../bench/peers/run.ts').runPeers>> | null = null;
      if (options.peer) {
        const { runPeers } = await import('../../bench/peers/run.ts');
        const config = named ?? JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8'));
        const modes = typeof options.peer === 'string' ? options.peer.split(',') : ['plain'];
        peers = await runPeers(result, config, modes, (text) => session.progress.update(text));
      }
      const value = peers
        ? { ...result, peers: peers.peers, peerNotes: peers.notes, skipped: [...result.skipped, ...peers.skipped] }
        : result;
      session.result(value, benchText(result, peers));
    });
}
