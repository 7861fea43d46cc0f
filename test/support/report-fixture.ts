// A plausible report input for tests, made by a seeded generator: it looks like a run and is none.
import type { ReportInput, SampleRollout } from '../../src/report/schema.ts';
import { agentEvaluation, uniform } from './evaluation-fixture.ts';

const hash = (digit: string) => digit.repeat(64);

function rollout(phase: 'before' | 'after', strict: boolean): SampleRollout {
  const call = (name: string, args: string) =>
    `<tool_call>\n{"name": "${name}", "arguments": ${args}}\n</tool_call><|im_end|>`;
  const split = (text: string, source: SampleRollout['tokens'][number]['source']) =>
    (text.match(/\s*\S+|\s+/g) ?? []).map((piece) => ({ text: piece, source }));
  const observe = (text: string) => [
    ...split('\n<|im_start|>user\n<tool_response>\n', 'template'),
    ...split(text, 'observation'),
    ...split('\n</tool_response><|im_end|>\n<|im_start|>assistant\n', 'template'),
  ];
  return {
    phase,
    taskId: 'final-017',
    seed: 42,
    strict,
    reward: strict ? 1 : 0.4,
    tokens: [
      ...split(
        '<|im_start|>system\nDu hast zwei Werkzeuge: nachschlagen und rechner.<|im_end|>\n<|im_start|>user\n' +
          'Wie viel ergibt der Wert von Äpfel mal der Wert von Birnen? Schließe mit "Antwort: <Zahl>".<|im_end|>\n' +
          '<|im_start|>assistant\n',
        'prompt',
      ),
      ...split(call('nachschlagen', '{"schluessel": "Äpfel"}'), 'sampled'),
      ...observe('12'),
      ...split(
        strict ? call('nachschlagen', '{"schluessel": "Birnen"}') : call('nachschlagen', '{"schluessel": "Birne"}'),
        'sampled',
      ),
      ...observe(strict ? '7' : 'Fehler: unbekannter Schlüssel "Birne"'),
      ...(strict ? [...split(call('rechner', '{"ausdruck": "12*7"}'), 'sampled'), ...observe('84')] : []),
      ...split(strict ? 'Antwort: 84<|im_end|>' : 'Das Produkt ist 96.\nAntwort: 96<|im_end|>', 'sampled'),
    ],
  };
}

/** A run of `steps` steps with evaluations of `items` items at two seeds. */
export function reportInput(steps = 60, items = 64): ReportInput {
  const noise = (stream: number, i: number) => uniform(7, stream, i) - 0.5;
  return {
    title: 'German lookup and calculator, embedded policy',
    task: {
      description:
        'A policy with two tools looks up two values, multiplies, adds or subtracts them with the calculator, and answers in German.',
      facts: ['More than 80 operand pairs: new ids and templates make no new tasks.'],
    },
    config: {
      model: 'fixtures/policy',
      loss: 'grpo',
      beta: 0.1,
      groupSize: 8,
      steps,
      lora: { rank: 16, alpha: 32, targets: 'all-linear' },
      optimizer: { learningRate: 5e-4, schedule: 'linear', maxGradNorm: 1 },
    },
    device: {
      name: 'llvmpipe (LLVM 19.1.7, 256 bits)',
      software: true,
      family: 'portable',
      facts: [
        ['driver', 'Mesa 25.0.7'],
        ['Dawn', 'webgpu 0.6.2'],
      ],
    },
    trainingSeed: 42,
    steps: Array.from({ length: steps }, (_, i) => {
      const learnt = 1 / (1 + Math.exp(-6 * (i / steps - 0.4)));
      const strict = Math.min(1, Math.max(0, Math.round(8 * (0.35 + 0.5 * learnt + 0.5 * noise(1, i))) / 8));
      const rollout = 1.6 + 0.3 * noise(2, i);
      const train = 0.9 + 0.1 * noise(3, i);
      return {
        step: i + 1,
        metrics: {
          reward: 0.3 + 0.7 * strict - 0.1 * uniform(7, 4, i) * (1 - strict),
          reward_std: 0.2 + 0.2 * noise(5, i),
          'rewards/strict/mean': strict,
          kl: 0.03 * (i / steps) ** 1.3 * (1 + 0.6 * noise(6, i)),
          entropy: 0.22 - 0.12 * learnt + 0.04 * noise(8, i),
          grad_norm: 0.8 - 0.3 * learnt + 0.5 * noise(9, i),
          learning_rate: 5e-4 * (1 - i / steps),
          'clip_ratio/region_mean': 0,
          'completions/mean_length': 74 - 8 * learnt + 8 * noise(10, i),
          'completions/clipped_ratio': uniform(7, 11, i) < 0.2 ? 0.125 : 0,
          'tools/call_frequency': 2.4 + 0.5 * learnt + 0.3 * noise(12, i),
          'tools/failure_frequency': Math.max(0, 0.16 * (1 - learnt) + 0.08 * noise(13, i)),
          frac_reward_zero_std: strict === 1 || strict === 0 ? 1 : 0,
          step_time: rollout + train + 0.35,
          'time/rollout': rollout,
          'time/audit': 0.25,
          'time/train': train,
        },
        journal: { index: 3 + i, hash: hash('abcdef0123456789'[i % 16]!) },
      };
    }),
    before: agentEvaluation({ items, seeds: [42, 1729], rate: 0.42, stream: 10, adapterSha256: null }),
    after: agentEvaluation({ items, seeds: [42, 1729], rate: 0.78, stream: 30, adapterSha256: hash('c') }),
    bootstrapSeed: 42,
    audit: {
      rollouts: 8 * steps,
      sampledTokens: 8 * 70 * steps,
      findings: 0,
      points: [
        'tool stream equals the sampled calls',
        'conditioning context is the recorded prefix',
        'mask is 1 on sampled tokens alone',
        'lengths agree',
        'log-probs are recomputed bit for bit',
      ].map((name) => ({ name, findings: 0 })),
    },
    checkpoints: [
      {
        step: Math.floor(steps / 2),
        path: 'checkpoints/step-000030',
        adapterSha256: hash('b'),
        journal: { index: 33, hash: hash('9') },
      },
      { step: steps, path: 'checkpoints/step-000060', adapterSha256: hash('c') },
    ],
    rollouts: [rollout('before', false), rollout('after', true)],
    seconds: 212.4,
  };
}
