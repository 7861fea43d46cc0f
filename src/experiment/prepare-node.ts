// `prepare`: makes a plan from a recipe and its inputs, and freezes it. Opens no device and samples nothing.
// Not a check of the model's quality. Invariant: the output folder appears whole or not at all, and a folder that holds
// anything is never written to.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { mkdir, rename, rm } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { parseMgsm } from '../evaluation/mgsm.ts';
import { PlanError } from '../lib/errors.ts';
import { createNodeStorage } from '../lib/storage-node.ts';
import { folderSource } from '../model/file-source-node.ts';
import { openModelFiles } from '../model/model-files.ts';
import { loadText } from '../model/text.ts';
import { SELECTION_TEXT } from '../select.ts';
import {
  agentInstances,
  DATA_FILES,
  type DataName,
  dataBytes,
  type ExperimentData,
  experimentData,
  inspectedIds,
} from './data.ts';
import { requireFreshEpisodes, requireSourceDisjoint } from './disjoint.ts';
import { freezeFile, freezeProgram, freezeTree, frozenFiles, serviceFiles } from './freeze-node.ts';
import { BLOCKS_FILE, COPIES_FILE, createKeeper } from './keep-node.ts';
import { type FirstArm, requireMatched, requireMatchingRecipe } from './matched-node.ts';
import { parseJsonLines, parseMathDev } from './math-dev.ts';
import {
  type ARMS,
  type FrozenTree,
  PLAN_FILE,
  PLAN_HASH_FILE,
  type Plan,
  planBytes,
  planHashLine,
  trainingConfig,
} from './plan.ts';
import { measurePrompts, positionsOf } from './positions.ts';
import type { Recipe } from './recipe.ts';
import { type PlanService, PROOF_FILE } from './service.ts';

export interface PrepareOptions {
  baseline: string;
  tokenizer: string;
  mathDev: string;
  mgsm: string;
  env: (typeof ARMS)[number];
  output: string;
  recipe: Recipe;
  /** Shader file -> SHA-256, of the kernels that the plan's family runs. */
  shaders: Record<string, string>;
  /** Proves the service of an arm that has one. Called last, when all else is in order. */
  freezeService?: () => Promise<{ service: PlanService; proof: Uint8Array }>;
  /** Makes this the second arm of an experiment, whose inputs and recipe the other options then repeat. */
  first?: { arm: FirstArm; baseline: 'reuse' | 'rerun' };
}

const TOKENIZER_FILES = [
  'tokenizer.json',
  'tokenizer_config.json',
  'chat_template.jinja',
  'special_tokens_map.json',
  'added_tokens.json',
  'vocab.json',
  'merges.txt',
];

function requireFreeFolder(folder: string): void {
  if (!existsSync(folder) || readdirSync(folder).length === 0) return;
  const holds = readdirSync(folder).sort().slice(0, 4).join(', ');
  throw new PlanError(
    'used-folder',
    `preparing an experiment in ${folder}: found files in it (${holds}); wanted a new or empty folder. ` +
      'A plan is never replaced: give another --output.',
  );
}

function requireExpected(name: string, { folder, treeSha256, expect }: FrozenTree): void {
  if (expect === null || expect === treeSha256) return;
  throw new PlanError(
    'other-input',
    `freezing the ${name} ${folder}: found tree SHA-256 ${treeSha256}; the recipe expects ${expect}. ` +
      `Give the folder that the recipe means, or correct ${name}.expect.`,
  );
}

/** The tokenizer must be the one that the run reads, which lies in the checkpoint's folder. */
function requireSameTokenizer(tokenizer: FrozenTree, baseline: FrozenTree): void {
  const inBaseline = new Map(baseline.files.map(({ path, sha256 }) => [path, sha256]));
  for (const { path, sha256 } of tokenizer.files) {
    const found = inBaseline.get(path);
    if (found === sha256) continue;
    throw new PlanError(
      'other-tokenizer',
      `comparing ${join(baseline.folder, path)} with ${join(tokenizer.folder, path)}: found ` +
        `${found === undefined ? 'no such file' : `SHA-256 ${found}`}; wanted ${sha256}. ` +
        "A run reads the tokenizer from the checkpoint's folder: copy the tokenizer's files there.",
    );
  }
}

