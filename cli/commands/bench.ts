// `shaderl bench`: measures the device's limits and the model's kernels and steps, against both and against peers.
// Not the measuring: bench/ does that. Invariant: the kernel family is the one asked for, or the best that the adapter
// runs, and the result says which and why.
import { writeFileSync } from 'node:fs';
import { type Command, InvalidArgumentError, Option } from 'commander';
import type { BenchResult } from '../../bench/run.ts';
import type { KernelFamily } from '../../src/gpu/device.ts';
import type { Span } from '../../src/gpu/timing.ts';
import { addCommand, numberOption, type Session } from '../command.ts';
import type { OpenSession } from '../main.ts';

interface BenchCommandOptions {
  json?: boolean;
  shape: string;
  family?: KernelFamily;
  robustness: 'on' | 'off';
  batch?: number[];
  context?: number[];
  trace?: string;
  peer?: boolean | string;
  peerTokens?: number;
  bits?: boolean | number;
}

const peerModes = ['plain', 'det', 'compiled'];
const bitsSteps = 10;

function parseCounts(text: string): number[] {
  const counts = text.split(',').map(Number);
  if (counts.every((count) => Number.isSafeInteger(count) && count >= 1)) return counts;
  throw new InvalidArgumentError('Wanted whole numbers of at least 1, separated by commas.');
}

function parseSteps(text: string): number {
  const [steps, ...rest] = parseCounts(text);
  if (rest.length === 0) return steps!;
  throw new InvalidArgumentError('Wanted one whole number of at least 1.');
}

function parsePeers(text: string): string {
  const unknown = text.split(',').find((mode) => !peerModes.includes(mode));
  if (unknown !== undefined)
    throw new InvalidArgumentError(`Wanted some of ${peerModes.join(', ')}; found ${unknown}.`);
  return text;
}

/** The family to measure, and why: the one asked for, else matrix where the adapter runs it. Throws DeviceError. */
async function chooseFamily(wanted: KernelFamily | undefined) {
  const { inspectAdapter, requireFamily } = await import('../../src/doctor.ts');
  const { DeviceError } = await import('../../src/lib/errors.ts');
  const report = await inspectAdapter();
  if (!report) {
    throw new DeviceError('no-adapter', 'opening a GPU for the bench: found none; wanted one. Run shaderl doctor.');
  }
  const family = wanted ?? (report.families.matrix.available ? 'matrix' : 'portable');
  requireFamily(report, family);
  const { reason } = report.families.matrix;
  const timestamps = report.identity.features.includes('timestamp-query');
  const why = family === 'matrix' || wanted ? (wanted ? 'asked for' : reason) : `no matrix: ${reason}`;
  return { family, reason: why, timestamps, software: report.identity.software };
}

/** The bits of sampled tokens in every pass and of training steps in four processes; exit code 1 if any differ. */
async function checkBits(session: Session, options: BenchCommandOptions): Promise<void> {
  const { compareBits } = await import('../../bench/bits.ts');
  const { openShape } = await import('../../bench/models.ts');
  const { parametersOf } = await import('../../bench/run.ts');
  const { bitsSettings, tokenSettings: tokenSettingsFor } = await import('../../bench/settings.ts');
  const { bitsText } = await import('../../bench/text.ts');
  const { openModelFiles } = await import('../../src/model/model-files.ts');
  const { shape } = options;
  const { family, timestamps, software } = await chooseFamily(options.family);
  const { architecture } = await openModelFiles(openShape(shape).source);
  const steps = typeof options.bits === 'number' ? options.bits : bitsSteps;
  const parameters = parametersOf(architecture);
  const settings = bitsSettings(parameters, software);
  const tokenSettings = {
    ...tokenSettingsFor(parameters, software),
    ...(options.batch ? { batches: options.batch } : {}),
  };
  const order = { shape, family, tokenSettings, steps, settings };
  const result = await compareBits(order, timestamps, (text) => session.progress.update(text));
  session.result(result, bitsText(result));
  if (!result.equal) session.fail(1);
}

/** The start of a process on the shape, measured where the bench itself holds no device any more. */
async function addStart(session: Session, shape: string, result: BenchResult): Promise<void> {
  const { openShape } = await import('../../bench/models.ts');
  const { measureStart, withFolder } = await import('../../bench/start.ts');
  const { source, folder } = openShape(shape);
  const { promptTokens, newTokens } = result.settings;
  const { family, robustness } = result;
  session.progress.update('start of a process to its first token');
  try {
    result.start = await withFolder(source, folder, (made) =>
      measureStart({
        folder: made,
        family,
        robustness,
        promptTokens,
        positions: promptTokens + newTokens,
      }),
    );
  } catch (error) {
    result.skipped.push({ what: 'start', reason: (error as Error).message });
  }
}

