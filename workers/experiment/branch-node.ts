// Runs one branch of the resume qualification in a process of its own.
// Not the process (branch-process.ts). Invariant: resolves only if the branch said that it was done; a stop or a death
// of the process rejects.
import { fork } from 'node:child_process';
import { createRequire } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { DeviceError, errorFromPlain } from '../../src/lib/errors.ts';
import type { BranchNotice, BranchOrder } from './branch-process.ts';

const script = fileURLToPath(new URL('./branch-process.ts', import.meta.url));
const loader = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;
const pollMs = 200;

/** Rejects with the branch's own error, or DeviceError `branch-ended` if the process died or was stopped. */
export function runBranch(
  order: BranchOrder,
  stop: () => boolean,
  onNotice: (notice: BranchNotice) => void,
): Promise<void> {
  // stdout of the parent may be a JSON result: what the branch prints goes to stderr.
  const child = fork(script, [], { execArgv: ['--import', loader], stdio: ['ignore', 2, 2, 'ipc'] });
  const timer = setInterval(() => {
    if (stop()) child.kill('SIGKILL');
  }, pollMs);
  return new Promise<void>((resolve, reject) => {
    let outcome: (() => void) | null = null;
    child.on('message', (notice: BranchNotice) => {
      onNotice(notice);
      if (notice.notice === 'done') outcome = resolve;
      else if (notice.notice === 'failed') outcome = () => reject(errorFromPlain(notice.error));
      // Its files are on disk; a process that still holds a device may hang in its own exit.
      if (outcome) child.kill('SIGKILL');
    });
    child.on('error', reject);
    child.on('exit', (code, signal) => {
      const how = signal ?? `exit code ${code}`;
      const lost = new DeviceError(
        'branch-ended',
        `running ${order.folder} in a process of its own: it ended with ${how} before it was done; wanted a whole ` +
          'branch. Look at its output, then run again with --resume.',
      );
      (outcome ?? (() => reject(lost)))();
    });
    child.send(order);
  }).finally(() => {
    clearInterval(timer);
    if (child.exitCode === null) child.kill('SIGKILL');
  });
}
