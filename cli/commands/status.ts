// `shaderl status`: what an experiment is doing, while it runs or after.
import { join, resolve } from 'node:path';
import type { Command } from 'commander';
import type { ExperimentStatus } from '../../src/experiment/status-node.ts';
import type { TimeLeft } from '../../src/experiment/time-left.ts';
import type { Stage } from '../../src/journal-events.ts';
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
      'Reads the folder only. Says how long the stage and the run will still take, at the pace of the work of that kind so ' +
      'far, and what is in no figure. With --follow, prints every new line of the journal but heartbeats until its writer, ' +
      'here or on another host, has released the lock, or Ctrl-C.',
    examples: ['shaderl status runs/experiment', 'shaderl status runs/experiment --follow'],
  })
    .argument('<dir>', 'folder of the experiment')
    .option('--follow', 'print new journal lines as they are written, then the status')
    .action(async (dir: string, options: { json?: boolean; follow?: boolean }) => {
      const session = openSession(options);
      const { experimentStatus } = await import('../../src/experiment/status-node.ts');
      if (options.follow) await follow(dir, session, () => experimentStatus(dir));
      const status = await experimentStatus(dir);
      session.result(status, statusText(status));
    });
}

/** Prints new lines until the experiment has no live writer any more. */
async function follow(
  dir: string,
  session: ReturnType<OpenSession>,
  look: () => Promise<ExperimentStatus>,
): Promise<void> {
  const { createNodeStorage } = await import('../../src/lib/storage-node.ts');
  const { followJournal } = await import('../../src/inspect/follow-journal.ts');
  const storage = createNodeStorage(resolve(dir));
  const follower = followJournal(join(storage.label, 'journal.jsonl'));
  const printNew = async (shouldStop: () => boolean) => {
    for (let alive = true; alive && !shouldStop(); ) {
      const status = await look();
      // Another node's writer cannot be seen from here; the lock that it has not released can.
      alive = status.state === 'running' || status.state === 'held elsewhere';
      const bytes = (await storage.exists('journal.jsonl')) ? await storage.read('journal.jsonl') : new Uint8Array(0);
      for (const { time, kind, data } of await follower.update(bytes)) {
        if (kind === 'heartbeat') continue;
        const facts = Object.entries(data).filter(([, value]) => typeof value !== 'object' || value === null);
        session.progress.line(`${time}  ${kind}  ${facts.map(([name, value]) => `${name} ${value}`).join('  ')}`);
      }
      if (follower.fault !== null) return session.progress.line(follower.fault);
      if (alive && status.timeLeft?.runSeconds != null) session.progress.update(timeLeftLine(status.timeLeft));
      if (alive) await new Promise((done) => setTimeout(done, pollMs));
    }
  };
  await interruptible(session.progress, printNew, null);
}

/** A figure that leaves out stages of some length is a lower bound. */
const short: readonly Stage[] = ['preflight', 'selection', 'report'];
const about = ({ without }: TimeLeft) => (without.every((stage) => short.includes(stage)) ? 'about' : 'at least');

/** `training: about 40 min 0 s left; run: at least 40 min 0 s, without dev, ...`. Only for what something is known of. */
function timeLeftLine(left: TimeLeft): string {
  const { stage, stageSeconds, runSeconds, without } = left;
  const own = stageSeconds === null ? [] : [`${stage}: about ${formatDuration(stageSeconds)} left`];
  const rest = without.length === 0 ? '' : `, without ${without.join(', ')}`;
  return [...own, `run: ${about(left)} ${formatDuration(runSeconds ?? 0)} left${rest}`].join('; ');
}

/** Rows for what is left and what that rests on; none where nothing is known. */
export function timeLeftRows({ timeLeft, budget }: Pick<ExperimentStatus, 'timeLeft' | 'budget'>): [string, string][] {
  if (timeLeft?.runSeconds == null) return [];
  const { runSeconds, basis } = timeLeft;
  const over = runSeconds > budget.leftSeconds ? '; more than the budget has left' : '';
  return [
    ['time left', timeLeftLine(timeLeft) + over],
    ['estimated from', basis.join('; ')],
  ];
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
    ['evaluations', `${evaluations.done} of ${evaluations.of}`],
    ['budget', `${formatDuration(budget.leftSeconds)} left of ${formatDuration(budget.wallSeconds)}`],
    ...timeLeftRows(status),
    ['attempts', String(status.attempts)],
    ['last journal line', lastLine ? `${lastLine.kind} at ${lastLine.time}` : 'none'],
  ]);
}
