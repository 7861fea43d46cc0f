// The whole model in f64, backward: from logit gradients to the gradients of the LoRA matrices.
// Not full autograd: embedding, norms, base matrices and head are frozen and get no gradient.
// Invariant: gradients are added to the map, so several ragged sequences accumulate in call order.
import { type LinearName, linearPath, linearShape } from '../tensor-names.ts';
import { attentionBackward } from './attention.ts';
import { type LayerTrace, loraPair, type ReferenceTrace } from './forward.ts';
import { addInputGradient, linearBackward } from './linear.ts';
import { rmsNormBackward, rotate, swigluBackward } from './pointwise.ts';
import type { ReferenceAdapter, ReferenceModel } from './weights.ts';

/** Adds the adapter gradients of one sequence. dLogits: [T, vocab]; `gradients` as from `zeroGradients`. */
export function referenceBackward(
  model: ReferenceModel,
  trace: ReferenceTrace,
  adapter: ReferenceAdapter,
  dLogits: Float64Array,
  gradients: Map<string, Float64Array>,
): void {
  const { hiddenSize, vocabSize, layers } = model.architecture;
  const T = trace.ids.length;
  const dNormed = new Float64Array(T * hiddenSize);
  addInputGradient(dNormed, dLogits, model.head, T, hiddenSize, vocabSize);
  let dx: Float64Array = rmsNormBackward(dNormed, trace.final, model.finalNorm, trace.finalInverse);
  for (let index = layers - 1; index >= 0; index--)
    dx = layerBackward(model, index, trace.layers[index]!, adapter, dx, gradients);
}

function layerBackward(
  model: ReferenceModel,
  index: number,
  trace: LayerTrace,
  adapter: ReferenceAdapter,
  dOutput: Float64Array,
  gradients: Map<string, Float64Array>,
): Float64Array {
  const { architecture, inverseFrequencies } = model;
  const { heads, kvHeads, headDim, hiddenSize } = architecture;
  const T = trace.input.length / hiddenSize;
  const layer = model.layers[index]!;
  const back = (name: LinearName, dx: Float64Array, dy: Float64Array, x: Float64Array) => {
    const { outFeatures, inFeatures } = linearShape(architecture, name);
    const a = gradients.get(`layers.${index}.${linearPath(name)}.lora_A`);
    const b = gradients.get(`layers.${index}.${linearPath(name)}.lora_B`);
    const gradient = a && b ? { a, b } : null;
    const forward = { x, down: trace.down[name] };
    linearBackward(
      dx,
      dy,
      forward,
      layer.linear[name],
      loraPair(adapter, index, name),
      gradient,
      T,
      inFeatures,
      outFeatures,
    );
  };
  const addTo = (target: Float64Array, source: Float64Array) => {
    for (let i = 0; i < target.length; i++) target[i]! += source[i]!;
  };

  const dActivated = new Float64Array(trace.activated.length);
  back('down_proj', dActivated, dOutput, trace.activated);
  const { dGate, dUp } = swigluBackward(dActivated, trace.gate, trace.up);
  const dMiddleNormed = new Float64Array(trace.middle.length);
  back('gate_proj', dMiddleNormed, dGate, trace.middleNormed);
  back('up_proj', dMiddleNormed, dUp, trace.middleNormed);
  const dMiddle = rmsNormBackward(dMiddleNormed, trace.middle, layer.postNorm, trace.middleInverse);
  addTo(dMiddle, dOutput);

  const dAttended = new Float64Array(trace.attended.length);
  back('o_proj', dAttended, dMiddle, trace.attended);
  const { dq, dk, dv } = attentionBackward(dAttended, trace.q, trace.k, trace.v, trace.probabilities, architecture);
  let dqRaw: Float64Array = rotate(dq, heads, headDim, inverseFrequencies, -1);
  let dkRaw: Float64Array = rotate(dk, kvHeads, headDim, inverseFrequencies, -1);
  if (layer.qNorm && trace.qInverse) dqRaw = rmsNormBackward(dqRaw, trace.qRaw, layer.qNorm, trace.qInverse);
  if (layer.kNorm && trace.kInverse) dkRaw = rmsNormBackward(dkRaw, trace.kRaw, layer.kNorm, trace.kInverse);
  const dNormed = new Float64Array(trace.input.length);
  back('q_proj', dNormed, dqRaw, trace.normed);
  back('k_proj', dNormed, dkRaw, trace.normed);
  back('v_proj', dNormed, dv, trace.normed);
  const dInput = rmsNormBackward(dNormed, trace.input, layer.inputNorm, trace.inputInverse);
  addTo(dInput, dMiddle);
  return dInput;
}
