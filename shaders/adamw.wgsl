// torch.optim.AdamW, one element a thread, in place. With g = clip * gradient:
//   w *= 1 - lr * decay; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
//   w -= lr (m / (1 - b1^t)) / (sqrt(v) / sqrt(1 - b2^t) + eps)
// The bias corrections come from the host, formed in f64. weights, gradient, m, v: [count] from offset.
struct Params {
  count: u32,
  offset: u32,
  learningRate: f32,
  beta1: f32,
  oneMinusBeta1: f32,
  beta2: f32,
  oneMinusBeta2: f32,
  inverseBias1: f32,
  inverseSqrtBias2: f32,
  eps: f32,
  weightDecay: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> clip: array<f32>;  // [2]: norm, clip coefficient
@group(0) @binding(2) var<storage, read> gradient: array<f32>;
@group(0) @binding(3) var<storage, read_write> weights: array<f32>;
@group(0) @binding(4) var<storage, read_write> m: array<f32>;
@group(0) @binding(5) var<storage, read_write> v: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let index = id.y * groups.x * 64u + id.x;
  if (index >= p.count) {
    return;
  }
  let i = p.offset + index;
  let g = gradient[i] * clip[1];
  let first = fma(p.oneMinusBeta1, g, p.beta1 * m[i]);
  let second = fma(p.oneMinusBeta2 * g, g, p.beta2 * v[i]);
  m[i] = first;
  v[i] = second;
  let denominator = fma(sqrt(second), p.inverseSqrtBias2, p.eps);
  let step = (first * p.inverseBias1) / denominator;
  let kept = weights[i] * fma(-p.learningRate, p.weightDecay, 1.0);
  weights[i] = fma(-p.learningRate, step, kept);
}
