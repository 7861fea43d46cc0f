// What the inspector's page costs on a run of 5,000 rollouts of 768 tokens: until it is open, and a frame of scrolling.
// Not a test: times depend on the machine; the test bounds what a frame changes (test/browser/harness/large-run.test.ts).
// `npx tsx tools/harness/scroll-times.ts [rounds]`: headless Chromium without a GPU, so raster on the CPU counts in the frame's interval.
import { loadavg } from 'node:os';
import { join } from 'node:path';
import type { Browser, CDPSession, Page } from 'playwright';
import { launch, openPage, removeFolder, scratchFolder, serveRuns } from '../../test/browser/harness/open-page.ts';
import { writeLargeRun } from '../../test/support/large-run.ts';
import { frameTimes, type TraceEvent } from './frame-times.ts';

const rounds = Number(process.argv[2] ?? 3);
const size = { files: 250, perFile: 20, sampled: 768 };
const total = size.files * size.perFile;

/** Scrolls at the point by `distance` pixels with the compositor's own gesture, traced. */
async function traceScroll(session: CDPSession, at: { x: number; y: number }, distance: number, speed: number) {
  const events: TraceEvent[] = [];
  const collect = ({ value }: { value: object[] }) => events.push(...(value as TraceEvent[]));
  session.on('Tracing.dataCollected', collect);
  const categories = ['toplevel', 'devtools.timeline', 'disabled-by-default-devtools.timeline', '__metadata'];
  await session.send('Tracing.start', { traceConfig: { includedCategories: categories } });
  // Two gestures: down, and back up.
  for (const yDistance of [-distance, distance]) {
    await session.send('Input.synthesizeScrollGesture', { ...at, yDistance, speed, gestureSourceType: 'mouse' });
  }
  const done = new Promise<void>((resolve) => session.once('Tracing.tracingComplete', () => resolve()));
  await session.send('Tracing.end');
  await done;
  session.off('Tracing.dataCollected', collect);
  return frameTimes(events);
}

async function scrolled(page: Page, name: string, target: string, distance: number, speed: number): Promise<void> {
  const box = (await page.locator(target).first().boundingBox())!;
  const at = { x: box.x + Math.min(300, box.width / 2), y: Math.min(500, box.y + box.height / 2) };
  const session = await page.context().newCDPSession(page);
  for (let round = 0; round < rounds; round++) {
    console.log(`${name}: ${await traceScroll(session, at, distance, speed)}`);
  }
  await session.detach();
}

async function opened(browser: Browser, url: string): Promise<void> {
  for (let round = 0; round < rounds; round++) {
    const { page, context } = await openPage(browser);
    const began = performance.now();
    await page.goto(`${url}#/rollouts`);
    await page.locator('.spacer .row').first().waitFor();
    const first = performance.now() - began;
    await page.getByText(`${total} of ${total}`).waitFor();
    const all = performance.now() - began;
    console.log(`open, round ${round + 1}: first rows after ${first.toFixed(0)} ms, all after ${all.toFixed(0)} ms`);
    await context.close();
  }
}

const folder = scratchFolder();
let browser: Browser | undefined;
try {
  const run = join(folder, 'large');
  await writeLargeRun(run, join(folder, 'small'), size);
  console.log(`${total} rollouts of ${size.sampled} tokens, load ${loadavg()[0]!.toFixed(2)}`);
  browser = await launch();
  const server = await serveRuns([run]);
  await opened(browser, server.url);
  const { page } = await openPage(browser);
  await page.goto(`${server.url}#/rollouts`);
  await page.getByText(`${total} of ${total}`).waitFor();
  await scrolled(page, 'list', '.grid', 6000, 2400);
  await scrolled(page, 'list, fast', '.grid', 24_000, 9600);
  const file = 'file=rollouts%2Fstep-000100.jsonl';
  const streams = [
    ['tokens', `#/rollout?${file}&line=1`, '.turns'],
    ['group', `#/group?${file}&group=0`, '.aligned'],
  ] as const;
  for (const [name, place, target] of streams) {
    const began = performance.now();
    await page.goto(server.url + place);
    await page.locator(`${target} .tok`).first().waitFor({ state: 'attached' });
    const count = await page.locator(`${target} .tok`).count();
    console.log(`${name}: ${count} tokens open after ${(performance.now() - began).toFixed(0)} ms`);
    await scrolled(page, name, target, 1200, 1200);
  }
  await server.close();
} finally {
  await browser?.close();
  removeFolder(folder);
}
