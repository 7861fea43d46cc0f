// `shaderl status`: what an experiment is doing, while it runs or after.
import { join, resolve } from 'node:path';
import type { Command } from 'commander';
import type { ExperimentStatus } from '../../src/experiment/status-node.ts';
import { addCommand } from '../command.ts';
import { formatDuration } from '../duration.ts';
import { interruptible } from '../interrupt.ts';
import type { OpenSession } from '../main.ts';
import { factLines } from '../table.ts';

const pollMs = 500;
const shownMetrics = ['reward', 'rewards/strict/mean', 'loss', 'kl', 'grad_norm'];

export function addStatus(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'status',
    summary: 'show stage, step, budget and last metrics of an experiment, also while it runs',
    details:
      'Reads the folder only. With --follow, prints every new line of the journal until the experiment ends or Ctrl-C.',
    examples: ['shaderl status runs/experiment', 'shaderl status runs/experiment --follow'],
  })
    .argument('<dir>', 'folder of the experiment')
    .option('--follow', 'print new journal lines as they are written, then the status')
    .action(async (dir: string, options: { json?: boolean; follow?: boolean }) => {
      const session = openSession(options);
      const { experimentStatus } = await import('../../src/experiment/status-node.ts');
      if (options.follow) await follow(dir, session, async () => (await experimentStatus(dir)).state);
      const status = await experimentStatus(dir);
      session.result(status, statusText(status));
    });
}

/** Prints new lines until the experiment has no live writer any more. */
async function follow(dir: string, session: ReturnType<OpenSession>, state: () => Promise<string>): Promise<void> {
  const { createNodeStorage } = await import('../../src/lib/storage-node.ts');
  const { followJournal } = await import('../../src/inspect/follow-journal.ts');
  const storage = createNodeStorage(resolve(dir));
  const follower = followJournal(join(storage.label, 'journal.jsonl'));
  await interruptible(session.progress, async (shouldStop) => {
    for (let alive = true; alive && !shouldStop(); ) {
      alive = (await state()) === 'running';
      const bytes = (await storage.exists('journal.jsonl')) ? await storage.read('journal.jsonl') : new Uint8Array(0);
      for (const { time, kind, data } of await follower.update(bytes)) {
        if (kind === 'heartbeat') continue;
        const facts = Object.entries(data).filter(([, value]) => typeof value !== 'object' || value === null);
        session.progress.line(`${time}  ${kind}  ${facts.map(([name, value]) => `${name} ${value}`).join('  ')}`);
      }
      if (follower.fault !== null) session.progress.line(follower.fault);
      if (alive) await new Promise((done) => setTimeout(done, pollMs));
    }
  });
}

function statusText(status: ExperimentStatus): string {
  const { training, budget, evaluations, writer, lastLine } = status;
  const who = writer ? [` (pid ${writer.pid} on ${writer.host})`] : [];
  const why = status.reason ? [`: ${status.reason}`] : [];
  const metrics = training
    ? shownMetrics.flatMap((name) => {
        const value = training.metrics[name];
        return value === undefined ? [] : [`${name} ${Number(value.toPrecision(4))}`];
      })
    : [];
  return factLines([
    ['experiment', `${status.folder} (${status.recipe})`],
    ['state', [status.state, ...who, ...why].join('')],
    ['stage', status.stage ?? 'none left'],
    ['passed', status.done.join(', ') || 'none'],
    ['training', training ? `step ${training.step} of ${training.steps}` : 'not begun'],
    ...(metrics.length > 0 ? [['last metrics', metrics.join('  ')] as const] : []),
    ...(status.trainingSecondsLeft === null
      ? []
      : [['training left', `about ${formatDuration(status.trainingSecondsLeft)}`] as const]),
    ['evaluations', `${evaluations.done} of ${evaluations.of}`],
    ['budget', `${formatDuration(budget.leftSeconds)} left of ${formatDuration(budget.wallSeconds)}`],
    ['attempts', String(status.attempts)],
    ['last journal line', lastLine ? `${lastLine.kind} at ${lastLine.time}` : 'none'],
  ]);
}
