// Evaluation files for tests, made by a seeded generator. Not measurements of any model.
import { buildEvaluation, type EvaluationFile, type EvaluationItem } from '../../src/evaluation/results.ts';
import { streamWords } from '../../src/lib/rng.ts';

/** A uniform number in [0, 1) for draw `index` of `stream`. */
export function uniform(seed: number, stream: number, index: number): number {
  return streamWords(seed, stream, index)[0] / 2 ** 32;
}

/** An agent evaluation over `items` x `seeds` whose strict success rate is about `rate`. */
export function agentEvaluation(options: {
  items: number;
  seeds: number[];
  rate: number;
  stream: number;
  adapterSha256: string | null;
}): EvaluationFile {
  const items: EvaluationItem[] = options.seeds.flatMap((seed) =>
    Array.from({ length: options.items }, (_, i): EvaluationItem => {
      // The difficulty of an item is shared by all arms and seeds, as in a real paired evaluation.
      const difficulty = uniform(1, 900, i);
      const draw = 0.5 * difficulty + 0.5 * uniform(seed, options.stream, i);
      const strict = draw < 0.5 - 0.55 * (0.5 - options.rate);
      const capped = !strict && uniform(seed, options.stream + 1, i) < 0.1;
      const silent = !strict && uniform(seed, options.stream + 2, i) < 0.2;
      const errors = !strict && uniform(seed, options.stream + 3, i) < 0.3 ? 1 : 0;
      return {
        id: `final-${String(i).padStart(3, '0')}`,
        seed,
        outcome: strict ? 'correct' : capped ? 'truncated' : silent ? 'no_answer' : 'wrong',
        strict,
        reward: strict ? 1 : 0.2 + 0.1 * Math.floor(5 * uniform(seed, options.stream + 4, i)),
        toolErrors: errors,
        invalidDispatches: 0,
        answer: silent || capped ? null : String(10 + i),
        capped,
        sampledTokens: 60 + Math.floor(40 * uniform(seed, options.stream + 5, i)),
        discardedTokens: 0,
        seconds: 0.25,
        finalText: `Antwort: ${10 + i}`,
      };
    }),
  );
  return buildEvaluation({
    suite: 'agent',
    dataSha256: null,
    modelTreeSha256: 'a'.repeat(64),
    adapterSha256: options.adapterSha256,
    device: 'llvmpipe (LLVM 19.1.7, 256 bits)',
    family: 'portable',
    sampling: {
      temperature: 0.6,
      topP: 0.95,
      topK: 20,
      minP: 0,
      maxTokens: 256,
      maxToolRounds: 3,
      thinking: true,
      thinkingBudget: null,
    },
    seeds: options.seeds,
    wallSeconds: items.length * 0.1,
    items,
  });
}
