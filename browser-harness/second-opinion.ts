// What the page asks of its tfjs worker and what comes back: plain data only.
// Not a qualification: tfjs is another program with other shaders, and may itself be wrong. Invariant: a row names what
// was left out, and its verdict follows from its numbers.

export interface OpinionRow {
  kernel: string;
  /** The tfjs operations that the kernel is compared with. */
  operations: string;
  cases: number;
  values: number;
  /** Worst |kernel - f64 reference| / bound, worst |tfjs - f64 reference| / bound, worst |kernel - tfjs| / bound. */
  kernelWorst: number;
  tfjsWorst: number;
  apart: number;
  /** The case and element with the worst difference, with both values. */
  at: string;
}

export interface Opinion {
  /** tfjs's own name of the adapter and its version. */
  tfjsAdapter: string;
  tfjsVersion: string;
  ourAdapter: string;
  rows: OpinionRow[];
}

/** Both may be off by the bound, in opposite directions. */
export const APART_LIMIT = 2;

/** Whether two programs that each keep the bound could differ so. A NaN never agrees. */
export const agrees = ({ apart }: OpinionRow): boolean => apart <= APART_LIMIT;

export interface OpinionService {
  compare(progress: (done: number, all: number, kernel: string) => void): Promise<Opinion>;
}
