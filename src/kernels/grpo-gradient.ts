// dLoss/dlogprob of every token, by the policy losses of src/grpo.
// Not a normaliser: the host folds mask and divisor into the weights. Invariant: a token of weight 0 gets exactly 0 and
// nothing that it holds is used; a sequence's bits depend on that sequence alone.
import { ceilDiv, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import { testValues, unit } from './case-data.ts';
import { expError } from './logprobs.ts';
import { binaryDivergence, type LossKind, type LossScalars, lossDefaults, lossKinds, tokenTerm } from './loss-terms.ts';

/** The constant KIND for each loss: what the shader branches on. */
export const gradientKind: Readonly<Record<LossKind, number>> = {
  grpo: 0,
  bnpo: 0,
  dapo: 0,
  dr_grpo: 0,
  cispo: 1,
  gspo: 2,
  dppo_tv: 3,
  dppo_kl: 4,
};

/** Stands for "no upper bound on the ratio": finite in f32, and no ratio reaches it. */
const noDelta = 3e38;

/** The scalars of `grpo-gradient` for a loss. */
export function grpoGradientParams(sequences: number, loss: LossScalars): Record<string, number> {
  return {
    sequences,
    epsilonLow: loss.epsilonLow,
    epsilonHigh: loss.epsilonHigh,
    delta: loss.delta ?? noDelta,
    cispoMaxRatio: loss.cispoMaxRatio,
    dppoDelta: loss.dppoDelta,
    beta: loss.beta,
    biasCorrection: loss.klBiasCorrection ? 1 : 0,
  };
}

/** Grid of `grpo-gradient`: one thread a sequence. */
export function grpoGradientGrid(sequences: number): [number, number, number] {
  return [ceilDiv(sequences, 64), 1, 1];
}

export interface GradientInputs {
  /** [sequences + 1]: the first token of each sequence, and the end of the last. */
  starts: Uint32Array<ArrayBuffer>;
  advantages: Float32Array<ArrayBuffer>;
  weights: Float32Array<ArrayBuffer>;
  logprobs: Float32Array<ArrayBuffer>;
  anchors: Float32Array<ArrayBuffer>;
  references: Float32Array<ArrayBuffer>;
}

/**
 * The definition in f64: tokenTerm over f32 inputs, NaN for tokens outside all ranges (they stay untouched). Bounds: the
 * ratio has the error of exp and of its argument (for gspo a mean, a chain of n), every KL factor that of
 * exp or of a series of ten steps; the branch taken must be the reference's, so cases keep clear of the edges.
 */
export function grpoGradientReference(
  inputs: GradientInputs,
  loss: LossScalars,
): { values: Float64Array; bounds: Float64Array } {
  const { starts, advantages, weights, logprobs, anchors, references } = inputs;
  const values = new Float64Array(weights.length).fill(Number.NaN);
  const bounds = new Float64Array(weights.length);
  const sequenceLevel = loss.kind === 'gspo';
  for (let s = 0; s < advantages.length; s++) {
    const [start, end] = [starts[s]!, starts[s + 1]!];
    values.fill(0, start, end);
    const tokens = Array.from({ length: end - start }, (_, i) => start + i).filter((t) => weights[t] !== 0);
    const count = Math.max(tokens.length, 1);
    const chain = (tokens.length + 2) * unit;
    const mean = tokens.reduce((sum, t) => sum + (logprobs[t]! - anchors[t]!), 0) / count;
    const size = tokens.reduce((sum, t) => sum + Math.abs(logprobs[t]! - anchors[t]!), 0) / count;
    let shared = 0;
    let sharedSize = 0;
    let sharedError = 0;
    for (const t of tokens) {
      const logWeight = sequenceLevel ? mean : logprobs[t]! - anchors[t]!;
      const advantage = advantages[s]!;
      const term = tokenTerm(loss, {
        logprob: logprobs[t]!,
        anchor: anchors[t]!,
        reference: references[t]!,
        advantage,
        logWeight,
      });
      const ratioError = expError(logWeight) + (sequenceLevel ? chain * size + 5 * unit * Math.abs(mean) : 0);
      const gap = loss.beta === 0 ? 0 : references[t]! - logprobs[t]!;
      const expGap = Math.exp(gap) * expError(gap);
      const factor = loss.beta * (loss.klBiasCorrection ? term.ratio : 1);
      const k3 = Math.expm1(gap) - gap;
      const klError = (value: number) =>
        factor * (expGap + 12 * unit * (Math.abs(value) + Math.abs(gap)) + Math.abs(value) * ratioError);
      const policy = Math.abs(term.dLogWeight) + (loss.kind === 'cispo' ? Math.abs(term.dLogprob) : 0);
      const errorX = policy * (ratioError + 4 * unit) + (loss.klBiasCorrection ? klError(k3) : 0);
      const errorY = klError(Math.expm1(gap)) + 2 * unit * Math.abs(term.dLogprob);
      const weight = Math.abs(weights[t]!);
      values[t] = weights[t]! * (term.dLogprob + (sequenceLevel ? 0 : term.dLogWeight));
      bounds[t] =
        weight * (errorY + (sequenceLevel ? 0 : errorX)) + 2 * unit * weight * (policy + Math.abs(term.dLogprob));
      shared += weights[t]! * term.dLogWeight;
      sharedSize += weight * Math.abs(term.dLogWeight);
      sharedError += weight * errorX;
    }
    if (!sequenceLevel) continue;
    for (const t of tokens) {
      values[t]! += shared / count;
      bounds[t]! += (sharedError + (chain + 8 * unit) * sharedSize) / count + unit * Math.abs(values[t]!);
    }
  }
  return { values, bounds: bounds.map((bound) => bound + 1e-37) };
}

/** Whether f32 and f64 could take different branches at a token: closer than 1e-4 to an edge of its kind. */
function nearEdge(loss: LossScalars, logprob: number, anchor: number): boolean {
  const near = (a: number, b: number) => Math.abs(a - b) < 1e-4;
  const ratio = Math.exp(logprob - anchor);
  if (loss.kind === 'dppo_tv' || loss.kind === 'dppo_kl')
    return near(binaryDivergence(loss.kind, logprob, anchor), loss.dppoDelta) || near(ratio, 1);
  const edges = [1 - loss.epsilonLow, 1 + loss.epsilonHigh, loss.delta ?? -1, loss.cispoMaxRatio];
  return edges.some((edge) => near(ratio, edge));
}

function makeCase(lengths: readonly number[], loss: LossScalars, spread = 0.3): KernelCase {
  const outside = 5; // tokens before the first and after the last sequence, which must stay untouched
  const total = lengths.reduce((sum, length) => sum + length, 0);
  const tokens = total + 2 * outside;
  const noise = testValues(tokens * 2, 91 + tokens, spread);
  const logprobs = testValues(tokens, 92, 4).map((value) => -Math.abs(value % 9) - 1e-3);
  const anchors = logprobs.map((value, t) => Math.min(value + (noise[t]! % 1.5), -1e-4));
  const references = logprobs.map((value, t) => Math.min(value + (noise[tokens + t]! % 2), -1e-4));
  const starts = new Uint32Array(lengths.length + 1).fill(outside);
  const weights = new Float32Array(tokens);
  const advantages = testValues(lengths.length, 93, 1.5);
  lengths.forEach((length, s) => {
    const start = starts[s]!;
    starts[s + 1] = start + length;
    for (let t = start; t < start + length; t++)
      weights[t] = t % 7 === 3 || nearEdge(loss, logprobs[t]!, anchors[t]!) ? 0 : 1 / (length * lengths.length);
  });
  // What a masked token holds must not matter: make it huge.
  weights.forEach((weight, t) => {
    if (weight === 0) logprobs[t] = -1e30;
  });
  const inputs = { starts, advantages, weights, logprobs, anchors, references };
  const correction = loss.klBiasCorrection ? ' corrected' : '';
  return {
    name: `${loss.kind}, ${lengths.length} sequences, ${total} tokens, beta ${loss.beta}${correction}, delta ${loss.delta}, spread ${spread}`,
    constants: { KIND: gradientKind[loss.kind] },
    params: grpoGradientParams(lengths.length, loss),
    grid: grpoGradientGrid(lengths.length),
    inputs: { ...inputs },
    expected: { gradient: grpoGradientReference(inputs, loss) },
  };
}

/** Writes `gradient` for the tokens of the sequences. `anchors`: the old policy's log-probs, the sampler's for dppo. */
export const grpoGradient: QualifiedKernel = {
  name: 'grpo-gradient',
  bindings: [
    { name: 'starts', access: 'read' },
    { name: 'advantages', access: 'read' },
    { name: 'weights', access: 'read' },
    { name: 'logprobs', access: 'read' },
    { name: 'anchors', access: 'read' },
    { name: 'references', access: 'read' },
    { name: 'gradient', access: 'read_write' },
  ],
  params: [
    ['sequences', 'u32'],
    ['epsilonLow', 'f32'],
    ['epsilonHigh', 'f32'],
    ['delta', 'f32'],
    ['cispoMaxRatio', 'f32'],
    ['dppoDelta', 'f32'],
    ['beta', 'f32'],
    ['biasCorrection', 'u32'],
  ],
  constants: { KIND: 0 },
  cases: () => {
    const loss = (kind: LossKind, more: Partial<LossScalars> = {}): LossScalars => ({ ...lossDefaults, kind, ...more });
    const both = lossKinds.flatMap((kind) => [
      makeCase([1, 63, 64, 65, 0, 130], loss(kind)),
      makeCase(
        [3, 70],
        loss(kind, { beta: 0.1, epsilonHigh: 0.28, klBiasCorrection: lossKinds.indexOf(kind) % 2 === 1 }),
      ),
    ]);
    return [
      ...both,
      makeCase(
        Array.from({ length: 65 }, (_, s) => s % 5),
        loss('dapo', { beta: 0.02 }),
      ),
      makeCase([200], loss('dapo', { delta: 1.5, epsilonHigh: 0.28 })),
      makeCase([40], loss('grpo', { beta: 0.04 }), 1e-6),
      makeCase([40, 41], loss('gspo', { beta: 0.04, klBiasCorrection: true })),
      makeCase([40], loss('dppo_kl', { dppoDelta: 0.05, beta: 0.1, klBiasCorrection: true }), 1),
    ];
  },
};
