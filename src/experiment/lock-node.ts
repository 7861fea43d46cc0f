// One writer per experiment: numbered lock files with host, pid and start time of the holder.
// Not a lock against malice, nor across hosts that cannot see each other's processes: another host's lock is refused
// until a person names it. Invariant: a number is created once (O_EXCL) and only numbers below the highest are removed,
// so two processes that find the same stale lock cannot both take it over.
import { execFileSync } from 'node:child_process';
import { linkSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { PlanError } from '../lib/errors.ts';

export const LOCK_FOLDER = 'lock';

const holderSchema = z.strictObject({
  schema: z.literal('shaderl.lock/1'),
  host: z.string(),
  pid: z.int(),
  /** When the process started, as the system tells it: an opaque text that no later process of that pid shares. */
  started: z.string(),
  released: z.boolean(),
});
export type LockHolder = z.infer<typeof holderSchema>;

/** Start time of a process of this host, or null if there is none. */
export function processStart(pid: number): string | null {
  try {
    // Field 22 counts clock ticks since boot; the boot id tells boots apart. The name in field 2 may hold spaces.
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    // A zombie holds nothing any more.
    if (fields[0] === 'Z' || fields[0] === 'X') return null;
    return `${readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()}:${fields[19]}`;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ENOENT' && code !== 'ESRCH') throw error;
  }
  if (process.platform === 'linux') return null;
  try {
    const text = execFileSync('ps', ['-o', 'lstart=', '-p', String(pid)], { encoding: 'utf8' }).trim();
    return text === '' ? null : text;
  } catch {
    return null;
  }
}

export type LockState = 'free' | 'held' | 'stale' | 'other-host';

export interface LockView {
  state: LockState;
  holder: LockHolder | null;
  file: string | null;
  number: number;
}

const nameOf = (number: number) => `${String(number).padStart(6, '0')}.json`;

/** Who holds the lock of an experiment's folder. Reads only. */
export function readLock(folder: string): LockView {
  const dir = join(folder, LOCK_FOLDER);
  let names: string[];
  try {
    names = readdirSync(dir).filter((name) => /^\d{6}\.json$/.test(name));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    names = [];
  }
  const last = names.sort().at(-1);
  if (last === undefined) return { state: 'free', holder: null, file: null, number: 0 };
  const file = join(dir, last);
  const number = Number(last.slice(0, 6));
  let holder: LockHolder;
  try {
    holder = holderSchema.parse(JSON.parse(readFileSync(file, 'utf8')));
  } catch (error) {
    // Removed meanwhile by a process that took the lock over: look again.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return readLock(folder);
    // Somebody else wrote it: nobody can be told from it.
    return { state: 'other-host', holder: null, file, number };
  }
  if (holder.released) return { state: 'free', holder, file, number };
  if (holder.host !== hostname()) return { state: 'other-host', holder, file, number };
  return { state: processStart(holder.pid) === holder.started ? 'held' : 'stale', holder, file, number };
}

export interface HeldLock {
  /** The stale holder whose lock was taken over, or null. */
  tookOver: LockHolder | null;
  release(): void;
}

function held(folder: string, { holder, file, state }: LockView): PlanError {
  const who = holder ? `pid ${holder.pid} on ${holder.host}, started ${holder.started}` : 'an unreadable holder';
  const remedy =
    state === 'held'
      ? 'Wait for it or stop it (SIGTERM seals and stops), then run again with --resume.'
      : `If that process is surely gone, run again with --take-lock-from ${holder?.host ?? 'unknown'}.`;
  return new PlanError(
    'locked',
    `locking ${folder}: found ${file} held by ${who}; wanted no other writer. Two processes cannot run one plan ` +
      `at once. ${remedy}`,
  );
}

/**
 * Takes the lock of an experiment's folder. A lock of a process of this host that is gone is taken over. Another host's
 * is taken over only if `takeFrom` names that host (`unknown` for an unreadable lock file). Throws PlanError `locked`.
 */
export function acquireLock(folder: string, takeFrom: string | null = null): HeldLock {
  const dir = join(folder, LOCK_FOLDER);
  mkdirSync(dir, { recursive: true });
  const view = readLock(folder);
  const named = view.state === 'other-host' && takeFrom === (view.holder?.host ?? 'unknown');
  if (view.state === 'held' || (view.state === 'other-host' && !named)) throw held(folder, view);
  const own: LockHolder = {
    schema: 'shaderl.lock/1',
    host: hostname(),
    pid: process.pid,
    started: processStart(process.pid) ?? 'unknown',
    released: false,
  };
  const file = join(dir, nameOf(view.number + 1));
  if (!createWhole(file, own)) throw held(folder, readLock(folder));
  if (view.file !== null) rmSync(view.file, { force: true });
  return {
    tookOver: view.state === 'free' ? null : view.holder,
    release() {
      const partial = `${file}.${process.pid}.part`;
      writeFileSync(partial, text({ ...own, released: true }));
      renameSync(partial, file);
    },
  };
}

const text = (holder: LockHolder) => `${JSON.stringify(holder)}\n`;

/** Creates the lock file with its content at once: a kill must not leave an empty one. False if it exists. */
function createWhole(file: string, holder: LockHolder): boolean {
  const partial = `${file}.${process.pid}.part`;
  writeFileSync(partial, text(holder));
  try {
    linkSync(partial, file);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  } finally {
    rmSync(partial, { force: true });
  }
}
