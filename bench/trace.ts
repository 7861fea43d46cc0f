// Where the time on the device goes: every dispatch of a decoding step and of a training step, by kernel.
// Not a share of wall time: gaps between dispatches are not counted. Invariant: each phase has run once before it is
// traced, so that no compilation and no idle clock is in it.
import type { Span } from '../src/gpu/timing.ts';
import { startTiming, summarise } from '../src/gpu/timing.ts';
import { type Bench, generate, inventedContinuation, samplerOf, trainOnce } from './steps.ts';

export interface TraceFigure {
  phase: string;
  kernel: string;
  dispatches: number;
  ms: number;
}

/** Steps of decoding that are traced together. */
export const traced = 4;

/** GPU time by kernel of a decoding step (the mean of some) and of one training step. */
export async function traceFigures(bench: Bench): Promise<{ figures: TraceFigure[]; spans: Span[] }> {
  const { gpu, model, trainer, settings } = bench;
  const { group, promptTokens, newTokens, batches, contexts } = settings;
  const { vocabSize } = model.architecture;
  const batch = batches.includes(group) ? group : batches.at(-1)!;
  const context = Math.max(contexts[0]!, traced + 2);
  const prompt = Array.from({ length: promptTokens }, (_, t) => (t * 7919 + 17) % vocabSize);
  const drawn = inventedContinuation(settings, vocabSize);
  const sampler = samplerOf(bench, { slots: batch, cacheLength: context + traced, rows: batch });
  const decode = `decode step, batch ${batch}, context ${context}`;
  const train = `training step, ${group} x ${promptTokens + newTokens} tokens`;
  const last = Array.from({ length: batch }, (_, slot) => (slot * 31 + 7) % vocabSize);
  try {
    await generate(sampler, last, context - 1, traced, 1);
    const timing = startTiming(gpu);
    try {
      timing.phase(decode);
      await generate(sampler, last, context - 1, traced, 2);
      const decoding = await timing.take();
      if (settings.repeats > 1) {
        timing.phase('warming up');
        await trainOnce(trainer, prompt, drawn, 1);
        await timing.take();
      }
      timing.phase(train);
      await trainOnce(trainer, prompt, drawn, 2);
      const training = await timing.take();
      const mean = (sum: ReturnType<typeof summarise>[number], over: number) => ({
        kernel: sum.kernel,
        dispatches: sum.dispatches / over,
        ms: sum.ms / over,
      });
      const figures = [
        ...summarise(decoding).map((sum) => ({ phase: decode, ...mean(sum, traced) })),
        ...summarise(training).map((sum) => ({ phase: train, ...mean(sum, 1) })),
      ];
      return { figures, spans: [...decoding, ...training] };
    } finally {
      timing.stop();
    }
  } finally {
    sampler.destroy();
  }
}
