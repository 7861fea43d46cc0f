// Two recorded runs of TRL's GRPOTrainer, four optimizer steps each, repeated in f64 from their batches alone:
// the adapter starts at step 0 and every later weight is our own.
import { describe, expect, it } from 'vitest';
import { computeAdvantages } from '../../src/grpo/advantages.ts';
import { lossMetrics } from '../../src/grpo/loss-tallies.ts';
import { type LossBatch, type LossOptions, lossWindow, policyLoss } from '../../src/grpo/losses.ts';
import { learningRate } from '../../src/grpo/schedule.ts';
import { adamwDefaults, adamwReference, adamwScalars, clipCoefficient } from '../../src/kernels/adamw-reference.ts';
import { lossDefaults } from '../../src/kernels/loss-terms.ts';
import { referenceAdapter } from '../../src/model/reference/weights.ts';
import { gradientNorm, type ReferenceScore, referenceGradients, referenceScores } from '../../src/model/reference.ts';
import { goldenData, maxDifference, readGolden, relativeL2 } from '../support/golden.ts';
import { trlStep } from '../support/golden-loss.ts';
import { goldenLora, goldenModel, loraTensors } from '../support/golden-model.ts';

const model = goldenModel('tiny-qwen3-tied');

describe.each(['grpo', 'dapo'] as const)('the recorded TRL run with loss %s', (kind) => {
  const file = readGolden(`trl-${kind}-4-steps.safetensors`);
  const config = file.metadata['config'] as Record<string, number> & { use_bias_correction_kl: boolean };
  const options: LossOptions = {
    ...lossDefaults,
    kind,
    epsilonLow: config['epsilon']!,
    epsilonHigh: config['epsilon']!,
    beta: config['beta']!,
    klBiasCorrection: config.use_bias_correction_kl,
    maskTruncated: false,
    maxCompletionLength: config['max_completion_length']!,
  };
  const temperature = { temperature: config['temperature']! };
  const start = loraTensors(file, 'step0.');
  const adapter = referenceAdapter(model.architecture, { config: goldenLora, tensors: start });
  const zeros = () => new Map([...start].map(([name, tensor]) => [name, new Float64Array(tensor.length)]));
  const [m, v] = [zeros(), zeros()];
  let stored: number[] = [];
  let fragile = new Set<number>();

  const completions = (
    scores: readonly ReferenceScore[],
    quantity: 'logprobs' | 'entropy',
    promptLengths: readonly number[],
  ) => scores.flatMap((score, r) => [...score[quantity].slice(promptLengths[r]! - 1)]);

  it.each([1, 2, 3, 4])('is repeated at step %i: loss, KL, entropy, gradient norm, weights, moments', (k) => {
    const step = trlStep(file, k);
    const scores = referenceScores(model, adapter, step.sequences, temperature);
    const reference = referenceScores(model, null, step.sequences, temperature);
    const logprobs = completions(scores, 'logprobs', step.promptLengths);
    const ref = completions(reference, 'logprobs', step.promptLengths);
    const entropy = completions(scores, 'entropy', step.promptLengths);
    expect(maxDifference(logprobs, step.logprobs)).toBeLessThanOrEqual(1e-4);
    expect(maxDifference(ref, step.reference)).toBeLessThanOrEqual(1e-5);

    // With num_iterations 2 the old log-probs are those of the batch's first use, which are our own too.
    const iterations = config['num_iterations']!;
    if (iterations > 1 && (k - 1) % iterations === 0) stored = logprobs;
    expect(step.old === null).toBe(iterations === 1);
    if (step.old) expect(maxDifference(stored, step.old)).toBeLessThanOrEqual(2e-5);

    const rowStarts = [0];
    for (const completion of step.completions) rowStarts.push(rowStarts.at(-1)! + completion.length);
    const batch: LossBatch = {
      rowStarts,
      mask: new Uint8Array(logprobs.length).fill(1),
      truncated: null,
      logprobs,
      old: iterations > 1 ? stored : null,
      sampled: null,
      reference: ref,
      advantages: step.advantages,
      entropy,
    };
    const { loss, gradient, tallies } = policyLoss(batch, options, lossWindow([batch], options));
    const metrics = lossMetrics(tallies, kind, options.beta);
    const near = (actual: number, expected: number, relative: number) =>
      expect(Math.abs(actual - expected)).toBeLessThanOrEqual(relative * Math.abs(expected));
    expect(Math.abs(loss - step.loss)).toBeLessThanOrEqual(1e-6);
    near(loss, step.log.loss, 1e-3);
    near(metrics['kl']!, step.log.kl, 1e-4);
    near(metrics['entropy']!, step.log.entropy, 1e-6);
    // Steps 2 and 4 of the dapo run reuse a batch: the clip is active there and nowhere else.
    expect(metrics['clip_ratio/region_mean']! > 0).toBe(kind === 'dapo' && k % 2 === 0);

    const padded = step.sequences.map((_, r) => [
      ...new Array<number>(step.promptLengths[r]! - 1).fill(0),
      ...gradient.slice(rowStarts[r]!, rowStarts[r + 1]!),
    ]);
    const gradients = referenceGradients(model, adapter, scores, padded, temperature);
    const norm = gradientNorm(gradients);
    near(norm, step.log.grad_norm, 1e-5);
    const rate = learningRate(k, { kind: 'linear', base: config['learning_rate']!, totalSteps: config['max_steps']! });
    expect(rate).toBe(step.log.learning_rate);
    const scalars = adamwScalars(k, rate, adamwDefaults);
    const clip = clipCoefficient(norm, config['max_grad_norm']!);
    for (const [name, tensor] of adapter.tensors)
      adamwReference(tensor, m.get(name)!, v.get(name)!, gradients.get(name)!, clip, scalars);

    const flat = (tensors: ReadonlyMap<string, Float64Array>) => [...start.keys()].flatMap((n) => [...tensors.get(n)!]);
    const first = flat(start);
    const update = (tensors: ReadonlyMap<string, Float64Array>) => flat(tensors).map((value, i) => value - first[i]!);
    const own = update(adapter.tensors);
    const trl = update(loraTensors(file, `step${k}.`));
    expect(own.length).toBe(15_744);
    expect(relativeL2(own, trl)).toBeLessThanOrEqual(1e-3);
    expect(relativeL2(flat(m), flat(loraTensors(file, `step${k}.m.`)))).toBeLessThanOrEqual(2e-5);
    expect(relativeL2(flat(v), flat(loraTensors(file, `step${k}.v.`)))).toBeLessThanOrEqual(2e-5);

    // The first AdamW update is lr * g / (|g| + eps), so an element whose first gradient is about as small as eps 1e-8
    // takes on TRL's f32 rounding in full. There is one such element in the grpo run; it alone makes the 2e-4 to 3e-4.
    if (k === 1) fragile = new Set(flat(gradients).flatMap((g, i) => (Math.abs(clip * g) < 5e-8 ? [i] : [])));
    const sturdy = (values: number[]) => values.filter((_, i) => !fragile.has(i));
    expect(fragile.size).toBeLessThanOrEqual(1);
    expect(relativeL2(sturdy(own), sturdy(trl))).toBeLessThanOrEqual(2e-5);
  });

  it.each([1, 2, 3, 4])('has the advantages of its rewards at step %i', (k) => {
    const { completions: rows, advantages } = trlStep(file, k);
    const rewards = rows.map((ids) => [ids.filter((id) => id % 7 === 0).length / 8 - 0.01 * ids.length]);
    const own = computeAdvantages(rewards, { groupSize: 4, scale: 'group' }).advantages;
    const shuffled = (values: ArrayLike<number>) => Array.from(values).sort((a, b) => a - b);
    expect(maxDifference(shuffled(own), shuffled(advantages))).toBeLessThanOrEqual(2e-6);
    expect(goldenData(file, `step${k}.advantages`).length).toBe(4);
  });
});
