// dL/dlogprob of every trained token: weight[t] * (dl/dlogprob + dl/dlogratio), the WGSL mirror of tokenTerm in
// src/kernels/loss-terms.ts. weight is the row's normaliser, 0 for tokens that are left out; what those hold is not read
// into any sum. One thread a sequence goes through its tokens in order: bit-repeatable.
// KIND: 0 clipped ratio (grpo, bnpo, dapo, dr_grpo), 1 cispo, 2 gspo (ratio of the row's mean), 3 dppo TV, 4 dppo KL.
struct Params {
  sequences: u32,
  epsilonLow: f32,
  epsilonHigh: f32,
  delta: f32,
  cispoMaxRatio: f32,
  dppoDelta: f32,
  beta: f32,
  biasCorrection: u32,
}

override KIND: u32 = 0u;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> starts: array<u32>;  // [sequences + 1]
@group(0) @binding(2) var<storage, read> advantages: array<f32>;  // [sequences]
@group(0) @binding(3) var<storage, read> weights: array<f32>;  // [tokens]
@group(0) @binding(4) var<storage, read> logprobs: array<f32>;  // [tokens]
@group(0) @binding(5) var<storage, read> anchors: array<f32>;  // [tokens]: old, or the sampler's for dppo
@group(0) @binding(6) var<storage, read> references: array<f32>;  // [tokens], read where beta is not 0
@group(0) @binding(7) var<storage, read_write> gradient: array<f32>;  // [tokens]

// exp(x) - 1 without cancellation: seven terms of the series where |x| < 0.25 leave a relative error below 2^-24.
fn expMinusOne(x: f32) -> f32 {
  if (abs(x) < 0.25) {
    var sum = fma(x, 1.0 / 7.0, 1.0);
    sum = fma(x / 6.0, sum, 1.0);
    sum = fma(x / 5.0, sum, 1.0);
    sum = fma(x / 4.0, sum, 1.0);
    sum = fma(x / 3.0, sum, 1.0);
    sum = fma(x / 2.0, sum, 1.0);
    return x * sum;
  }
  return exp(x) - 1.0;
}

fn divergence(logprob: f32, anchor: f32) -> f32 {
  let a = exp(anchor);
  let b = exp(logprob);
  if (KIND == 3u) {
    return abs(a - b);
  }
  // 1e-8 inside both, not a clamp of a and b: 1 - 1e-9 is 1 in f32 and would give 0 * -infinity. 1 - a is formed
  // without cancellation, so a policy that is nearly sure of the token keeps its digits.
  let restA = max(0.0, -expMinusOne(anchor));
  let restB = max(0.0, -expMinusOne(logprob));
  return fma(a, anchor - logprob, restA * log((restA + 1e-8) / (restB + 1e-8)));
}

// The derivative through the log-ratio.
fn throughRatio(logWeight: f32, ratio: f32, advantage: f32, logprob: f32, anchor: f32) -> f32 {
  if (KIND == 1u) {
    return 0.0;
  }
  if (KIND >= 3u) {
    let away = (advantage > 0.0 && logWeight > 0.0) || (advantage < 0.0 && logWeight < 0.0);
    let blocked = away && divergence(logprob, anchor) > p.dppoDelta;
    return select(-(ratio * advantage), 0.0, blocked);
  }
  let open = min(ratio, p.delta);
  let clipped = min(max(ratio, 1.0 - p.epsilonLow), 1.0 + p.epsilonHigh);
  let openGradient = select(0.0, ratio, ratio <= p.delta);
  let clippedGradient = select(0.0, ratio, clipped == ratio);
  var share = 0.5;
  if (open * advantage < clipped * advantage) {
    share = 1.0;
  } else if (open * advantage > clipped * advantage) {
    share = 0.0;
  }
  return -(advantage * fma(share, openGradient, (1.0 - share) * clippedGradient));
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let s = id.x;
  if (s >= p.sequences) {
    return;
  }
  let begin = starts[s];
  let end = starts[s + 1u];
  let advantage = advantages[s];
  var mean = 0.0;
  if (KIND == 2u) {
    var count = 0.0;
    for (var t = begin; t < end; t++) {
      if (weights[t] != 0.0) {
        mean = mean + (logprobs[t] - anchors[t]);
        count = count + 1.0;
      }
    }
    mean = mean / max(count, 1.0);
    // Every token of the row sends the same derivative through the mean, so its share is that derivative, once.
  }
  var shared_ = 0.0;
  var tokens = 0.0;
  for (var t = begin; t < end; t++) {
    if (weights[t] == 0.0) {
      gradient[t] = 0.0;
      continue;
    }
    let logWeight = select(logprobs[t] - anchors[t], mean, KIND == 2u);
    let ratio = exp(logWeight);
    var through = throughRatio(logWeight, ratio, advantage, logprobs[t], anchors[t]);
    var own = 0.0;
    if (KIND == 1u) {
      own = -(min(ratio, p.cispoMaxRatio) * advantage);
    }
    if (p.beta != 0.0) {
      let gap = references[t] - logprobs[t];
      let rise = expMinusOne(gap);
      let corrected = p.biasCorrection != 0u;
      let weight = select(1.0, ratio, corrected);
      own = fma(-(p.beta * weight), rise, own);
      through = through + select(0.0, p.beta * weight * (rise - gap), corrected);
    }
    if (KIND == 2u) {
      shared_ = shared_ + through;
      tokens = tokens + 1.0;
      gradient[t] = own;
    } else {
      gradient[t] = weights[t] * (own + through);
    }
  }
  if (KIND == 2u) {
    let each = shared_ / max(tokens, 1.0);
    for (var t = begin; t < end; t++) {
      if (weights[t] != 0.0) {
        gradient[t] = weights[t] * (gradient[t] + each);
      }
    }
  }
}
