// A group of rollouts of one prompt, side by side. The drawing is side-by-side.ts.
import { fill, h } from './dom.ts';
import { groupLines, openRollout } from './open-rollout.ts';
import { runOf, type View } from './page.ts';
import { placeUrl } from './router.ts';
import { fileTitle } from './run-source.ts';
import { sideBySide } from './side-by-side.ts';

export const groupView: View = (page, params, main) => {
  const { source, index } = runOf(page, params);
  if (!source) return () => {};
  const file = params['file'] ?? '';
  const group = Number(params['group'] ?? 0);
  let gone = false;
  async function open(): Promise<void> {
    const first = Number(params['line'] ?? source!.files.get(file)?.[0]?.line ?? 1);
    await openRollout(source!, file, first);
    const members = groupLines(source!, file, group);
    const opened = await Promise.all(members.map((row) => openRollout(source!, file, row.line)));
    if (gone) return;
    const columns = opened.map((one) => ({
      opened: one,
      title: `Member ${one.episode.member}`,
      href: placeUrl('rollout', { run: index || null, file, line: one.line }),
    }));
    const task = opened[0]?.episode.taskId ?? '';
    fill(main, h('h1', null, `${fileTitle(file)}, group ${group}: ${task}`), sideBySide(columns));
  }
  fill(main, h('p', { class: 'hint' }, 'Reading the group …'));
  open().catch(page.report);
  return () => {
    gone = true;
  };
};
