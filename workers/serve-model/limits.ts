// What the endpoint allows, and the count of requests that are open.
// Not the engine's queue: this one refuses, so that waiting stays bounded. Invariant: every admitted request is counted
// until it is over, whatever its outcome.
import { refused } from '../../src/serve/api-error.ts';

export interface Limits {
  /** Sampled side by side. */
  maxConcurrent: number;
  /** Beyond those: requests that may wait. */
  maxWaiting: number;
  /** Most tokens of one answer. */
  maxTokens: number;
  /** Of a request's body. */
  maxBodyBytes: number;
  /** From the arrival of a request to the end of its answer, waiting included; milliseconds. */
  deadlineMs: number;
}

export interface Gate {
  /** Counts a request in; the result counts it out. Throws ApiError 429 where there is no place. */
  enter(): () => void;
  open(): number;
}

export function createGate({ maxConcurrent, maxWaiting }: Limits): Gate {
  let open = 0;
  return {
    enter() {
      if (open >= maxConcurrent + maxWaiting) {
        throw refused(429, 'rate_limit_exceeded', {
          doing: 'admitting the request',
          found: `${open} open ones`,
          wanted: `at most ${maxConcurrent} running and ${maxWaiting} waiting`,
          remedy: 'Try again later, or start the server with a larger --max-concurrent.',
          type: 'rate_limit_error',
        });
      }
      open += 1;
      let left = false;
      return () => {
        if (!left) open -= 1;
        left = true;
      };
    },
    open: () => open,
  };
}
