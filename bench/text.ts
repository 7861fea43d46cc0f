// The bench's result as text for a terminal. Not a report: the JSON is the record.
import { factLines, textTable } from '../cli/table.ts';
import type { PeerResults } from './peers/run.ts';
import type { BenchResult } from './run.ts';

const n = (value: number) => (value >= 100 ? value.toFixed(0) : value.toPrecision(3));
const percent = (share: number) => `${(share * 100).toFixed(0)} %`;

/** Everything that was measured, then what was skipped and why. */
export function benchText(result: BenchResult, peers: PeerResults | null): string {
  const { device, limits, kernels, decode, prefill, train, step, model, settings } = result;
  const parts = [
    factLines([
      ['device', `${device.description || device.name} (${device.software ? 'software' : 'GPU'}), ${device.dawn}`],
      ['family', `${result.family}, form ${result.variant}`],
      ['model', `${model.label}, ${n(model.parameters / 1e6)} M parameters, loaded in ${n(model.loadSeconds)} s`],
      ['copy bandwidth', `${n(limits.copyGBs)} GB/s`],
      ['best matmul', `${n(limits.matmulGflops)} GFLOP/s (${limits.matmulShape})`],
    ]),
    textTable(
      ['product', 'rows x columns x k', 'ms', 'GFLOP/s', 'of limit', 'weights GB/s', 'of copy'],
      kernels.matmul.map((f) => [
        f.layer,
        f.shape,
        n(f.ms),
        n(f.gflops),
        percent(f.ofLimit),
        n(f.weightGBs),
        percent(f.ofCopy),
      ]),
      [2, 3, 4, 5, 6],
    ),
  ];
  if (decode.length > 0) {
    parts.push(
      textTable(
        ['decode: batch', 'context', 'ms', 'best', 'tokens/s', 'weights GB/s', 'of copy'],
        decode.map((f) => [
          String(f.batch),
          String(f.context),
          n(f.ms),
          n(f.bestMs),
          n(f.tokensPerSecond),
          n(f.weightGBs),
          percent(f.ofCopy),
        ]),
        [0, 1, 2, 3, 4, 5, 6],
      ),
    );
  }
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
    facts.push([
      'GPU memory',
      `${n(result.memoryBytes / 1e9)} GB allocated while training, LoRA rank ${settings.rank}`,
    ]);
  }
  if (facts.length > 0) parts.push(factLines(facts));
  for (const phase of new Set(kernels.trace.map((f) => f.phase))) {
    const own = kernels.trace.filter((f) => f.phase === phase);
    const total = own.reduce((sum, { ms }) => sum + ms, 0);
    const rows = own.slice(0, 10).map((f) => [f.kernel, String(f.dispatches), n(f.ms), percent(f.ms / total)]);
    parts.push(
      `GPU time, ${phase}: ${n(total)} ms\n${textTable(['kernel', 'dispatches', 'ms', 'share'], rows, [1, 2, 3])}`,
    );
  }
  for (const [name, figures] of Object.entries(peers?.peers ?? {})) {
    const rows = Object.entries(figures).map(([what, f]) => [
      what,
      `${n(f.ours)} ${f.unit}`,
      `${n(f.peer)} ${f.unit}`,
      `${n(f.ratio)} x`,
    ]);
    parts.push(
      `peer ${name}: ${peers?.notes[name] ?? ''}\n${textTable(['figure', 'ours', 'peer', 'ratio'], rows, [1, 2, 3])}`,
    );
  }
  const skipped = [...result.skipped, ...(peers?.skipped ?? [])];
  if (skipped.length > 0) parts.push(skipped.map(({ what, reason }) => `skipped ${what}: ${reason}`).join('\n'));
  return parts.join('\n\n');
}
