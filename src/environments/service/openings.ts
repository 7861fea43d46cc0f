// How tasks began: messages and tools of each task's first observation, as the environment gave them.
// Not a check of equality (fingerprint.ts). Invariant: what is kept was never in a rollout's record, so that an audit
// can hold the two against each other.
import { z } from 'zod';
import type { EnvironmentPort, OpenedSession } from '../port.ts';

export const opening = z.strictObject({
  messages: z.array(z.strictObject({ role: z.enum(['system', 'user', 'assistant', 'tool']), content: z.string() })),
  tools: z.array(
    z.strictObject({
      type: z.literal('function'),
      function: z.strictObject({
        name: z.string(),
        description: z.string(),
        parameters: z.record(z.string(), z.unknown()),
      }),
    }),
  ),
});
export type Opening = z.infer<typeof opening>;

/** The openings of one step by task id; a file in the run's folder. Key order counts, so it is no canonical JSON. */
export const openingsOfStep = z.record(z.string(), opening);

/** File of a step's openings in the folder of a run. */
export const openingsFile = (step: number) => `openings/step-${String(step).padStart(6, '0')}.json`;

export interface OpeningRecord {
  port: EnvironmentPort;
  /** Openings since the last call of `clear`, by task id. */
  openings: ReadonlyMap<string, Opening>;
  clear(): void;
}

/** The port, with every opening of a session kept. */
export function recordOpenings(inner: EnvironmentPort): OpeningRecord {
  const openings = new Map<string, Opening>();
  return {
    openings,
    clear: () => openings.clear(),
    port: {
      async open(task): Promise<OpenedSession> {
        const opened = await inner.open(task);
        openings.set(task.id, { messages: opened.messages, tools: opened.tools });
        return opened;
      },
      call: (...args) => inner.call(...args),
      verify: (...args) => inner.verify(...args),
      log: (...args) => inner.log(...args),
      close: (...args) => inner.close(...args),
    },
  };
}
