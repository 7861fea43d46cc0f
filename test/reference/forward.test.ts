// The f64 model against transformers on the golden checkpoints: hidden states, logits, log-probs, entropies.
// transformers computes RMSNorm and the RoPE table in f32 even in an f64 model, so the goldens themselves are only as
// good as a few f32 roundings: 1.2e-7 to 1.7e-7 relative was measured, and the bounds leave a factor of 2.
import { describe, expect, it } from 'vitest';
import { referenceForward } from '../../src/model/reference/forward.ts';
import { referenceScores } from '../../src/model/reference.ts';
import { goldenData, maxDifference, readGolden, relativeL2 } from '../support/golden.ts';
import { goldenLoss } from '../support/golden-loss.ts';
import { goldenAdapter, goldenModel } from '../support/golden-model.ts';

describe.each(['qwen3-tied', 'qwen3-untied', 'llama-tied'])('the f64 reference of tiny-%s', (tag) => {
  const golden = readGolden(`forward-${tag}.safetensors`);
  const model = goldenModel(`tiny-${tag}`);
  const ids = [...goldenData(golden, 'input_ids')];
  const traces = [0, 1, 2].map((r) => referenceForward(model, ids.slice(r * 40, (r + 1) * 40), null));
  const stacked = (pick: (trace: (typeof traces)[number]) => Float64Array) =>
    Float64Array.from(traces.flatMap((trace) => [...pick(trace)]));

  it.each([0, 1, 2, 3])('has hidden state %i of transformers', (i) => {
    const state = stacked((trace) => trace.layers[i]?.input ?? trace.finalNormed);
    expect(relativeL2(state, goldenData(golden, `hidden.${i}.f64`))).toBeLessThanOrEqual(i === 0 ? 0 : 4e-7);
  });

  it('has the logits of transformers', () => {
    const logits = stacked((trace) => trace.logits);
    expect(relativeL2(logits, goldenData(golden, 'logits.f64'))).toBeLessThanOrEqual(4e-7);
    expect(maxDifference(logits, goldenData(golden, 'logits.f64'))).toBeLessThanOrEqual(2e-6);
  });

  it('is nearer to the f64 logits than f32 arithmetic is', () => {
    const own = relativeL2(
      stacked((trace) => trace.logits),
      goldenData(golden, 'logits.f64'),
    );
    expect(own).toBeLessThan(relativeL2(goldenData(golden, 'logits.f32'), goldenData(golden, 'logits.f64')));
  });
});

describe('log-probs of the f64 reference', () => {
  const golden = goldenLoss();
  const model = goldenModel('tiny-qwen3-tied');
  const completion = (adapter: Parameters<typeof referenceScores>[1]) => {
    const scores = referenceScores(model, adapter, golden.sequences, { temperature: golden.temperature });
    return {
      logprobs: scores.flatMap((score) => [...score.logprobs.slice(golden.promptLength - 1)]),
      entropy: scores.flatMap((score) => [...score.entropy.slice(golden.promptLength - 1)]),
    };
  };

  it('are those of transformers and PEFT with the adapter on, entropies too', () => {
    const { logprobs, entropy } = completion(goldenAdapter(model));
    expect(maxDifference(logprobs, goldenData(golden.file, 'policy_logps'))).toBeLessThanOrEqual(2e-6);
    expect(maxDifference(entropy, goldenData(golden.file, 'entropy'))).toBeLessThanOrEqual(2e-6);
  });

  it('are those of the base model with the adapter off', () => {
    const { logprobs } = completion(null);
    expect(maxDifference(logprobs, goldenData(golden.file, 'ref_logps'))).toBeLessThanOrEqual(2e-6);
  });

  it('do not depend on what follows, bit for bit', () => {
    const ids = golden.sequences[0]!;
    const [whole] = referenceScores(model, null, [ids], { temperature: 0.6 });
    const [part] = referenceScores(model, null, [ids.slice(0, 17)], { temperature: 0.6 });
    expect([...part!.logprobs]).toEqual([...whole!.logprobs.slice(0, 16)]);
  });
});

describe('closeness measures', () => {
  it('let no NaN, swapped row or short array pass', () => {
    expect(relativeL2([1, Number.NaN], [1, 2]) <= 1e9).toBe(false);
    expect(maxDifference([1, Number.NaN], [1, 2]) <= 1e9).toBe(false);
    expect(maxDifference([Number.NaN, 1], [1, 1]) <= 1e9).toBe(false);
    expect(relativeL2([1, 2, 3, 4], [3, 4, 1, 2])).toBeGreaterThan(0.5);
    expect(relativeL2([1], [1, 2]) <= 1e9).toBe(false);
  });
});
