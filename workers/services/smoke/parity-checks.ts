// Checks that compare the service with the environment in process and with the independent replayer.
// Not a scorer. Invariant: both faultless and faulty episodes are compared, or the check fails.
import { createGermanEnvironment } from '../../../src/environments/german-environment.ts';
import { replayEpisode } from '../../../src/environments/german-replay.ts';
import {
  type Check,
  type CheckOutcome,
  type Played,
  playEpisode,
  playInProcess,
  type SmokeContext,
} from './context.ts';

/** Compares one aspect of all episodes; `found` names the first that differs. */
function compare(
  pairs: readonly (readonly [Played, Played])[],
  what: string,
  aspect: (played: Played) => unknown,
): CheckOutcome {
  const differing = pairs.findIndex(([a, b]) => JSON.stringify(aspect(a)) !== JSON.stringify(aspect(b)));
  const wanted = `${what} as in process in ${pairs.length} episodes`;
  if (differing < 0) return { ok: true, found: `equal ${what}`, wanted };
  const [remote, local] = pairs[differing]!.map((played) => JSON.stringify(aspect(played)));
  return { ok: false, found: `episode ${differing}: ${remote} over the wire, ${local} in process`, wanted };
}

const played = new WeakMap<SmokeContext, Promise<(readonly [Played, Played])[]>>();

/** The episodes over the wire, each with its twin in process; played once for all checks. */
function pairs(context: SmokeContext): Promise<(readonly [Played, Played])[]> {
  const known = played.get(context) ?? playPairs(context);
  played.set(context, known);
  return known;
}

async function playPairs(context: SmokeContext): Promise<(readonly [Played, Played])[]> {
  const local = await playInProcess(context);
  return context.withPort(async (port) => {
    const out: (readonly [Played, Played])[] = [];
    for (const [i, task] of context.tasks.entries()) {
      out.push([await playEpisode(port, task, context.transcripts[i]!), local[i]!]);
    }
    return out;
  });
}

const ODD_CALLS: readonly (readonly [string, string])[] = [
  ['nachschlagen', '{"schluessel":"Birne"}'],
  ['nachschlagen', '{"schluessel":"Brot","mehr":1}'],
  ['nachschlagen', '{}'],
  ['rechner', '{"ausdruck":"1 / 0"}'],
  ['rechner', '{"ausdruck":"7 * (8 - 3)"}'],
  ['rechner', '{"ausdruck":"ä ☃"}'],
];

export const parityChecks: readonly Check[] = [
  {
    name: 'prompt-parity',
    run: async (context) =>
      compare(await pairs(context), 'messages and tools', ({ opened }) => [opened.messages, opened.tools]),
  },
  {
    name: 'tool-parity',
    run: async (context) => compare(await pairs(context), 'observations', ({ observations }) => observations),
  },
  {
    name: 'tool-error-parity',
    async run({ tasks, withPort }) {
      const local = createGermanEnvironment();
      const near = await local.open(tasks[0]!);
      const wanted = `the answers in process to ${ODD_CALLS.length} odd calls`;
      return withPort(async (port) => {
        const far = await port.open(tasks[0]!);
        for (const [tool, text] of ODD_CALLS) {
          const [ours, theirs] = [
            await local.call(near.sessionId, tool, text),
            await port.call(far.sessionId, tool, text),
          ];
          if (JSON.stringify(ours) !== JSON.stringify(theirs)) {
            return { ok: false, found: `${tool} ${text}: ${JSON.stringify(theirs)}`, wanted };
          }
        }
        return { ok: true, found: 'equal answers', wanted };
      });
    },
  },
  {
    name: 'replay-parity',
    async run(context) {
      const wanted = 'no difference to the independent replayer';
      for (const [i, [{ verdict }]] of (await pairs(context)).entries()) {
        const { finalText, invalidDispatches } = context.transcripts[i]!;
        const replay = replayEpisode(context.tasks[i]!, verdict.log, finalText, invalidDispatches, verdict);
        if (replay.differences.length > 0) return { ok: false, found: replay.differences[0]!, wanted };
      }
      return { ok: true, found: `${context.tasks.length} episodes replayed`, wanted };
    },
  },
  {
    name: 'strict-score-parity',
    async run(context) {
      const both = await pairs(context);
      const strict = both.filter(([remote]) => remote.verdict.strict).length;
      const outcome = compare(both, 'strict success and reward', ({ verdict }) => [
        verdict.strict,
        verdict.reward,
        verdict.parts,
      ]);
      const mixed = strict > 0 && strict < both.length;
      if (outcome.ok && !mixed) return { ...outcome, ok: false, found: `${strict} strict successes: one kind alone` };
      return { ...outcome, measured: { episodes: both.length, strict } };
    },
  },
  {
    name: 'reset-repeats',
    async run({ tasks, withPort }) {
      const wanted = 'one first observation for one task';
      return withPort(async (port) => {
        const seen = new Set<string>();
        for (let i = 0; i < 4; i++) {
          const { sessionId, messages, tools } = await port.open(tasks[0]!);
          seen.add(JSON.stringify([messages, tools]));
          await port.close(sessionId);
        }
        return { ok: seen.size === 1, found: `${seen.size} different ones in 4 resets`, wanted };
      });
    },
  },
  {
    name: 'reset-isolation',
    async run({ tasks, withPort }) {
      const wanted = "each session's own table and log, with calls in turn";
      return withPort(async (port) => {
        const open = await Promise.all(tasks.slice(0, 4).map((task) => port.open(task)));
        const goods = ['Apfel', 'Brot', 'Käse'];
        for (const good of goods) {
          for (const [i, { sessionId }] of open.entries()) {
            const { table } = tasks[i]!.payload as { table: Record<string, number> };
            const { content } = await port.call(sessionId, 'nachschlagen', JSON.stringify({ schluessel: good }));
            if (content !== String(table[good]))
              return { ok: false, found: `session ${i}: ${good} is ${content}`, wanted };
          }
        }
        for (const { sessionId } of open) {
          const { log } = await port.verify(sessionId, 'Antwort: 0', 0);
          if (log.length !== goods.length) return { ok: false, found: `a log of ${log.length} calls`, wanted };
        }
        return { ok: true, found: '4 sessions kept apart', wanted };
      });
    },
  },
];
