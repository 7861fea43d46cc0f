// A run of many long rollouts for the inspector: rollouts of the fixture run, stretched to one length.
// Not a run to audit: a stretched record repeats its last values. Invariant: equal arguments give equal files.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Episode } from '../../src/rollout/episode.ts';
import { linesOf, writeFixtureRun } from './inspect-run.ts';

export interface LargeRun {
  files: number;
  perFile: number;
  /** Tokens after the prompt. */
  sampled: number;
}

/** The record with its last values repeated until it has `sampled` tokens after the prompt. */
function stretched(episode: Episode, sampled: number): Episode {
  const length = episode.promptLength + sampled;
  const fill = <T>(list: readonly T[]) =>
    Array.from({ length }, (_, i) => list[Math.min(i, list.length - 1 - (i % 40))]!);
  const { ids, sources, mask, logprobs, truncatedLogprobs } = episode;
  return {
    ...episode,
    ids: fill(ids),
    sources: fill(sources),
    mask: fill(mask),
    logprobs: fill(logprobs),
    truncatedLogprobs: fill(truncatedLogprobs),
  };
}

/** Writes `run`/rollouts; `scratch` takes the fixture run that the rollouts come from. */
export async function writeLargeRun(run: string, scratch: string, size: LargeRun): Promise<void> {
  const fixture = await writeFixtureRun(scratch, { steps: 1 });
  const group = (await fixture.episodes(1)).map((episode) => stretched(episode, size.sampled));
  const text = linesOf(
    Array.from({ length: size.perFile }, (_, i) => ({ ...group[i % 4]!, group: Math.floor(i / 4) })),
  );
  mkdirSync(join(run, 'rollouts'), { recursive: true });
  for (let step = 1; step <= size.files; step++) {
    writeFileSync(join(run, `rollouts/step-${String(step).padStart(6, '0')}.jsonl`), text);
  }
}
