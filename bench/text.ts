// The bench's results as text for a terminal. Not a report: the JSON is the record.
import { factLines, textTable } from '../cli/table.ts';
import { type BitsResult, sameBits } from './bits.ts';
import { sameTokens, type TokenComparison } from './compare-tokens.ts';
import type { PeerResults } from './peers/run.ts';
import type { BenchResult } from './run.ts';

const n = (value: number) => (Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3));
const percent = (share: number) => `${(share * 100).toFixed(0)} %`;
const onOff = (value: boolean) => (value ? 'on' : 'off');

function heading(result: BenchResult): string {
  const { device, limits, model } = result;
  const facts: [string, string][] = [
    ['device', `${device.description || device.name} (${device.software ? 'software' : 'GPU'}), ${device.dawn}`],
    [
      'family',
      `${result.family} (${result.familyReason}), form ${result.variant}, robustness ${onOff(result.robustness)}`,
    ],
    ['model', `${model.label}, ${n(model.parameters / 1e6)} M parameters, loaded in ${n(model.loadSeconds)} s`],
    ['copy bandwidth', `${n(limits.copyGBs)} GB/s`],
    ['best matmul', `${n(limits.matmulGflops)} GFLOP/s (${limits.matmulShape})`],
  ];
  const { matrices } = model;
  if (matrices) {
    const { inexact, elements, portable } = matrices;
    facts.push([
      'matrices',
      `${matrices.matrices} of the family, ${portable.length} portable; ${inexact} of ${elements} weights not exact in f16`,
    ]);
  }
  return factLines(facts);
}

function productTable({ kernels }: BenchResult): string {
  return textTable(
    ['product', 'rows x columns x k', 'kernel ms', 'layer ms', 'GFLOP/s', 'of limit', 'weights GB/s', 'of copy'],
    kernels.matmul.map((f) => [
      f.layer,
      f.shape,
      n(f.ms),
      n(f.layerMs),
      n(f.gflops),
      percent(f.ofLimit),
      n(f.weightGBs),
      percent(f.ofCopy),
    ]),
    [2, 3, 4, 5, 6, 7],
  );
}

function decodeTables({ decode, growth }: BenchResult): string[] {
  if (decode.length === 0) return [];
  const steps = textTable(
    ['decode: batch', 'context', 'ms', 'best', 'tokens/s', 'MB read', 'of copy'],
    decode.map((f) => [
      String(f.batch),
      String(f.context),
      n(f.ms),
      n(f.bestMs),
      n(f.tokensPerSecond),
      n(f.bytes / 1e6),
      percent(f.ofCopy),
    ]),
    [0, 1, 2, 3, 4, 5, 6],
  );
  if (growth.length === 0) return [steps];
  const slopes = textTable(
    ['growth: batch', 'ms per 1,000 tokens of context', 'expected of the cache', 'ms at context 0'],
    growth.map((f) => [String(f.batch), n(f.msPerThousand), n(f.expectedMsPerThousand), n(f.msAtZero)]),
    [0, 1, 2, 3],
  );
  return [steps, slopes];
}

function stepFacts(result: BenchResult): string[] {
  const { prefill, train, step, start, memory, settings } = result;
  const facts: [string, string][] = [];
  if (prefill)
    facts.push(['prefill', `${prefill.tokens} tokens: ${n(prefill.ms)} ms, ${n(prefill.tokensPerSecond)} tokens/s`]);
  if (train) {
    const shape = `${train.sequences} x ${train.tokens / train.sequences} tokens`;
    facts.push([
      'training step',
      `${shape}: ${n(train.seconds)} s, ${n(train.tokensPerSecond)} tokens/s (policy, reference, backward, AdamW)`,
    ]);
  }
  if (step) {
    facts.push([
      'whole GRPO step',
      `group of ${step.group}, ${step.promptTokens} + ${step.newTokens} tokens: ${n(step.seconds)} s = ${n(step.generateSeconds)} sampling + ${n(step.trainSeconds)} training; ${n(step.tokensPerSecond)} sampled tokens/s`,
    ]);
    facts.push(['', `${step.logprobMismatches} log-probs differ between sampler and trainer`]);
  }
  if (memory)
    facts.push(['GPU memory', `${n(memory.peakBytes / 1e9)} GB in the whole step, LoRA rank ${settings.rank}`]);
  if (start) {
    const marks = start.marks.map(({ name, seconds }) => `${name} ${n(seconds)}`).join(', ');
    facts.push(['start to first token', `${n(start.firstTokenSeconds)} s, weights in ${n(start.loadSeconds)} s`]);
    facts.push(['', `seconds from the start: ${marks}; ${start.pipelines} pipelines`]);
  }
  return facts.length > 0 ? [factLines(facts)] : [];
}