/** All rollouts of a step hold a session each; one that waited for a place would stop the others. */
function requireSessions({ service, training: { grpo } }: Recipe, env: PrepareOptions['env']): void {
  const members = grpo.groupSize * grpo.groupsPerStep;
  if (env === 'local' || service.maxSessions >= members) return;
  throw new PlanError(
    'few-sessions',
    `preparing an experiment with --env ${env}: found service.maxSessions ${service.maxSessions}; wanted at least ` +
      `${members}, the rollouts of a step (grpo.groupSize x grpo.groupsPerStep). Raise it in the recipe.`,
  );
}

/** Makes and freezes a plan in `output`. Throws PlanError or ModelFileError, and then leaves nothing behind. */
export async function preparePlan(options: PrepareOptions): Promise<{ plan: Plan; sha256: string; file: string }> {
  const output = resolve(options.output);
  const { recipe, env } = options;
  requireFreeFolder(output);
  requireSessions(recipe, env);
  if (options.first) requireMatchingRecipe(options.first.arm, recipe);
  const [baselineFolder, tokenizerFolder] = [resolve(options.baseline), resolve(options.tokenizer)];
  const keeper = createKeeper();
  const baseline = await freezeTree(baselineFolder, recipe.baseline, keeper);
  requireExpected('baseline', baseline);
  const present = await folderSource(tokenizerFolder).list();
  const names = TOKENIZER_FILES.filter((name) => present.includes(name));
  const tokenizer = await freezeTree(tokenizerFolder, recipe.tokenizer, keeper, names);
  requireExpected('tokenizer', tokenizer);
  requireSameTokenizer(tokenizer, baseline);
  const text = await loadText(folderSource(baselineFolder));
  const { architecture } = await openModelFiles(folderSource(baselineFolder));

  const given = (path: string) => freezeFile(path, path, keeper);
  const mathDev = await given(resolve(options.mathDev));
  const sft = join(dirname(mathDev.path), 'train.jsonl');
  const mathTrain = await freezeFile(
    sft,
    sft,
    keeper,
    'the SFT training data beside --math-dev, which its items are shown to be disjoint from. Put the file there.',
  );
  const mgsm = await given(resolve(options.mgsm));
  const devItems = parseMathDev(readFileSync(mathDev.path, 'utf8'), mathDev.path);
  const sftLines = parseJsonLines(readFileSync(mathTrain.path, 'utf8'), mathTrain.path);
  requireSourceDisjoint(devItems, sftLines, mathTrain.path);
  const plain = devItems.map(({ id, question, gold }) => ({ id, question, gold }));
  const mgsmItems = parseMgsm(readFileSync(mgsm.path, 'utf8'), mgsm.path);
  const labels = { mathDev: mathDev.path, mgsm: mgsm.path };
  const data = experimentData(recipe, { mathDev: plain, mgsm: mgsmItems }, labels);
  const heldOut = agentInstances([...data.dev, ...data.final]);
  const questions = [...data.mathDev, ...data.mgsm];
  requireFreshEpisodes(agentInstances(data.train), heldOut, questions);
  const { enableThinking } = recipe.training.generation;
  const measured = measurePrompts(text, data, enableThinking);
  const positions = positionsOf(recipe, measured, architecture.maxPositions, baselineFolder);

  const training = await trainingConfig(recipe, baselineFolder);
  const bytes = Object.fromEntries(
    Object.entries(DATA_FILES).map(([name]) => [name, dataBytes(data[name as DataName])]),
  ) as Record<DataName, Uint8Array>;
  const frozenData = Object.fromEntries(
    Object.entries(DATA_FILES).map(([name, path]) => {
      const content = bytes[name as DataName];
      const items = data[name as keyof ExperimentData].length;
      return [name, { path, bytes: content.length, sha256: keeper.add(content), items }];
    }),
  ) as Plan['data'];
  const plan: Plan = {
    schema: 'shaderl.plan/2',
    arm: env,
    recipe,
    service: null,
    matched: options.first
      ? {
          folder: options.first.arm.folder,
          planSha256: options.first.arm.sha256,
          arm: options.first.arm.plan.arm,
          baseline: options.first.baseline,
        }
      : null,
    program: await freezeProgram(keeper),
    kernels: { family: recipe.kernels.family, shaders: options.shaders },
    inputs: {
      baseline,
      tokenizer,
      chatTemplateSha256: text.templateSha256 ?? noTemplate(baselineFolder),
      mathDev,
      mathTrain,
      mgsm,
    },
    data: frozenData,
    disjointness: {
      sftLines: sftLines.length,
      mathItems: devItems.length,
      trainEpisodes: data.train.length,
      heldOut: heldOut.length + questions.length,
    },
    positions,
    training: JSON.parse(JSON.stringify(training.config)) as Plan['training'],
    trainingSha256: training.sha256,
    selectionRule: SELECTION_TEXT,
    inspection: inspectedIds(recipe, data),
  };
  if (options.first) requireMatched(options.first.arm, plan);
  const frozen = env === 'local' ? null : await options.freezeService!();
  plan.service = frozen?.service ?? null;
  if (frozen) keeper.add(frozen.proof);
  for (const { path } of serviceFiles(plan)) if (path !== PROOF_FILE) await given(path);
  const blocks = keeper.blocks(frozenFiles(plan));
  if (blocks) plan.blocks = { path: BLOCKS_FILE, bytes: blocks.length, sha256: keeper.add(blocks) };
  const planFile = planBytes(plan);
  const sha256 = keeper.add(planFile);
  await writeFolder(output, {
    // The second arm's are the first one's own bytes, which were just shown to be equal.
    ...byPath(options.first?.arm.data ?? bytes),
    ...(frozen ? { [PROOF_FILE]: frozen.proof } : {}),
    ...(blocks ? { [BLOCKS_FILE]: blocks } : {}),
    [COPIES_FILE]: await keeper.copies([{ path: PLAN_FILE, sha256 }, ...frozenFiles(plan)]),
    [PLAN_FILE]: planFile,
    [PLAN_HASH_FILE]: new TextEncoder().encode(planHashLine(sha256)),
  });
  return { plan, sha256, file: join(output, PLAN_FILE) };
}

const byPath = (bytes: Record<DataName, Uint8Array>) =>
  Object.fromEntries(Object.entries(DATA_FILES).map(([name, path]) => [path, bytes[name as DataName]]));

function noTemplate(folder: string): never {
  throw new PlanError(
    'no-chat-template',
    `preparing an experiment with ${folder}: found no chat template; wanted one. Use an instruction-tuned checkpoint.`,
  );
}

/** Writes all files into a folder beside the output and renames it: a stopped `prepare` leaves no half plan. */
async function writeFolder(output: string, files: Record<string, Uint8Array>): Promise<void> {
  const temporary = join(dirname(output), `.${basename(output)}.preparing-${process.pid}`);
  await mkdir(dirname(output), { recursive: true });
  try {
    const storage = createNodeStorage(temporary);
    for (const [path, bytes] of Object.entries(files)) await storage.write(path, bytes);
    // An empty folder of that name is replaced; one that was filled meanwhile refuses the rename.
    await rename(temporary, output);
  } catch (error) {
    await rm(temporary, { recursive: true, force: true });
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENOTEMPTY' || code === 'EEXIST') requireFreeFolder(output);
    throw error;
  }
}
