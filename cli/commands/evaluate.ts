// `shaderl evaluate`: a policy on a suite, sample by sample, into an evaluation file.
import { type Command, InvalidArgumentError, Option } from 'commander';
import { incompleteNote } from '../../src/evaluation/outcomes.ts';
import type { EvaluationFile } from '../../src/evaluation/results.ts';
import { PlanError } from '../../src/lib/errors.ts';
import type { EvaluationSuite } from '../../workers/evaluation-api.ts';
import { addCommand, numberOption, parseSeeds, seedRange } from '../command.ts';
import type { OpenSession } from '../main.ts';
import { addSamplingOptions, type SamplingOptions } from '../sampling-options.ts';
import { factLines } from '../table.ts';

interface EvaluateOptions extends SamplingOptions {
  json?: boolean;
  model: string;
  adapter?: string;
  suite: 'agent' | 'math';
  data?: string;
  episodes?: number;
  split: 'dev' | 'final';
  itemSeed?: number;
  seeds: number[];
  output: string;
  maxToolRounds: number;
  thinking: boolean;
}

/** Seeds of the generated items, as runs have them by default. */
const itemSeeds = { dev: 42, final: 1729 } as const;

export function addEvaluate(program: Command, openSession: OpenSession): void {
  const command = addCommand(program, {
    name: 'evaluate',
    summary: 'evaluate a policy on a suite and write an evaluation file',
    details:
      'Suite agent: episodes of the German lookup and calculator task, counted as strict successes. Suite math: ' +
      'questions with one numeric answer, from a file of question TAB answer, or generated word problems. Each item ' +
      'is sampled once a seed. The file is what `shaderl compare` takes.',
    examples: [
      'shaderl evaluate --model ~/models/Qwen3-0.6B --suite agent --episodes 64 --seeds 42,1729 --output before.json',
      'shaderl evaluate --model ~/models/Qwen3-0.6B --adapter runs/a/checkpoints/step-000064 \\\n' +
        '      --suite math --data mgsm_de.tsv --seeds 42 --output math.json',
    ],
  })
    .requiredOption('--model <dir>', 'folder of a Hugging Face checkpoint')
    .option('--adapter <dir>', 'folder of a PEFT LoRA adapter; without it the base model is evaluated')
    .addOption(new Option('--suite <suite>', 'what to evaluate on').choices(['agent', 'math']).makeOptionMandatory())
    .addOption(new Option('--data <file>', 'items of suite math: question TAB answer').conflicts('episodes'))
    .addOption(numberOption('--episodes <n>', 'items to generate', { min: 1, integer: true }))
    .addOption(
      new Option('--split <split>', 'which generated episodes of suite agent')
        .choices(['dev', 'final'])
        .default('final'),
    )
    .addOption(
      numberOption('--item-seed <n>', 'seed of generated items (default: 42 dev and math, 1729 final)', seedRange),
    )
    .addOption(
      new Option('--seeds <list>', 'sampling seeds, separated by commas').argParser(distinctSeeds).default([42], '42'),
    )
    .requiredOption('--output <file>', 'evaluation file to write');
  addSamplingOptions(command, { meaning: 'most tokens after the prompt, tool results included', fallback: 768 })
    .addOption(
      numberOption('--max-tool-rounds <n>', 'rounds of tool calls of suite agent', { min: 0, integer: true }, 3),
    )
    .option('--no-thinking', 'ask the chat template for answers without reasoning')
    .action(async (options: EvaluateOptions) => {
      const session = openSession(options);
      checkItems(options);
      const { evaluateToFile, mathSuite } = await import('../../workers/evaluate-node.ts');
      const { model, adapter, seeds, output, temperature, topK, topP, minP, maxTokens, maxToolRounds, thinking } =
        options;
      const suite = suiteOf(options, mathSuite);
      const rounds = suite.kind === 'agent' ? maxToolRounds : 0;
      const file = await evaluateToFile({
        model,
        adapter: adapter ?? null,
        suite,
        seeds,
        output,
        sampling: { temperature, topK, topP, minP, maxTokens, maxToolRounds: rounds, thinking },
        onProgress: (finished, total) => session.progress.update(`evaluated ${finished}/${total}`),
        onNote: (text) => session.progress.line(`note: ${text}`),
      });
      session.result({ output, ...file }, evaluateText(output, file));
    });
}

/** Throws PlanError unless the options name items that the suite has. */
function checkItems({ suite, data, episodes }: EvaluateOptions): void {
  const refuse = (found: string, wanted: string) =>
    new PlanError(
      'bad-options',
      `reading the command line: found ${found}; wanted ${wanted}. Give --episodes 64, for example.`,
    );
  if (data !== undefined && suite === 'agent')
    throw refuse('--data with suite agent', '--episodes, as its episodes are generated');
  if (data === undefined && episodes === undefined) {
    throw refuse('neither --data nor --episodes', suite === 'agent' ? '--episodes' : 'one of them');
  }
}

function suiteOf(options: EvaluateOptions, mathSuite: (data: string) => EvaluationSuite): EvaluationSuite {
  const { suite, data, episodes, split, itemSeed } = options;
  if (suite === 'agent') return { kind: suite, split, seed: itemSeed ?? itemSeeds[split], episodes: episodes! };
  return mathSuite(data ?? `dev:${itemSeed ?? itemSeeds.dev}:${episodes}`);
}

function distinctSeeds(text: string): number[] {
  const seeds = parseSeeds(text);
  const twice = seeds.find((seed, i) => seeds.indexOf(seed) !== i);
  if (twice !== undefined) throw new InvalidArgumentError(`Seed ${twice} stands there twice; wanted each once.`);
  return seeds;
}

function evaluateText(output: string, file: EvaluationFile): string {
  const { totals, suite, seeds, device, wallSeconds } = file;
  const scored = totals.samples - totals.byOutcome.infrastructure;
  const rate = scored === 0 ? 'no sample was scored' : `${((100 * totals.correct) / scored).toFixed(1)} %`;
  const incomplete = incompleteNote(totals.byOutcome.infrastructure, totals.samples);
  const facts = factLines([
    ['suite', `${suite}: ${totals.items} items, seeds ${seeds.join(', ')}`],
    [suite === 'agent' ? 'strict success' : 'correct', `${rate} (${totals.correct} of ${scored})`],
    ...Object.entries(totals.byOutcome).map(([outcome, count]) => [outcome, String(count)] as const),
    ['time', `${wallSeconds.toFixed(1)} s on ${device}`],
    ['wrote', output],
  ]);
  return incomplete === null ? facts : `${facts}\n\nnote: ${incomplete}`;
}