function partsTables({ kernels }: BenchResult): string[] {
  if (!kernels.parts) return [];
  const { batch, context, stepMs, parts } = kernels.parts;
  const rows = parts.map((f) => [f.kernel, String(f.dispatches), n(f.usInStep), n(f.usEach), n(f.usAlone)]);
  const table = textTable(['kernel', 'dispatches', 'us of the step', 'us each', 'us alone'], rows, [1, 2, 3, 4]);
  return [
    `Decode step, batch ${batch}, context ${context}: ${n(stepMs)} ms, and what it is shorter without each kernel\n${table}`,
  ];
}

function traceTables({ kernels }: BenchResult): string[] {
  return [...new Set(kernels.trace.map((f) => f.phase))].map((phase) => {
    const own = kernels.trace.filter((f) => f.phase === phase);
    const total = own.reduce((sum, { ms }) => sum + ms, 0);
    const rows = own.slice(0, 12).map((f) => [f.kernel, String(f.dispatches), n(f.ms), percent(f.ms / total)]);
    return `GPU time, ${phase}: ${n(total)} ms\n${textTable(['kernel', 'dispatches', 'ms', 'share'], rows, [1, 2, 3])}`;
  });
}

function peerTables(peers: PeerResults | null): string[] {
  return Object.entries(peers?.peers ?? {}).map(([name, figures]) => {
    const rows = Object.entries(figures).map(([what, f]) => [
      what,
      `${n(f.ours)} ${f.unit}`,
      `${n(f.peer)} ${f.unit}`,
      `${n(f.ratio)} x`,
    ]);
    return `peer ${name}: ${peers?.notes[name] ?? ''}\n${textTable(['figure', 'ours', 'peer', 'ratio'], rows, [1, 2, 3])}`;
  });
}

/** Everything that was measured, then what was skipped and why. */
export function benchText(result: BenchResult, peers: PeerResults | null): string {
  const skipped = [...result.skipped, ...(peers?.skipped ?? [])].map(
    ({ what, reason }) => `skipped ${what}: ${reason}`,
  );
  return [
    heading(result),
    productTable(result),
    ...decodeTables(result),
    ...stepFacts(result),
    ...partsTables(result),
    ...traceTables(result),
    ...peerTables(peers),
    ...(skipped.length > 0 ? [skipped.join('\n')] : []),
  ].join('\n\n');
}

function tokenTable(comparison: readonly TokenComparison[]): string {
  const header = ['batch', 'members', 'tokens', 'at full batch', 'reference', 'trainer', 'earlier batch'];
  const rows = comparison.map(({ batch, members, tokens, fullTokens, reference, trainer, earlier }) => [
    ...[batch, members, tokens, fullTokens].map(String),
    ...[reference, trainer].map(({ logprobs, entropies }) => `${logprobs}, ${entropies}`),
    `${earlier.differ} of ${earlier.tokens}`,
  ]);
  return textTable(header, rows, [0, 1, 2, 3, 4, 5, 6]);
}

/** What differs between passes by batch, the hashes of every run, and whether all is the same. */
export function bitsText({ steps, family, shape, runs, comparison }: BitsResult): string {
  const tokens = comparison.reduce((sum, batch) => sum + batch.tokens, 0);
  const passes = sameTokens(comparison)
    ? `the same log-probs and entropies of ${tokens} sampled tokens in sampler, reference pass and trainer's pass`
    : `DIFFERENT: of ${tokens} sampled tokens, not all have the same log-prob and entropy in every pass`;
  const rows = runs.map((run) => [
    onOff(run.robustness),
    onOff(run.tracing),
    ...[run.tokens, run.adapter, run.moments].map((hash) => hash.slice(0, 16)),
    String(run.logprobMismatches),
  ]);
  const header = ['robustness', 'tracing', 'tokens', 'adapter', 'moments', 'log-probs that differ'];
  const verdict = sameBits(runs)
    ? `the same bytes after ${steps} steps in all ${runs.length} runs`
    : `DIFFERENT: ${steps} steps did not end in the same bytes`;
  return [
    `${shape}, family ${family}: ${passes} (by batch: log-probs, entropies that differ)\n${tokenTable(comparison)}`,
    `${shape}, family ${family}: ${verdict} (SHA-256, first 16 digits)\n${textTable(header, rows, [5])}`,
  ].join('\n\n');
}
