// `shaderl doctor`: says what this machine offers, whether a model fits, and what to do where something is missing.
import { freemem } from 'node:os';
import type { Command } from 'commander';
import type { AdapterReport, MemoryNeed } from '../../src/doctor.ts';
import { DeviceError } from '../../src/lib/errors.ts';
import { addCommand, numberOption } from '../command.ts';
import type { OpenSession } from '../main.ts';
import { formatBytes } from '../progress.ts';
import { factLines } from '../table.ts';

interface DoctorOptions {
  json?: boolean;
  model?: string;
  quick?: boolean;
  slots: number;
  context?: number;
  rank: number;
}

/** Room for a long prompt and 768 new tokens, as runs have it by default. */
const defaultContext = 1280;

interface Problem {
  problem: string;
  remedy: string;
}

const noAdapter: Problem = {
  problem: 'no Vulkan adapter that Dawn accepts',
  remedy: 'Install a driver, or run ./setup.sh, which installs a software adapter (lavapipe of Mesa 25 or newer).',
};

export function addDoctor(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'doctor',
    summary: 'show the adapter, its limits and kernel families, and whether a model fits',
    details:
      'Opens no device. With --model, adds up what rollouts and training would take, from the architecture alone. ' +
      'Exit code 3 where there is no adapter, 1 where the model does not fit it.',
    examples: ['shaderl doctor', 'shaderl doctor --model ~/models/Qwen3-0.6B --slots 8 --context 2048'],
  })
    .option('--model <dir>', 'a checkpoint whose need of memory is to be added up')
    .option('--quick', 'only tell by the exit code whether there is an adapter (0 or 3)')
    .addOption(numberOption('--slots <n>', 'sequences at a time', { min: 1, integer: true }, 4))
    .addOption(
      numberOption('--context <n>', 'tokens of each sequence (default: 1280, or all positions of a shorter model)', {
        min: 2,
        integer: true,
      }),
    )
    .addOption(
      numberOption('--rank <n>', 'rank of the LoRA adapter, on all linear layers', { min: 1, integer: true }, 16),
    )
    .action(async (options: DoctorOptions) => {
      const session = openSession(options);
      const doctor = await import('../../src/doctor.ts');
      const report = await doctor.inspectAdapter();
      if (options.quick) {
        if (!report) session.fail(3);
        return;
      }
      const problems: Problem[] = [];
      let model: ModelNeed | null = null;
      if (!report) {
        problems.push(noAdapter);
        session.fail(3);
      } else if (options.model !== undefined) {
        model = await modelNeed(options.model, options, report, doctor, problems);
        if (problems.length > 0) session.fail(1);
      }
      const { identity, driver, adapters, matrixConfigs, families } = report ?? emptyReport;
      const value = {
        ok: problems.length === 0,
        adapter: identity,
        adapters,
        driver,
        software: identity?.software ?? null,
        families,
        matrixConfigs,
        model,
        problems,
      };
      session.result(value, doctorText(report, model, problems));
    });
}

const emptyReport = { identity: null, driver: null, adapters: [], matrixConfigs: [], families: null };

interface ModelNeed {
  path: string;
  architecture: { modelType: string; layers: number; hiddenSize: number; vocabSize: number; maxPositions: number };
  slots: number;
  context: number;
  rank: number;
  /** Null where a single buffer is beyond the adapter's limits. */
  bytes: MemoryNeed | null;
  /** Free memory of the host, which a software adapter shares; null for a GPU, of which WebGPU tells nothing. */
  freeBytes: number | null;
}

