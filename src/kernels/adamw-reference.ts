// f64 reference of the AdamW update and the exact f32 scalars that the GPU kernel takes.
// Not an optimizer: it holds no state and no schedule. The formula is torch.optim.AdamW's (decoupled decay).
// Invariant: bias corrections are formed in f64 on the host and rounded once, never by f32 powers on the device.
import { KernelError } from '../lib/errors.ts';

export interface AdamwOptions {
  beta1: number;
  beta2: number;
  eps: number;
  weightDecay: number;
}

/** TRL's and torch's defaults, with the decay off. */
export const adamwDefaults: AdamwOptions = { beta1: 0.9, beta2: 0.999, eps: 1e-8, weightDecay: 0 };

/** The kernel's uniforms; every value is an f32 number. The clip coefficient is not among them: the GPU computes it. */
export interface AdamwScalars {
  learningRate: number;
  beta1: number;
  /** 1 - beta1 and 1 - beta2, formed in f64: f32(1) - f32(0.999) would lose five digits. */
  oneMinusBeta1: number;
  beta2: number;
  oneMinusBeta2: number;
  /** 1 / (1 - beta1^t) */
  inverseBias1: number;
  /** 1 / sqrt(1 - beta2^t) */
  inverseSqrtBias2: number;
  eps: number;
  weightDecay: number;
}

/**
 * Scalars of update `step` (1-based) at `learningRate` (f64, rounded here once). Throws KernelError for a step below 1
 * or options outside their range.
 */
export function adamwScalars(step: number, learningRate: number, options: AdamwOptions = adamwDefaults): AdamwScalars {
  const { beta1, beta2, eps, weightDecay } = options;
  const valid =
    Number.isInteger(step) &&
    step >= 1 &&
    learningRate >= 0 &&
    beta1 >= 0 &&
    beta1 < 1 &&
    beta2 >= 0 &&
    beta2 < 1 &&
    eps > 0 &&
    weightDecay >= 0;
  if (!valid)
    throw new KernelError(
      'adamw-scalars',
      `preparing AdamW: found step ${step}, learning rate ${learningRate}, betas ${beta1} and ${beta2}, eps ${eps}, ` +
        `weight decay ${weightDecay}; wanted step >= 1, 0 <= beta < 1, eps > 0 and the others >= 0. Correct the plan.`,
    );
  return {
    learningRate: Math.fround(learningRate),
    beta1: Math.fround(beta1),
    oneMinusBeta1: Math.fround(1 - beta1),
    beta2: Math.fround(beta2),
    oneMinusBeta2: Math.fround(1 - beta2),
    inverseBias1: Math.fround(1 / (1 - beta1 ** step)),
    inverseSqrtBias2: Math.fround(1 / Math.sqrt(1 - beta2 ** step)),
    eps: Math.fround(eps),
    weightDecay: Math.fround(weightDecay),
  };
}

/** min(1, maxNorm / (norm + 1e-6)), as torch's clip_grad_norm_; a maxNorm of 0 switches clipping off. */
export function clipCoefficient(norm: number, maxNorm: number): number {
  return maxNorm === 0 ? 1 : Math.min(1, maxNorm / (norm + 1e-6));
}

/**
 * One update in place, all arrays of one length: with g = clip * gradient,
 * w *= 1 - lr * decay; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
 * w -= lr * (m * inverseBias1) / (sqrt(v) * inverseSqrtBias2 + eps).
 */
export function adamwReference(
  weights: Float64Array,
  m: Float64Array,
  v: Float64Array,
  gradient: ArrayLike<number>,
  clip: number,
  scalars: AdamwScalars,
): void {
  const { learningRate, beta1, oneMinusBeta1, beta2, oneMinusBeta2, inverseBias1, inverseSqrtBias2, eps } = scalars;
  const keep = 1 - learningRate * scalars.weightDecay;
  for (let i = 0; i < weights.length; i++) {
    const g = clip * gradient[i]!;
    m[i] = beta1 * m[i]! + oneMinusBeta1 * g;
    v[i] = beta2 * v[i]! + oneMinusBeta2 * g * g;
    const step = (learningRate * (m[i]! * inverseBias1)) / (Math.sqrt(v[i]!) * inverseSqrtBias2 + eps);
    weights[i] = weights[i]! * keep - step;
  }
}
