// What a merge into 16-bit weights changed in what the model says: greedy answers and log-probs on a fixed probe set,
// adapter apart against merged. Not an evaluation: nothing is graded. Invariant: both models see the same tokens on the
// same device, so every difference is the merge's.
import { mathProblems } from '../src/environments/german-math.ts';
import type { MergeProbe } from '../src/export/merge-audit.ts';
import { type Gpu, openGpu } from '../src/gpu/device.ts';
import { mathInstruction } from '../src/item-prompts.ts';
import { streamWords } from '../src/lib/rng.ts';
import type { LoadedAdapter } from '../src/model/adapter-files.ts';
import { type GpuAdapter, loadGpuAdapter } from '../src/model/adapter-gpu.ts';
import { canarySettingOf, checkLoadedAdapter } from '../src/model/canary-measure.ts';
import { folderSource } from '../src/model/file-source-node.ts';
import { type ModelFiles, openModelFiles } from '../src/model/model-files.ts';
import { probeLogits } from '../src/model/probe.ts';
import type { Text } from '../src/model/text.ts';
import { type GpuModel, loadWeights } from '../src/model/weights.ts';
import { createSampler } from '../src/rollout/sampler.ts';
import { shadersSha256 } from './run-identity.ts';

const probeSeed = 20261020;
const probePrompts = 8;
const answerTokens = 24;
const idsPrompt = 16;
/** Stream of the ids of a probe without text. */
const idsStream = 0x50726f62;
const passRows = 256;

/** The probe set: fixed word problems through the model's chat template, or seeded ids where there is none. */
function promptsOf(text: Text | null, vocabulary: number): { set: MergeProbe['set']; prompts: number[][] } {
  if (text && text.templateSha256 !== null) {
    const messages = ({ question }: { question: string }) => [
      { role: 'user' as const, content: `${question}\n\n${mathInstruction}` },
    ];
    const problems = mathProblems(probeSeed, probePrompts);
    return { set: 'math-dev', prompts: problems.map((problem) => text.renderPrompt({ messages: messages(problem) })) };
  }
  const id = (n: number) => streamWords(probeSeed, idsStream, n)[0] % vocabulary;
  const prompts = Array.from({ length: probePrompts }, (_, p) =>
    Array.from({ length: idsPrompt }, (_, i) => id(p * idsPrompt + i)),
  );
  return { set: 'ids', prompts };
}

/** The most likely continuations, up to a stop id or `answerTokens` ids. */
async function greedyAnswers(
  gpu: Gpu,
  model: GpuModel,
  adapter: GpuAdapter | null,
  prompts: readonly number[][],
  vocabulary: number,
): Promise<number[][]> {
  const cacheLength = Math.max(...prompts.map(({ length }) => length)) + answerTokens;
  const shape = { slots: prompts.length, cacheLength, rows: passRows };
  const greedy = { temperature: 1, topK: 1, topP: 1, minP: 0 };
  const sampler = createSampler(gpu, model, shape, greedy, vocabulary, adapter?.layout ?? null);
  sampler.use(adapter);
  const key = { seed: probeSeed, step: 0, group: 0, member: 0, position: 0 };
  const stops = model.architecture.eosTokenIds;
  const answers: number[][] = [];
  try {
    for (const [slot, prompt] of prompts.entries()) {
      let start = 0;
      for (; prompt.length - start > passRows; start += passRows) {
        await sampler.step([{ slot, start, tokens: prompt.slice(start, start + passRows), key: null }]);
      }
      const [drawn] = await sampler.step([{ slot, start, tokens: prompt.slice(start), key }]);
      answers.push([drawn!.id]);
    }
    for (let n = 1; n < answerTokens; n++) {
      const open = answers.flatMap((answer, slot) => (stops.includes(answer.at(-1)!) ? [] : [slot]));
      if (open.length === 0) break;
      const work = open.map((slot) => ({
        slot,
        start: prompts[slot]!.length + answers[slot]!.length - 1,
        tokens: [answers[slot]!.at(-1)!],
        key,
      }));
      const drawn = await sampler.step(work);
      for (const [i, slot] of open.entries()) answers[slot]!.push(drawn[i]!.id);
    }
    return answers;
  } finally {
    sampler.destroy();
  }
}

/** Log-probs of the answers' tokens, flat, in f64 from f32 logits: log softmax at temperature 1. */
async function answerLogprobs(
  gpu: Gpu,
  model: GpuModel,
  adapter: GpuAdapter | null,
  prompts: readonly number[][],
  answers: readonly number[][],
  vocabulary: number,
): Promise<number[]> {
  const out: number[] = [];
  const sequences = prompts.map((prompt, i) => [...prompt, ...answers[i]!]);
  const visit = (s: number, position: number, logits: Float32Array) => {
    const target = sequences[s]![position + 1];
    if (target === undefined) return;
    const largest = logits.reduce((most, value) => Math.max(most, value), Number.NEGATIVE_INFINITY);
    const sum = logits.reduce((total, value) => total + Math.exp(value - largest), 0);
    out.push(logits[target]! - largest - Math.log(sum));
  };
  const from = prompts.map(({ length }) => length - 1);
  await probeLogits(gpu, model, adapter, sequences, vocabulary, visit, from);
  return out;
}

const distances = (a: readonly number[], b: readonly number[]) => a.map((value, i) => Math.abs(value - b[i]!));
const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

/**
 * Measures base, base with adapter, and the merged folder on the probe set, on this machine's device. The adapter is
 * checked against its canary first.
 * @throws DeviceError without a device, ModelFileError for a merged folder that does not open.
 */
export async function probeMerge(
  files: ModelFiles,
  adapter: LoadedAdapter,
  merged: string,
  text: Text | null,
): Promise<MergeProbe> {
  const gpu = await openGpu();
  try {
    const vocabulary = Math.min(text?.vocabularySize ?? Number.POSITIVE_INFINITY, files.architecture.vocabSize);
    const { set, prompts } = promptsOf(text, vocabulary);
    const positions = Math.max(...prompts.map(({ length }) => length)) + answerTokens;
    const base = await loadWeights(gpu, files, { positions });
    const onDevice = loadGpuAdapter(gpu, base.architecture, adapter);
    const setting = canarySettingOf(gpu, 'portable', shadersSha256());
    await checkLoadedAdapter(gpu, base, adapter, onDevice, vocabulary, setting);
    const answers = await greedyAnswers(gpu, base, onDevice, prompts, vocabulary);
    const adapted = await answerLogprobs(gpu, base, onDevice, prompts, answers, vocabulary);
    const before = await answerLogprobs(gpu, base, null, prompts, answers, vocabulary);
    base.destroy();
    const model = await loadWeights(gpu, await openModelFiles(folderSource(merged)), { positions });
    const mergedAnswers = await greedyAnswers(gpu, model, null, prompts, vocabulary);
    const after = await answerLogprobs(gpu, model, null, prompts, answers, vocabulary);
    const changes = distances(after, adapted);
    return {
      device: gpu.identity.description || gpu.identity.device,
      set,
      prompts: prompts.length,
      answersChanged: answers.filter((answer, i) => answer.join() !== mergedAnswers[i]!.join()).length,
      tokens: adapted.length,
      meanLogprobChange: mean(changes),
      maxLogprobChange: Math.max(...changes),
      meanAdapterEffect: mean(distances(adapted, before)),
    };
  } finally {
    gpu.destroy();
  }
}
