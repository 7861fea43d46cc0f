// Makes the pictures of docs/harness.md: `npx tsx tools/harness/pictures.ts [folder]` (default docs/images).
// Not a test. Invariant: what they show is the fixture run of the tests, with one mask bit taken out of one rollout.
import { join } from 'node:path';
import { launch, openPage, removeFolder, scratchFolder, serveRuns } from '../../test/browser/harness/open-page.ts';
import { writeFixtureRun } from '../../test/support/inspect-run.ts';

const target = process.argv[2] ?? 'docs/images';
const folder = scratchFolder();
const browser = await launch();
try {
  const run = join(folder, 'german');
  let token = 0;
  await writeFixtureRun(run, {
    steps: 60,
    edit: (episodes, step) => {
      if (step !== 5) return;
      const episode = episodes[3]!;
      token = episode.turns[0]!.span[0] + 14;
      episode.mask[token] = 0;
    },
  });
  const server = await serveRuns([run]);
  const file = 'file=rollouts%2Fstep-000005.jsonl';
  const pictures = [
    ['harness-run', 'light', '#/run', '.chart canvas'],
    ['harness-rollout', 'light', `#/rollout?${file}&line=4&token=${token}`, '.tok.chosen'],
    ['harness-group', 'dark', `#/group?${file}&group=0`, '.aligned .tok.differs'],
  ] as const;
  for (const [name, scheme, place, shown] of pictures) {
    const { page, context } = await openPage(browser, scheme);
    await page.setViewportSize({ width: 1280, height: 800 });
    await page.goto(server.url + place);
    await page.locator(shown).first().waitFor();
    if (name === 'harness-rollout') await page.getByLabel('Colour by').selectOption('logprob');
    if (name === 'harness-group') await page.getByRole('button', { name: 'Next difference' }).click();
    await page.evaluate(() => window.scrollTo(0, 0));
    await page.waitForTimeout(500);
    await page.screenshot({ path: join(target, `${name}.png`) });
    await context.close();
  }
  await server.close();
} finally {
  await browser.close();
  removeFolder(folder);
}
