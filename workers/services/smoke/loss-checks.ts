// Checks that take the service away: through a proxy of the proof's own, so that the service itself stays up.
// Not a fuzzer (the fault tests are). Invariant: each check shows that the loss is named, sticky and no reward.
import { EnvError } from '../../../src/lib/errors.ts';
import type { Check, CheckOutcome, SmokeContext } from './context.ts';
import { startCutProxy } from './cut-proxy.ts';

const codeOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => 'an answer',
    (error: unknown) => (error instanceof EnvError ? error.code : String(error)),
  );

const REPLY_MS = 500;
/** For a loaded machine. */
const SLACK_MS = 5_000;

async function loss({ url, tasks, withPort }: SmokeContext): Promise<CheckOutcome> {
  const proxy = await startCutProxy(url);
  const wanted =
    'one infrastructure failure for the call, the next call and verify; a new session on the service works';
  try {
    const codes = await withPort(
      async (port) => {
        const { sessionId } = await port.open(tasks[0]!);
        await port.call(sessionId, 'rechner', '{"ausdruck":"1+1"}');
        proxy.cut();
        return [
          await codeOf(port.call(sessionId, 'rechner', '{"ausdruck":"1+1"}')),
          await codeOf(port.call(sessionId, 'rechner', '{"ausdruck":"1+1"}')),
          await codeOf(port.verify(sessionId, 'Antwort: 0', 0)),
        ];
      },
      { url: proxy.url, deadlines: { replyMs: REPLY_MS, closeMs: REPLY_MS } },
    );
    const afterwards = await withPort(async (port) => {
      const { sessionId } = await port.open(tasks[0]!);
      return (await port.call(sessionId, 'rechner', '{"ausdruck":"1+1"}')).content;
    });
    const same = new Set(codes).size === 1 && /^service-(lost|refused)$/.test(codes[0]!);
    return { ok: same && afterwards === '2', found: `${codes.join(', ')}; then ${afterwards}`, wanted };
  } finally {
    await proxy.stop();
  }
}

async function deadline({ url, tasks, withPort }: SmokeContext): Promise<CheckOutcome> {
  const proxy = await startCutProxy(url);
  const wanted = `service-timeout after ${REPLY_MS} ms, nothing sent again, no verdict`;
  try {
    return await withPort(
      async (port) => {
        const { sessionId } = await port.open(tasks[0]!);
        proxy.stall();
        const begun = performance.now();
        const first = await codeOf(port.call(sessionId, 'rechner', '{"ausdruck":"1+1"}'));
        const elapsedMs = Math.round(performance.now() - begun);
        const sent = proxy.sentBytes();
        const second = await codeOf(port.verify(sessionId, 'Antwort: 0', 0));
        const again = proxy.sentBytes() - sent;
        const inTime = elapsedMs >= REPLY_MS - 50 && elapsedMs < REPLY_MS * 3 + SLACK_MS;
        const ok = first === 'service-timeout' && second === 'service-timeout' && again === 0 && inTime;
        return { ok, found: `${first}, ${second}, ${again} bytes sent again`, wanted, measured: { elapsedMs } };
      },
      { url: proxy.url, deadlines: { replyMs: REPLY_MS, closeMs: REPLY_MS } },
    );
  } finally {
    await proxy.stop();
  }
}

async function refused({ tasks, withPort, url }: SmokeContext): Promise<CheckOutcome> {
  const proxy = await startCutProxy(url);
  await proxy.stop();
  const code = await withPort((port) => codeOf(port.open(tasks[0]!)), {
    url: proxy.url,
    deadlines: { openMs: 300 },
  });
  return { ok: code === 'service-refused', found: code, wanted: 'service-refused from an address without a service' };
}

/**
 * The service holds as many sessions as before: nothing of the checks is left on it. A NeMo Gym server cannot know of a
 * session whose client was cut off, and keeps it for its own time; there, closing must work.
 */
async function nothingLeft({ tasks, withPort, concurrency, protocol }: SmokeContext): Promise<CheckOutcome> {
  const count = protocol === 'openenv' ? concurrency : 1;
  return withPort(async (port) => {
    const open = await Promise.all(Array.from({ length: count }, () => port.open(tasks[0]!)));
    await Promise.all(open.map(({ sessionId }) => port.close(sessionId)));
    const { leaked, open: left } = await port.stats();
    return { ok: left === 0 && leaked === 0, found: `${left} open, ${leaked} unconfirmed`, wanted: 'no session left' };
  });
}

export const lossChecks: readonly Check[] = [
  { name: 'loss-of-service', run: loss },
  { name: 'deadline', run: deadline },
  { name: 'refused-connection', run: refused },
  { name: 'no-session-left', run: nothingLeft },
];
