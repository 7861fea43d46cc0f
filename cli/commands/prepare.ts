// `shaderl prepare`: freezes the plan of an experiment, or of the second arm of one.
import { type Command, Option } from 'commander';
import type { PrepareOptions as PlanOptions } from '../../src/experiment/prepare-node.ts';
import type { Recipe } from '../../src/experiment/recipe.ts';
import { PlanError } from '../../src/lib/errors.ts';
import { addCommand, type Session } from '../command.ts';
import { readTextFile } from '../input-files.ts';
import type { OpenSession } from '../main.ts';
import { factLines } from '../table.ts';

type Arm = 'local' | 'nemo-gym' | 'openenv';

interface Inputs {
  baseline: string;
  tokenizer: string;
  mathDev: string;
  mgsm: string;
}

interface PrepareOptions extends Partial<Inputs> {
  json?: boolean;
  env: Arm;
  recipe?: string;
  proof?: string;
  baselineFrom?: string;
  rerunBaseline?: boolean;
  output: string;
}

const INPUTS = { baseline: '--baseline', tokenizer: '--tokenizer', mathDev: '--math-dev', mgsm: '--mgsm' } as const;

const refuse = (found: string, wanted: string, remedy: string) =>
  new PlanError('bad-options', `reading the command line: found ${found}; wanted ${wanted}. ${remedy}`);

/** Throws PlanError unless the options fit each other. */
function checkOptions(options: PrepareOptions): void {
  const second = options.baselineFrom !== undefined;
  for (const [key, flag] of Object.entries(INPUTS)) {
    const given = options[key as keyof Inputs] !== undefined;
    if (second && given) {
      throw refuse(`${flag} with --baseline-from`, "the first arm's own inputs", `Leave ${flag} out.`);
    }
    if (!second && !given) {
      throw refuse(`no ${flag}`, 'all inputs of a first arm, or --baseline-from', `Give ${flag}.`);
    }
  }
  if (options.rerunBaseline && !second) {
    throw refuse('--rerun-baseline alone', '--baseline-from beside it', 'A first arm always runs its baseline.');
  }
  if (options.proof !== undefined && options.env === 'local') {
    throw refuse('--proof with --env local', 'a service', 'Leave --proof out, or give --env nemo-gym or openenv.');
  }
}

/** Inputs, recipe and relation of the arm that is to be prepared. */
async function armOf(
  options: PrepareOptions,
): Promise<{ inputs: Inputs; recipe: Recipe; file: string; first?: NonNullable<PlanOptions['first']> }> {
  const { parseRecipe } = await import('../../src/experiment/recipe.ts');
  const { recipe: given, baselineFrom, rerunBaseline } = options;
  const file = given ?? new URL('../../recipes/german-agent.json', import.meta.url).pathname;
  const read = () => parseRecipe(readTextFile(file, 'a recipe'), file);
  if (baselineFrom === undefined) return { inputs: options as Inputs, recipe: read(), file };
  const { readFirstArm } = await import('../../src/experiment/matched-node.ts');
  const arm = await readFirstArm(baselineFrom);
  const { baseline, tokenizer, mathDev, mgsm } = arm.plan.inputs;
  return {
    inputs: { baseline: baseline.folder, tokenizer: tokenizer.folder, mathDev: mathDev.path, mgsm: mgsm.path },
    recipe: given === undefined ? { ...arm.plan.recipe, service: parseRecipe('{}', 'nothing').service } : read(),
    file,
    first: { arm, baseline: rerunBaseline ? 'rerun' : 'reuse' },
  };
}

