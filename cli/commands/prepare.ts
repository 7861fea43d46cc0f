// `shaderl prepare`: freezes the plan of an experiment.
import { type Command, Option } from 'commander';
import { addCommand } from '../command.ts';
import { readTextFile } from '../input-files.ts';
import type { OpenSession } from '../main.ts';
import { factLines } from '../table.ts';

interface PrepareOptions {
  json?: boolean;
  baseline: string;
  tokenizer: string;
  mathDev: string;
  mgsm: string;
  env: 'local' | 'nemo-gym' | 'openenv';
  recipe?: string;
  output: string;
}

export function addPrepare(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'prepare',
    summary: 'freeze the plan of a preregistered experiment; opens no device',
    details:
      'Writes plan.json (canonical JSON, its SHA-256 in plan.sha256) and the generated data into a new folder. ' +
      'The plan ' +
      'holds the hashes of the program, its dependencies, the inputs and the data, so that nothing can change ' +
      'after it. ' +
      'Refuses DEV math items that occur in the train.jsonl beside --math-dev. Without --recipe: german-agent.',
    examples: [
      'shaderl prepare --baseline ~/models/sft --tokenizer ~/models/sft \\\n' +
        '      --math-dev data/dev.jsonl --mgsm data/mgsm_de.tsv --env local --output runs/experiment',
    ],
  })
    .requiredOption('--baseline <dir>', 'folder of the SFT checkpoint that training starts from')
    .requiredOption('--tokenizer <dir>', 'folder of its tokenizer')
    .requiredOption('--math-dev <file>', 'DEV math items as JSON lines: {question, answer}; train.jsonl lies beside it')
    .requiredOption('--mgsm <file>', 'mgsm_de.tsv: question TAB answer')
    .addOption(
      new Option('--env <arm>', 'what serves the environment')
        .choices(['local', 'nemo-gym', 'openenv'])
        .makeOptionMandatory(),
    )
    .option('--recipe <file>', 'recipe (JSON or YAML); what it leaves out is as in german-agent')
    .requiredOption('--output <dir>', 'folder of the experiment; must be new or empty')
    .action(async (options: PrepareOptions) => {
      const session = openSession(options);
      const { parseRecipe } = await import('../../src/experiment/recipe.ts');
      const { preparePlan } = await import('../../src/experiment/prepare-node.ts');
      const { shaderDigests } = await import('../../workers/run-identity.ts');
      const { recipe: recipeFile, json: _json, ...rest } = options;
      const standard = new URL('../../recipes/german-agent.json', import.meta.url).pathname;
      const file = recipeFile ?? standard;
      const recipe = parseRecipe(readTextFile(file, 'a recipe'), file);
      session.progress.update('hashing the inputs');
      const { plan, sha256, file: planFile } = await preparePlan({ ...rest, recipe, shaders: shaderDigests() });
      const { baseline, tokenizer } = plan.inputs;
      session.result(
        { plan: planFile, sha256, baseline: baseline.treeSha256, tokenizer: tokenizer.treeSha256 },
        factLines([
          ['plan', planFile],
          ['SHA-256', sha256],
          ['recipe', recipe.name],
          ['baseline, tree SHA-256', baseline.treeSha256],
          ['tokenizer, tree SHA-256', tokenizer.treeSha256],
          ['files of the program', String(plan.program.files.length)],
          ['TRAIN episodes', String(plan.data.train.items)],
        ]),
      );
    });
}
