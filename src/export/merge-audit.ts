// What a merge into 16-bit weights lost: per tensor and in all, how much of the LoRA update survived the rounding.
// Not a comparison of answers; that needs the forward pass. Invariant: sums are in f64, in element order, so the same
// merge gives the same report.

/** Figures of one merged tensor, or of all of them together. */
export interface MergeFigures {
  elements: number;
  /** Share of elements whose value changed, 0 to 1. */
  changedShare: number;
  /** Largest |update| among the elements that did not change; 0 if none was lost. */
  largestLostUpdate: number;
  /** || (merged - base) - update || / || update ||, Euclidean; 0 if the update is zero. */
  relativeDeltaError: number;
}

/** What the rounding changed in what the model says, on a fixed probe set. */
export interface MergeProbe {
  /** Where the probe ran. */
  device: string;
  /** `math-dev`: German word problems through the chat template; `ids`: seeded ids, for a model without text. */
  set: 'math-dev' | 'ids';
  /** Prompts, each with its greedy answer under the adapted model. */
  prompts: number;
  /** Prompts whose greedy answer under the merged model is another one. */
  answersChanged: number;
  /** Tokens of the adapted model's answers, on which the log-probs below are compared. */
  tokens: number;
  /** Mean and largest |log-prob merged - log-prob adapted| of these tokens, nats at temperature 1. */
  meanLogprobChange: number;
  maxLogprobChange: number;
  /** Mean |log-prob adapted - log-prob base| of the same tokens: what the adapter itself does. */
  meanAdapterEffect: number;
}

export interface MergeAudit {
  formula: string;
  scale: number;
  rank: number;
  baseModel: string;
  /** Above this relative error of the whole update the merged model is not the adapted model. */
  threshold: number;
  verdict: 'equivalent' | 'not equivalent';
  totals: MergeFigures;
  /** Adapted tensors in file order; all others are copied bit for bit. */
  tensors: Record<string, MergeFigures & { dtype: string }>;
}

/** Running sums over elements. */
export interface MergeTally {
  elements: number;
  changed: number;
  largestLostUpdate: number;
  errorSquares: number;
  updateSquares: number;
}

export function newTally(): MergeTally {
  return { elements: 0, changed: 0, largestLostUpdate: 0, errorSquares: 0, updateSquares: 0 };
}

/** Counts one element: its value before and after, and the update that was wanted. */
export function tallyElement(tally: MergeTally, before: number, after: number, update: number): void {
  tally.elements += 1;
  if (after !== before) tally.changed += 1;
  else tally.largestLostUpdate = Math.max(tally.largestLostUpdate, Math.abs(update));
  const error = after - before - update;
  tally.errorSquares += error * error;
  tally.updateSquares += update * update;
}

/** Adds the sums of `part` to `whole`. */
export function addTally(whole: MergeTally, part: MergeTally): void {
  whole.elements += part.elements;
  whole.changed += part.changed;
  whole.largestLostUpdate = Math.max(whole.largestLostUpdate, part.largestLostUpdate);
  whole.errorSquares += part.errorSquares;
  whole.updateSquares += part.updateSquares;
}

export function figuresOf(tally: MergeTally): MergeFigures {
  const { elements, changed, largestLostUpdate, errorSquares, updateSquares } = tally;
  return {
    elements,
    changedShare: elements === 0 ? 0 : changed / elements,
    largestLostUpdate,
    relativeDeltaError: updateSquares === 0 ? 0 : Math.sqrt(errorSquares / updateSquares),
  };
}
