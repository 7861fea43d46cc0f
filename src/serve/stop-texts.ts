// Stop texts of a request: where the sampled text first holds one of them, the turn ends.
// Not the end of a turn as the chat template has it: that is a token. Invariant: where it ends depends on the sampled
// ids alone, not on how many come at once; what released ids show is no part of a stop text.
import { createStreamDecoder } from '../model/stream-decoder.ts';
import type { Text } from '../model/text.ts';

export interface StopWatch {
  /** Takes the next id. `released`: how many ids from the start on are certain; `stopped`: the text holds a stop. */
  push(id: number): { released: number; stopped: boolean };
}

/** `stops` are not empty. */
export function createStopWatch(text: Text, stops: readonly string[]): StopWatch {
  const decoder = createStreamDecoder(text, { hiddenIds: [...text.stopIds, ...text.endIds] });
  const longest = Math.max(...stops.map((stop) => stop.length));
  // ends[i] is the length of the text that the first i + 1 ids have completed.
  const ends: number[] = [];
  let released = 0;
  let decoded = '';
  return {
    push(id) {
      const from = Math.max(0, decoded.length - longest + 1);
      decoded += decoder.push(id);
      ends.push(decoded.length);
      if (stops.some((stop) => decoded.indexOf(stop, from) >= 0)) return { released, stopped: true };
      let held = 0;
      for (const stop of stops) {
        for (let n = Math.min(stop.length - 1, decoded.length); n > held; n--) {
          if (decoded.endsWith(stop.slice(0, n))) held = n;
        }
      }
      while (released < ends.length && ends[released]! <= decoded.length - held) released += 1;
      return { released, stopped: false };
    },
  };
}

/** A text up to the first of the stop texts in it. */
export function beforeStop(text: string, stops: readonly string[]): string {
  const places = stops.map((stop) => text.indexOf(stop)).filter((place) => place >= 0);
  return places.length === 0 ? text : text.slice(0, Math.min(...places));
}
