// LoRA gradients of the f64 model: against PyTorch's on the golden loss batch, and against central differences.
import { describe, expect, it } from 'vitest';
import { lossWindow, policyLoss } from '../../src/grpo/losses.ts';
import { lossKinds } from '../../src/kernels/loss-terms.ts';
import type { Architecture } from '../../src/model/config.ts';
import { gradientNorm, referenceGradients, referenceScores } from '../../src/model/reference.ts';
import { goldenData, relativeL2 } from '../support/golden.ts';
import { goldenLoss } from '../support/golden-loss.ts';
import { goldenAdapter, goldenModel, loraTensors, randomModel } from '../support/golden-model.ts';

describe('LoRA gradients on the golden batch', () => {
  const golden = goldenLoss();
  const model = goldenModel('tiny-qwen3-tied');
  const adapter = goldenAdapter(model);
  const options = { temperature: golden.temperature };
  const scores = referenceScores(model, adapter, golden.sequences, options);
  const gradientsOf = (kind: (typeof lossKinds)[number]) => {
    const loss = golden.options(kind);
    const logprobs = scores.flatMap((score) => [...score.logprobs.slice(golden.promptLength - 1)]);
    const { gradient } = policyLoss({ ...golden.batch, logprobs }, loss, lossWindow([golden.batch], loss));
    const padded = golden.sequences.map((_, r) => [
      ...new Array<number>(golden.promptLength - 1).fill(0),
      ...gradient.slice(r * 28, (r + 1) * 28),
    ]);
    return referenceGradients(model, adapter, scores, padded, options);
  };

  it.each(lossKinds)('of %s have the norm that PyTorch found', (kind) => {
    const norm = goldenData(golden.file, `${kind}.grad_norm`)[0]!;
    expect(Math.abs(gradientNorm(gradientsOf(kind)) / norm - 1)).toBeLessThanOrEqual(1e-6);
  });

  it.each(['grpo', 'dppo_tv'] as const)('of %s are those of PyTorch in every tensor', (kind) => {
    const gradients = gradientsOf(kind);
    const expected = loraTensors(golden.file, `${kind}.grad.`);
    expect([...expected.keys()].sort()).toEqual([...gradients.keys()].sort());
    expect(expected.size).toBe(42);
    for (const [name, tensor] of expected) expect(relativeL2(gradients.get(name)!, tensor), name).toBeLessThan(2e-6);
  });
});

const base: Architecture = {
  modelType: 'qwen3',
  vocabSize: 11,
  hiddenSize: 6,
  intermediateSize: 7,
  layers: 2,
  heads: 4,
  kvHeads: 2,
  headDim: 4,
  rmsNormEps: 1e-5,
  qkNorm: true,
  tied: true,
  rope: { type: 'default', theta: 1e4 },
  maxPositions: 64,
  eosTokenIds: [],
  bosTokenId: null,
  padTokenId: null,
};

describe.each([
  ['QK-norm, grouped queries, tied head', base],
  ['no QK-norm (Llama type), grouped queries, tied head', { ...base, modelType: 'llama', qkNorm: false }],
  ['QK-norm, one query head per key-value head, own head', { ...base, kvHeads: 4, tied: false }],
] as const)('the backward pass with %s', (_, architecture) => {
  const { model, adapter } = randomModel(architecture, 20_261);
  // Ragged on purpose; the prompt's first token predicts as well, so every position carries weight.
  const sequences = [
    [3, 1, 4, 1, 5, 9, 2],
    [6, 5, 3, 10],
  ];
  const weights = [
    [0.7, -1.3, 0, 0.4, 2.1, -0.6],
    [-0.9, 1.7, 0.3],
  ];
  const options = { temperature: 0.7 };
  const loss = () => {
    let sum = 0;
    referenceScores(model, adapter, sequences, options).forEach((score, r) => {
      score.logprobs.forEach((logprob, t) => {
        sum += weights[r]![t]! * logprob;
      });
    });
    return sum;
  };

  it('agrees with central differences in every element of every LoRA tensor', () => {
    const scores = referenceScores(model, adapter, sequences, options);
    const gradients = referenceGradients(model, adapter, scores, weights, options);
    expect(gradients.size).toBe(architecture.layers * 14);
    const h = 1e-5;
    for (const [name, tensor] of adapter.tensors) {
      const numeric = new Float64Array(tensor.length);
      for (let i = 0; i < tensor.length; i++) {
        const kept = tensor[i]!;
        tensor[i] = kept + h;
        const above = loss();
        tensor[i] = kept - h;
        const below = loss();
        tensor[i] = kept;
        numeric[i] = (above - below) / (2 * h);
      }
      expect(relativeL2(gradients.get(name)!, numeric), name).toBeLessThanOrEqual(1e-7);
      expect(
        numeric.some((value) => Math.abs(value) > 1e-3),
        `${name} matters`,
      ).toBe(true);
    }
  });
});

describe('gradients of the f64 reference', () => {
  it('add up over sequences as if each were alone', () => {
    const { model, adapter } = randomModel(base, 7);
    const options = { temperature: 1 };
    const scores = referenceScores(
      model,
      adapter,
      [
        [1, 2, 3],
        [4, 5, 6, 7],
      ],
      options,
    );
    const weights = [
      [1, -1],
      [0.5, 0.25, 2],
    ];
    const both = referenceGradients(model, adapter, scores, weights, options);
    const parts = scores.map((score, r) => referenceGradients(model, adapter, [score], [weights[r]!], options));
    for (const [name, tensor] of both) {
      const sum = tensor.map((_, i) => parts[0]!.get(name)![i]! + parts[1]!.get(name)![i]!);
      expect(relativeL2(tensor, sum), name).toBeLessThanOrEqual(1e-14);
    }
  });

  it('refuse a gradient of the wrong length', () => {
    const { model, adapter } = randomModel(base, 7);
    const scores = referenceScores(model, adapter, [[1, 2, 3]], { temperature: 1 });
    expect(() =>
      referenceGradients(model, adapter, scores, [[1, 2, 3]], { temperature: 1 }),
    ).toThrowErrorMatchingInlineSnapshot(
      `[PlanError: back-propagating sequence 0 of the f64 reference: 3 gradients for 2 log-probs; they must be equal in number. Pass one entry per predicted token.]`,
    );
  });
});
