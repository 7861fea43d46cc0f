// The whole model in f64, forward: embedding, blocks (norm, attention, norm, SwiGLU), final norm, head.
// Not a sampler and not batched: one sequence a call, all positions at once, no cache, no padding.
// Invariant: the trace holds every intermediate that the backward pass needs, unrounded.
import { PlanError } from '../../lib/errors.ts';
import { type LinearName, linearPath, linearShape } from '../tensor-names.ts';
import { attention } from './attention.ts';
import { type LinearOutput, type LoraPair, linearForward, matmulTransposed } from './linear.ts';
import { rmsNorm, rotate, swiglu } from './pointwise.ts';
import type { ReferenceAdapter, ReferenceModel } from './weights.ts';

/** What one block computed. Shapes as in the pointwise and attention references, T tokens. */
export interface LayerTrace {
  /** The residual stream at the block's input, [T, hidden]. */
  input: Float64Array;
  inputInverse: Float64Array;
  /** The normalised input of q, k and v. */
  normed: Float64Array;
  /** Projections before QK-norm. */
  qRaw: Float64Array;
  kRaw: Float64Array;
  /** 1 / rms of each head, [T * heads]; null without QK-norm. */
  qInverse: Float64Array | null;
  kInverse: Float64Array | null;
  /** After QK-norm and RoPE. */
  q: Float64Array;
  k: Float64Array;
  v: Float64Array;
  probabilities: Float64Array;
  /** The heads' outputs, [T, heads * headDim]. */
  attended: Float64Array;
  /** The residual stream after attention. */
  middle: Float64Array;
  middleInverse: Float64Array;
  middleNormed: Float64Array;
  gate: Float64Array;
  up: Float64Array;
  activated: Float64Array;
  /** A x of each linear layer, [T, rank]; null without LoRA. */
  down: Record<LinearName, Float64Array | null>;
}

export interface ReferenceTrace {
  ids: readonly number[];
  layers: LayerTrace[];
  /** The residual stream after the last block, [T, hidden]. */
  final: Float64Array;
  finalInverse: Float64Array;
  /** After the final norm, [T, hidden]. */
  finalNormed: Float64Array;
  /** [T, vocab] */
  logits: Float64Array;
}

/** The LoRA pair of one linear layer, or null. */
export function loraPair(adapter: ReferenceAdapter | null, layer: number, name: LinearName): LoraPair | null {
  const a = adapter?.tensors.get(`layers.${layer}.${linearPath(name)}.lora_A`);
  const b = adapter?.tensors.get(`layers.${layer}.${linearPath(name)}.lora_B`);
  return adapter && a && b ? { a, b, rank: adapter.rank, scale: adapter.scale } : null;
}

/** Runs one sequence at positions 0..T-1. Throws PlanError for an id outside the vocabulary. */
export function referenceForward(
  model: ReferenceModel,
  ids: readonly number[],
  adapter: ReferenceAdapter | null,
): ReferenceTrace {
  const { hiddenSize, vocabSize, rmsNormEps } = model.architecture;
  const T = ids.length;
  let x: Float64Array = new Float64Array(T * hiddenSize);
  ids.forEach((id, t) => {
    if (!(Number.isInteger(id) && id >= 0 && id < vocabSize))
      throw new PlanError(
        'id-outside-vocabulary',
        `running the f64 reference: id ${id} at position ${t}; ids are 0..${vocabSize - 1}. Encode with this ` +
          "model's tokenizer.",
      );
    x.set(model.embedding.subarray(id * hiddenSize, (id + 1) * hiddenSize), t * hiddenSize);
  });
  const layers: LayerTrace[] = [];
  for (let index = 0; index < model.architecture.layers; index++) {
    const { trace, output } = layerForward(model, index, x, adapter);
    layers.push(trace);
    x = output;
  }
  const { y: finalNormed, inverse: finalInverse } = rmsNorm(x, model.finalNorm, rmsNormEps);
  const logits = matmulTransposed(finalNormed, model.head, T, hiddenSize, vocabSize);
  return { ids, layers, final: x, finalInverse, finalNormed, logits };
}

function layerForward(model: ReferenceModel, index: number, input: Float64Array, adapter: ReferenceAdapter | null) {
  const { architecture, inverseFrequencies } = model;
  const { heads, kvHeads, headDim, hiddenSize, rmsNormEps } = architecture;
  const T = input.length / hiddenSize;
  const layer = model.layers[index]!;
  const down = {} as Record<LinearName, Float64Array | null>;
  const linear = (name: LinearName, x: Float64Array): Float64Array => {
    const { outFeatures, inFeatures } = linearShape(architecture, name);
    const result: LinearOutput = linearForward(
      x,
      layer.linear[name],
      loraPair(adapter, index, name),
      T,
      inFeatures,
      outFeatures,
    );
    down[name] = result.down;
    return result.y;
  };
  const plus = (a: Float64Array, b: Float64Array) => a.map((value, i) => value + b[i]!);

  const { y: normed, inverse: inputInverse } = rmsNorm(input, layer.inputNorm, rmsNormEps);
  const qRaw = linear('q_proj', normed);
  const kRaw = linear('k_proj', normed);
  const v = linear('v_proj', normed);
  const qNormed = layer.qNorm ? rmsNorm(qRaw, layer.qNorm, rmsNormEps) : null;
  const kNormed = layer.kNorm ? rmsNorm(kRaw, layer.kNorm, rmsNormEps) : null;
  const q = rotate(qNormed?.y ?? qRaw, heads, headDim, inverseFrequencies, 1);
  const k = rotate(kNormed?.y ?? kRaw, kvHeads, headDim, inverseFrequencies, 1);
  const { y: attended, probabilities } = attention(q, k, v, architecture);
  const middle = plus(input, linear('o_proj', attended));

  const { y: middleNormed, inverse: middleInverse } = rmsNorm(middle, layer.postNorm, rmsNormEps);
  const gate = linear('gate_proj', middleNormed);
  const up = linear('up_proj', middleNormed);
  const activated = swiglu(gate, up);
  const output = plus(middle, linear('down_proj', activated));
  const attentionPart = { qRaw, kRaw, qInverse: qNormed?.inverse ?? null, kInverse: kNormed?.inverse ?? null, q, k, v };
  const trace: LayerTrace = {
    input,
    inputInverse,
    normed,
    ...attentionPart,
    probabilities,
    attended,
    middle,
    middleInverse,
    middleNormed,
    gate,
    up,
    activated,
    down,
  };
  return { trace, output };
}
