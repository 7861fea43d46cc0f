// The slots of an OpenEnv server: how many sessions of all kinds there may be, and which are open.
// Not a queue: a full server refuses at once. Invariant: a slot is taken before the factory runs and given back exactly
// once, whoever ends the session first.
import type { EnvironmentClass, EnvironmentInstance } from './openenv-environment.ts';

/** A session that could not be made. */
export class SessionRefused extends Error {
  readonly code: 'CAPACITY_REACHED' | 'FACTORY_ERROR';
  /** Extra fields of the error frame. */
  readonly extra: Readonly<Record<string, string | number>>;
  constructor(code: SessionRefused['code'], message: string, extra: SessionRefused['extra']) {
    super(message);
    this.name = 'SessionRefused';
    this.code = code;
    this.extra = extra;
  }
}

export interface Slot {
  readonly id: string;
  readonly instance: EnvironmentInstance;
  /** Told by reset and step, not by state: the idle reaper's clock. */
  touch(): void;
  /** Destroys the environment and frees the slot. Safe to repeat. */
  end(): Promise<void>;
}

export interface Slots {
  /** Throws SessionRefused. */
  take(): Slot;
  find(id: string): Slot | undefined;
  open(): number;
  /** Ends the environments that were idle for `idleMs`; their sockets stay. */
  reap(idleMs: number): Promise<void>;
}

export function createSlots(environment: EnvironmentClass, maxSessions: number, newId: () => string): Slots {
  const slots = new Map<string, { slot: Slot | null; usedAt: number }>();
  return {
    take() {
      if (slots.size >= maxSessions) {
        const counts = `${slots.size}/${maxSessions} sessions active`;
        const message = `Server at capacity: ${counts}. Cannot accept new connections.`;
        throw new SessionRefused('CAPACITY_REACHED', message, {
          active_sessions: slots.size,
          max_sessions: maxSessions,
        });
      }
      const id = newId();
      const entry: { slot: Slot | null; usedAt: number } = { slot: null, usedAt: performance.now() };
      slots.set(id, entry);
      let instance: EnvironmentInstance;
      try {
        instance = environment.create();
      } catch (cause) {
        slots.delete(id);
        const { factoryName } = environment;
        const message = `Environment factory '${factoryName}' failed to create instance.`;
        const refused = new SessionRefused('FACTORY_ERROR', message, { factory_name: factoryName });
        refused.cause = cause;
        throw refused;
      }
      let ended = false;
      const slot: Slot = {
        id,
        instance,
        touch() {
          entry.usedAt = performance.now();
        },
        async end() {
          if (ended) return;
          ended = true;
          slots.delete(id);
          await instance.close();
        },
      };
      entry.slot = slot;
      return slot;
    },
    find: (id) => slots.get(id)?.slot ?? undefined,
    open: () => slots.size,
    async reap(idleMs) {
      const now = performance.now();
      const idle = [...slots.values()].filter(({ usedAt }) => now - usedAt >= idleMs);
      await Promise.all(idle.map(({ slot }) => slot?.end()));
    },
  };
}
