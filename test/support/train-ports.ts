// Ports of a training run without a device: every rollout is one token, the environment fails it at once, and the
// trainer counts its updates.
import type { Journal } from '../../src/journal.ts';
import type { Storage } from '../../src/lib/storage.ts';
import type { Sampler } from '../../src/rollout/sampler.ts';
import type { AuditLogprobs, AuditRollouts, TrainPorts } from '../../src/train.ts';

export function stubPorts(
  storage: Storage,
  journal: Journal,
  auditRollouts: AuditRollouts,
  auditLogprobs: AuditLogprobs,
): { made: TrainPorts; updates: number[] } {
  const updates: number[] = [];
  const made: TrainPorts = {
    storage,
    journal,
    trainer: {
      adapter: null as never,
      async step(input) {
        input.beforeUpdate?.([]);
        updates.push(input.update);
        return { loss: 0, gradNorm: 0, metrics: {} };
      },
      score: async () => [],
      state: async () => ({ adapter: new Map(), m: new Map(), v: new Map() }),
      restore: () => {},
      gradients: async () => new Map(),
      destroy: () => {},
    },
    sampler: {
      shape: { slots: 2, cacheLength: 64, rows: 64 },
      use: () => {},
      step: async (work) => work.map(() => ({ id: 9, logprob: -1, truncatedLogprob: -1, entropy: 0 })),
      fork: () => {},
      destroy: () => {},
    } satisfies Sampler,
    text: {
      renderPrompt: () => [1, 2, 3],
      stopIds: [9],
      endIds: [],
      decode: () => '',
      addedTokenId: () => null,
      bytesOf: () => new Uint8Array(),
    } as never,
    environment: {
      open: async (task) => ({ sessionId: `${task.id}#1`, messages: [], tools: [] }),
      call: async () => ({ content: '', error: false }),
      verify: async () => ({
        strict: false,
        reward: 0,
        parts: {},
        invalidDispatches: 0,
        toolErrors: 0,
        answer: null,
        log: [],
      }),
      log: async () => [],
      close: async () => {},
    },
    tasks: [{ id: 'task-1', payload: {} }],
    invalidCallObservation: '',
    auditRollouts,
    auditLogprobs,
    digests: async () => ({ adapter: 'a'.repeat(64), optimizer: 'b'.repeat(64) }),
    seal: async () => {},
    now: () => 0,
    shouldStop: () => false,
  };
  return { made, updates };
}