async function modelNeed(
  path: string,
  options: DoctorOptions,
  report: AdapterReport,
  doctor: typeof import('../../src/doctor.ts'),
  problems: Problem[],
): Promise<ModelNeed> {
  const { folderSource } = await import('../../src/model/file-source-node.ts');
  const { openModelFiles } = await import('../../src/model/model-files.ts');
  const files = await openModelFiles(folderSource(path));
  const { modelType, layers, hiddenSize, vocabSize, maxPositions } = files.architecture;
  const { slots, rank, context = Math.min(defaultContext, maxPositions) } = options;
  const freeBytes = report.identity.software ? freemem() : null;
  let bytes: MemoryNeed | null = null;
  try {
    bytes = doctor.memoryNeed(report.identity, files, { slots, context, lora: doctor.defaultLora(rank) });
  } catch (error) {
    if (!(error instanceof DeviceError)) throw error;
    problems.push({ problem: error.message, remedy: 'Try fewer --slots or a shorter --context.' });
  }
  if (context > maxPositions) {
    problems.push({
      problem: `a context of ${context} tokens, the model has ${maxPositions} positions`,
      remedy: `Use --context ${maxPositions} or less.`,
    });
  }
  if (bytes && freeBytes !== null && bytes.total > freeBytes) {
    problems.push({
      problem: `the model needs ${formatBytes(bytes.total)}, the machine has ${formatBytes(freeBytes)} free`,
      remedy: 'Use a smaller model, fewer --slots, a shorter --context, or a machine with more memory.',
    });
  }
  const architecture = { modelType, layers, hiddenSize, vocabSize, maxPositions };
  return { path, architecture, slots, context, rank, bytes, freeBytes };
}

function doctorText(report: AdapterReport | null, model: ModelNeed | null, problems: readonly Problem[]): string {
  const parts: string[] = [];
  if (report) parts.push(factLines(adapterFacts(report)));
  if (model) parts.push(factLines(modelFacts(model)));
  parts.push(
    problems.length === 0
      ? 'ready: a run can be made here'
      : problems.map(({ problem, remedy }) => `problem: ${problem}\n  remedy: ${remedy}`).join('\n'),
  );
  return parts.join('\n\n');
}

function adapterFacts({ identity, driver, adapters, families, matrixConfigs }: AdapterReport): [string, string][] {
  const { limits, subgroupSize } = identity;
  return [
    ['adapter', `${identity.device} (${identity.vendor}, ${identity.architecture})`],
    ['driver', driver],
    ['kind', identity.software ? 'software: it runs on the CPU' : 'GPU'],
    ['all adapters', adapters.join('; ') || 'not listed'],
    ['Dawn', `${identity.dawn}; ${identity.toggles.join(' ')}`],
    ['subgroup size', subgroupSize[0] === subgroupSize[1] ? `${subgroupSize[0]}` : subgroupSize.join(' to ')],
    ['largest binding', formatBytes(limits.maxStorageBufferBindingSize)],
    ['largest buffer', formatBytes(limits.maxBufferSize)],
    ['family portable', `${families.portable.available ? 'yes' : 'no'}: ${families.portable.reason}`],
    ['family matrix', `${families.matrix.available ? 'yes' : 'no'}: ${families.matrix.reason}`],
    ['matrix shapes', matrixConfigs.length === 0 ? 'none' : `${matrixConfigs.length}`],
    ['features', identity.features.join(', ')],
  ];
}

function modelFacts({ path, architecture, slots, context, rank, bytes, freeBytes }: ModelNeed): [string, string][] {
  const { modelType, layers, hiddenSize, vocabSize } = architecture;
  const facts: [string, string][] = [
    ['model', `${path}: ${modelType}, ${layers} layers, width ${hiddenSize}, ${vocabSize} tokens`],
    ['shape', `${slots} sequences of ${context} tokens, LoRA rank ${rank}`],
  ];
  if (bytes) {
    facts.push(
      ['weights', formatBytes(bytes.weights)],
      ['KV cache', formatBytes(bytes.kvCache)],
      ['sampling', formatBytes(bytes.sampling)],
      ['training', formatBytes(bytes.training)],
      ['adapter', `${formatBytes(bytes.adapter)} for ${bytes.adapterParameters} parameters`],
      ['in all', formatBytes(bytes.total)],
    );
  }
  facts.push(['free', freeBytes === null ? 'WebGPU does not tell for a GPU' : formatBytes(freeBytes)]);
  return facts;
}
