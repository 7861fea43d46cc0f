// Philox4x32-10, a counter-based generator: every random number of a run is a pure function of (key, counter).
// Not a stream with hidden state: nothing here remembers anything, so a resumed run needs only its counters.
// Invariant: the same seed, step, group, member and position give the same 32 bits on every machine, in WGSL as here.

/** Four u32 words: a Philox counter or one block of its output. */
export type Words4 = [number, number, number, number];

const MULTIPLIER_0 = 0xd2511f53;
const MULTIPLIER_1 = 0xcd9e8d57;
const WEYL_0 = 0x9e3779b9;
const WEYL_1 = 0xbb67ae85;
const ROUNDS = 10;

/** Second key word of token sampling: 'Samp' in ASCII. */
export const SAMPLE_KEY_TAG = 0x53616d70;
/** Second key word of generators (`streamWords`): 'Strm' in ASCII. */
export const STREAM_KEY_TAG = 0x5374726d;
/** Stream number of the order of training prompts (`epochOrder`): stream = this + epoch. */
export const EPOCH_STREAM_BASE = 0x45000000;

/** Name and constants of the generator, as frozen in a checkpoint's state. A change to any of them is a new version. */
export const RNG_DEFINITION =
  'philox4x32-10; token: counter [position, member, group, step], key [seed, 0x53616d70], ' +
  'word 0 >>> 8 times 2^-24; stream: counter [index, index / 2^32, stream, 0], key [seed, 0x5374726d]';

/** High 32 bits of the product of two u32, by 16-bit halves: each partial product fits in 32 bits, as in the WGSL. */
function multiplyHigh(a: number, b: number): number {
  const aLow = a & 0xffff;
  const aHigh = a >>> 16;
  const bLow = b & 0xffff;
  const bHigh = b >>> 16;
  const cross = aHigh * bLow + ((aLow * bLow) >>> 16); // < 2^32: (2^16-1)^2 + 2^16-1
  const middle = aLow * bHigh + (cross & 0xffff); // < 2^32 for the same reason
  return (aHigh * bHigh + (cross >>> 16) + (middle >>> 16)) >>> 0;
}

/**
 * Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"; Random123 `philox.h`).
 * `counter` and `key` are u32 words; larger or negative integers are taken modulo 2^32.
 */
export function philox4x32(counter: readonly [number, number, number, number], key: readonly [number, number]): Words4 {
  let [c0, c1, c2, c3] = [counter[0] >>> 0, counter[1] >>> 0, counter[2] >>> 0, counter[3] >>> 0];
  let [k0, k1] = [key[0] >>> 0, key[1] >>> 0];
  for (let round = 0; round < ROUNDS; round++) {
    const high0 = multiplyHigh(MULTIPLIER_0, c0);
    const low0 = Math.imul(MULTIPLIER_0, c0) >>> 0;
    const high1 = multiplyHigh(MULTIPLIER_1, c2);
    const low1 = Math.imul(MULTIPLIER_1, c2) >>> 0;
    c0 = (high1 ^ c1 ^ k0) >>> 0;
    c1 = low1;
    c2 = (high0 ^ c3 ^ k1) >>> 0;
    c3 = low0;
    k0 = (k0 + WEYL_0) >>> 0;
    k1 = (k1 + WEYL_1) >>> 0;
  }
  return [c0, c1, c2, c3];
}

/** The upper 24 bits of a u32 as a number in [0, 1): k * 2^-24, exact in f32 and f64. */
export function uniform24(word: number): number {
  return (word >>> 8) * 2 ** -24;
}

/** What names one sampled token: all u32. `position` is the token's index in the episode's ids. */
export interface SampleKey {
  seed: number;
  /** Optimizer step, 1-based; 0 in an evaluation. */
  step: number;
  group: number;
  member: number;
  position: number;
}

/** The uniform number in [0, 1) that picks a token. Twin of the WGSL sampler: word 0 of the block, `uniform24`. */
export function tokenUniform(key: SampleKey): number {
  const block = philox4x32([key.position, key.member, key.group, key.step], [key.seed, SAMPLE_KEY_TAG]);
  return uniform24(block[0]);
}

/**
 * Block `index` (an integer in [0, 2^53)) of stream `stream` (u32) for generators of data: four u32 words.
 * Streams never overlap with each other nor with token sampling (another key word).
 */
export function streamWords(seed: number, stream: number, index: number): Words4 {
  return philox4x32([index >>> 0, Math.floor(index / 2 ** 32), stream, 0], [seed, STREAM_KEY_TAG]);
}

/**
 * An integer in [0, range), 1 <= range <= 2^32, from a source of u32 words: words at or above the largest multiple of
 * `range` are rejected, so that every value is equally likely.
 */
export function uniformBelow(range: number, nextWord: () => number): number {
  const limit = 2 ** 32 - (2 ** 32 % range);
  let word = nextWord();
  while (word >= limit) word = nextWord();
  return word % range;
}

/**
 * A uniformly random order of 0..n-1 (n < 2^32): Fisher-Yates from the end, each swap index by
 * `uniformBelow` from the words of the stream in turn.
 */
export function permutation(seed: number, stream: number, n: number): number[] {
  const order = Array.from({ length: n }, (_, i) => i);
  let consumed = 0;
  let block: Words4 = [0, 0, 0, 0];
  const nextWord = (): number => {
    if (consumed % 4 === 0) block = streamWords(seed, stream, consumed / 4);
    return block[consumed++ % 4]!;
  };
  for (let last = n - 1; last > 0; last--) {
    const other = uniformBelow(last + 1, nextWord);
    const kept = order[last]!;
    order[last] = order[other]!;
    order[other] = kept;
  }
  return order;
}

/** The order in which the `n` training prompts are visited in `epoch` (0-based): its own stream per epoch. */
export function epochOrder(seed: number, epoch: number, n: number): number[] {
  return permutation(seed, EPOCH_STREAM_BASE + epoch, n);
}
