// The forms of each kernel, and the check that they give the bits of the plain one.
// Not accuracy: that is each form's own qualification. Invariant: every form that the device can run is compared, on
// every case of the plain kernel that it takes.
import type { Gpu } from '../gpu/device.ts';
import type { KernelCase, QualifiedKernel } from '../gpu/kernel.ts';
import { kernelVariant, supports } from '../gpu/variant.ts';
import { attentionKvGradient, attentionKvGradientLanes } from './attention-kv-gradient.ts';
import { attentionScores, attentionScoresLanes } from './attention-scores.ts';
import { attentionSoftmax, attentionSoftmaxWide } from './attention-softmax.ts';
import { attentionValues, attentionValuesLanes } from './attention-values.ts';
import { matmul, matmulLanes, matmulSkinny, matmulTiled } from './matmul.ts';
import { matmulNn, matmulNnLanes, matmulNnTiled } from './matmul-nn.ts';
import { matmulTn, matmulTnLanes, matmulTnTiled } from './matmul-tn.ts';
import { runOnce } from './qualify.ts';
import { rmsnorm, rmsnormRows } from './rmsnorm.ts';
import { rmsnormBackward, rmsnormBackwardRows } from './rmsnorm-backward.ts';
import { compareRowForms } from './row-forms.ts';

/** Each kernel in its plain form, with its other forms. */
export const kernelForms: readonly (readonly [plain: QualifiedKernel, ...forms: QualifiedKernel[]])[] = [
  [matmul, matmulLanes, matmulTiled, matmulSkinny],
  [matmulNn, matmulNnLanes, matmulNnTiled],
  [matmulTn, matmulTnLanes, matmulTnTiled],
  [attentionScores, attentionScoresLanes],
  [attentionSoftmax, attentionSoftmaxWide],
  [attentionValues, attentionValuesLanes],
  [attentionKvGradient, attentionKvGradientLanes],
  [rmsnorm, rmsnormRows],
  [rmsnormBackward, rmsnormBackwardRows],
];

export interface FormResult {
  name: string;
  passed: boolean;
  /** The first difference, or what was compared. */
  detail: string;
}

/** A form's case is named after the plain case, without how that is cut. */
const stem = (run: KernelCase) => run.name.replace(/ rows\/thread \d+$/, '');

/** Compares every form of every kernel with the plain one, bit for bit. One result a form. */
export async function compareForms(gpu: Gpu): Promise<FormResult[]> {
  const results: FormResult[] = [];
  for (const [plain, ...forms] of kernelForms) {
    const cases = new Map(plain.cases().map((run) => [stem(run), run]));
    const words = new Map<string, Record<string, Uint32Array>>();
    for (const [name, run] of cases) words.set(name, await runOnce(gpu, plain, run));
    for (const form of forms) {
      if (supports(gpu, form)) results.push(await compareForm(gpu, plain, form, words));
    }
  }
  // The form of draws that a software adapter never runs: its own tests compare it there.
  if (kernelVariant(gpu.identity) === 'tiles') results.push(await compareRowForms(gpu));
  return results;
}

async function compareForm(
  gpu: Gpu,
  plain: QualifiedKernel,
  form: QualifiedKernel,
  words: ReadonlyMap<string, Record<string, Uint32Array>>,
): Promise<FormResult> {
  const name = `${form.name} against ${plain.name}`;
  let compared = 0;
  for (const run of form.cases()) {
    // The longest name that the form's begins with: one case's name may begin with another's.
    const like = [...words.keys()].filter((known) => run.name.startsWith(known)).sort((a, b) => b.length - a.length)[0];
    if (like === undefined) return { name, passed: false, detail: `${run.name}: no such case of ${plain.name}` };
    const found = await runOnce(gpu, form, run);
    for (const [output, wanted] of Object.entries(words.get(like)!)) {
      const at = wanted.findIndex((word, i) => word !== found[output]![i]);
      if (at < 0) continue;
      const [one, other] = [wanted[at]!.toString(16), found[output]![at]!.toString(16)];
      return { name, passed: false, detail: `${run.name}: ${output}[${at}] is ${other}, wanted ${one}` };
    }
    compared += 1;
  }
  return { name, passed: true, detail: `${compared} cases, equal bits` };
}
