// What is measured for a shape on a kind of device: sizes that a GPU is used at, and ones that a software adapter ends.
// Not measurements. Invariant: every size is in the result, so figures of different settings are not mistaken for another's.

export interface BenchSettings {
  /** Rows of the products that stand for prefill and training. */
  kernelRows: number;
  batches: readonly number[];
  contexts: readonly number[];
  /** Members of the group of the whole step. */
  group: number;
  promptTokens: number;
  newTokens: number;
  rank: number;
  /** Tokens of one run of decoding, over which its time is taken. */
  decodeTokens: number;
  /** The same work before a figure is timed, in milliseconds: an idle GPU's clock is a fraction of its own. */
  warmMs: number;
  /** Longest time for the repeats of one figure. */
  budgetMs: number;
  /** Least repeats of a step, after one that is not counted; 1 where a step takes so long that it stands for itself. */
  repeats: number;
}

/** The settings for a model of some parameters. */
export function settingsFor(parameters: number, software: boolean): BenchSettings {
  if (parameters < 20e6) {
    const size = { kernelRows: 1680, batches: [1, 8, 16], contexts: [256], group: 8, promptTokens: 210, rank: 8 };
    return { ...size, newTokens: 64, decodeTokens: 16, warmMs: 250, budgetMs: 2000, repeats: 3 };
  }
  if (software) {
    const size = { kernelRows: 64, batches: [1, 4], contexts: [64], group: 2, promptTokens: 16, rank: 16 };
    return { ...size, newTokens: 2, decodeTokens: 2, warmMs: 250, budgetMs: 1000, repeats: 1 };
  }
  const size = { kernelRows: 3072, batches: [1, 4, 16, 64], contexts: [512], group: 4, promptTokens: 256, rank: 16 };
  return { ...size, newTokens: 512, decodeTokens: 32, warmMs: 250, budgetMs: 2000, repeats: 3 };
}

/** The settings of the comparison of bits: as many members and layers, and fewer tokens, because no time is taken. */
export function bitsSettings(parameters: number, software: boolean): BenchSettings {
  const settings = settingsFor(parameters, software);
  return { ...settings, newTokens: Math.min(settings.newTokens, 16) };
}

/** Sizes of the comparison of sampled tokens between passes. */
export interface TokenSettings {
  batches: readonly number[];
  /** Shortest (at least 2) and longest prompt. */
  promptTokens: readonly [shortest: number, longest: number];
  /** New tokens of a member: from half of this to one and a half. */
  newTokens: number;
  /** Members of small batches sample more, so that a batch has about as many tokens as this. */
  batchTokens: number;
  rank: number;
}

/** The sizes for a model of some parameters: more than 2,100 tokens in batches of 16 and 64. */
export function tokenSettings(parameters: number, software: boolean): TokenSettings {
  const { rank } = settingsFor(parameters, software);
  const batches = [1, 3, 4, 16, 64];
  if (!software) return { batches, promptTokens: [20, 400], newTokens: 32, batchTokens: 512, rank };
  if (parameters < 20e6) return { batches, promptTokens: [5, 210], newTokens: 32, batchTokens: 320, rank };
  return { batches, promptTokens: [3, 24], newTokens: 20, batchTokens: 60, rank };
}