async function prepare(options: PrepareOptions, session: Session): Promise<void> {
  checkOptions(options);
  const { preparePlan } = await import('../../src/experiment/prepare-node.ts');
  const { shaderDigests } = await import('../../workers/run-identity.ts');
  const { env, proof, output } = options;
  const { inputs, recipe, file, first } = await armOf(options);
  session.progress.update('hashing the inputs');
  const { baseline, tokenizer, mathDev, mgsm } = inputs;
  const {
    plan,
    sha256,
    file: planFile,
  } = await preparePlan({
    ...{ baseline, tokenizer, mathDev, mgsm, env, output, recipe, shaders: shaderDigests() },
    async freezeService() {
      const { freezeService } = await import('../../workers/experiment/service-plan.ts');
      session.progress.update('proving the service');
      return freezeService({
        protocol: env as Exclude<Arm, 'local'>,
        section: recipe.service,
        recipe: file,
        ...(proof === undefined ? {} : { proof }),
        onCheck: (name) => session.progress.update(`proving the service: ${name}`),
      });
    },
    ...(first ? { first } : {}),
  });
  const { service, matched, positions } = plan;
  const { maxCompletionTokens } = recipe.training.generation;
  const caps = Object.entries(positions.sets).map(([set, { longestPrompt, completionCap: cap }]) => {
    const held = cap < maxCompletionTokens ? `, clamped from ${maxCompletionTokens}` : '';
    return [set, `prompts up to ${longestPrompt} tokens, then up to ${cap}${held}`] as const;
  });
  session.result(
    {
      plan: planFile,
      sha256,
      baseline: plan.inputs.baseline.treeSha256,
      tokenizer: plan.inputs.tokenizer.treeSha256,
      positions,
      service: service && { protocol: service.protocol, url: service.url, proof: service.proof.sha256 },
      matched: matched && { folder: matched.folder, planSha256: matched.planSha256 },
    },
    factLines([
      ['plan', planFile],
      ['SHA-256', sha256],
      ['recipe', recipe.name],
      ['baseline, tree SHA-256', plan.inputs.baseline.treeSha256],
      ['tokenizer, tree SHA-256', plan.inputs.tokenizer.treeSha256],
      ['files of the program', String(plan.program.files.length)],
      ['TRAIN episodes', String(plan.data.train.items)],
      ['positions of the model', String(positions.model)],
      ...caps,
      ...(service
        ? ([
            ['service', `${service.protocol}, ${service.owned ? 'started by the run' : service.url}`],
            ['smoke proof, SHA-256', service.proof.sha256],
          ] as const)
        : []),
      ...(matched ? ([['second arm of', `${matched.folder} (plan ${matched.planSha256})`]] as const) : []),
    ]),
  );
}

export function addPrepare(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'prepare',
    summary: 'freeze the plan of a preregistered experiment; opens no device',
    details:
      'Writes plan.json (canonical JSON, its SHA-256 in plan.sha256) and the generated data into a new folder. ' +
      'The plan holds the hashes of the program, its dependencies, the inputs and the data, so that nothing can ' +
      'change after it. Refuses DEV math items that occur in the train.jsonl beside --math-dev, and suites whose ' +
      'longest prompt and cap exceed the positions of the model, unless the recipe says "positions": "clamp". ' +
      'Without --recipe: german-agent. With --env nemo-gym or openenv the environment is the service of the recipe ("service": a url, ' +
      'or a command that the run starts), or the reference service of this program; the plan pins its answers, its ' +
      'command, executable and package versions, and its smoke proof. --baseline-from prepares the second arm of an ' +
      'experiment: inputs, data and numbers are those of the first arm, whose completed baseline evaluations are ' +
      'reused whole unless --rerun-baseline is given.',
    examples: [
      'shaderl prepare --baseline ~/models/sft --tokenizer ~/models/sft \\\n' +
        '      --math-dev data/dev.jsonl --mgsm data/mgsm_de.tsv --env nemo-gym --output runs/first',
      'shaderl prepare --baseline-from runs/first --env openenv --output runs/second',
    ],
  })
    .option('--baseline <dir>', 'folder of the SFT checkpoint that training starts from')
    .option('--tokenizer <dir>', 'folder of its tokenizer')
    .option('--math-dev <file>', 'DEV math items as JSON lines: {question, answer}; train.jsonl lies beside it')
    .option('--mgsm <file>', 'mgsm_de.tsv: question TAB answer')
    .addOption(
      new Option('--env <arm>', 'what serves the environment')
        .choices(['local', 'nemo-gym', 'openenv'])
        .makeOptionMandatory(),
    )
    .option('--recipe <file>', 'recipe (JSON or YAML); what it leaves out is as in german-agent')
    .option('--proof <file>', 'smoke.json of the service, by `shaderl smoke-env`; without it the service is proven now')
    .option('--baseline-from <dir>', 'folder of the first arm, in place of the inputs')
    .option('--rerun-baseline', "evaluate the baseline again instead of reusing the first arm's evaluations")
    .requiredOption('--output <dir>', 'folder of the experiment; must be new or empty')
    .action(async (options: PrepareOptions) => prepare(options, openSession(options)));
}