async function runAll(session: Session, options: BenchCommandOptions): Promise<void> {
  const { openShape } = await import('../../bench/models.ts');
  const { runBench } = await import('../../bench/run.ts');
  const { benchText } = await import('../../bench/text.ts');
  const { openGpu } = await import('../../src/gpu/device.ts');
  const { chromeTrace } = await import('../../src/gpu/timing.ts');
  const { source } = openShape(options.shape);
  const { family, reason } = await chooseFamily(options.family);
  session.progress.line(`family ${family}: ${reason}`);
  const robustness = options.robustness === 'on';
  const gpu = await openGpu({ robustness });
  let result: BenchResult;
  try {
    result = await runBench(gpu, source, {
      family,
      familyReason: reason,
      robustness,
      ...(options.batch ? { batches: options.batch } : {}),
      ...(options.context ? { contexts: options.context } : {}),
      onProgress: (text) => session.progress.update(text),
      onFigures: (text) => session.progress.line(text),
      onSpans: (spans: readonly Span[]) => {
        if (options.trace === undefined) return;
        writeFileSync(options.trace, chromeTrace(spans, gpu.identity.description || gpu.identity.device));
        session.progress.line(`wrote ${options.trace}`);
      },
    });
  } finally {
    gpu.destroy();
  }
  await addStart(session, options.shape, result);
  session.progress.line(`start: ${JSON.stringify(result.start)}`);
  if (!options.peer) {
    session.result(result, benchText(result, null));
    return;
  }
  const { runPeers } = await import('../../bench/peers/run.ts');
  const config = new TextDecoder().decode(await source.read('config.json', 0, (await source.size('config.json')) ?? 0));
  const modes = typeof options.peer === 'string' ? options.peer.split(',') : ['plain'];
  const peers = await runPeers(
    result,
    JSON.parse(config),
    modes,
    options.peerTokens ?? null,
    (text) => session.progress.update(text),
    (text) => session.progress.line(text),
  );
  const skipped = [...result.skipped, ...peers.skipped];
  session.result({ ...result, peers: peers.peers, peerNotes: peers.notes, skipped }, benchText(result, peers));
}

export function addBench(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'bench',
    summary: 'measure kernels, decoding and training against the device and against peers',
    details:
      'Measures copy bandwidth and matmul rate first, then the products of the shape, decoding, prefill, a training step, ' +
      'a whole GRPO step, the GPU time of each kernel, and the time from the start of a process to its first token. ' +
      'Named shapes have random weights. Several contexts give the growth of decoding with the context. On software ' +
      'adapters the sizes are small. --peer also times tfjs (products, same adapter) and transformers + peft (whole ' +
      'step) where $SHADERL_PYTHON or python3 has them. --bits measures nothing: it samples in batches of 1, 3, 4, 16 ' +
      'and 64 (or --batch), slots refilled as members end, and compares the log-prob and entropy of every token with ' +
      "those of a reference pass and of the trainer's pass; then it runs the same training steps in four processes, " +
      'with robustness and tracing on and off. It exits with 1 if one bit differs.',
    examples: [
      'shaderl bench',
      'shaderl bench --shape qwen3-1.7b --peer plain,det,compiled --json',
      'shaderl bench --shape qwen3-1.7b --batch 1,4,64 --context 256,512,1024,2048',
      'shaderl bench --trace trace.json',
      'shaderl bench --shape qwen3-1.7b --bits 10',
    ],
  })
    .option('--shape <shape>', 'qwen3-0.6b, qwen3-1.7b, qwen3-4b, embedded, or a checkpoint folder', 'embedded')
    .addOption(
      new Option('--family <name>', 'kernel family (default: matrix where the adapter has it)').choices([
        'portable',
        'matrix',
      ]),
    )
    .addOption(new Option('--robustness <state>', 'index checks in shaders').choices(['on', 'off']).default('on'))
    .option('--batch <list>', 'batch sizes of decoding, or of --bits, separated by commas', parseCounts)
    .option('--context <list>', 'contexts of decoding, separated by commas', parseCounts)
    .option('--trace <file>', 'write the GPU time of every dispatch in the Chrome trace format')
    .option(
      '--peer [modes]',
      'time peers too; modes of transformers: plain, det, compiled (default: plain)',
      parsePeers,
    )
    .addOption(
      numberOption('--peer-tokens <n>', 'sample so many tokens in plain and det, and scale (default: all)', {
        min: 2,
        integer: true,
      }),
    )
    .option(
      '--bits [steps]',
      `compare bits instead: of sampled tokens, and of so many training steps (default: ${bitsSteps})`,
      parseSteps,
    )
    .action(async (options: BenchCommandOptions) => {
      const session = openSession(options);
      await (options.bits ? checkBits : runAll)(session, options);
    });
}
