// The numbers of a service port's sessions, and what it does when nobody answers any more.
import { describe, expect, test } from 'vitest';
import { createGermanEnvironment } from '../../src/environments/german-environment.ts';
import { trainTasks } from '../../src/environments/german-task.ts';
import type { EnvironmentPort } from '../../src/environments/port.ts';
import { DEFAULT_DEADLINES } from '../../src/environments/service/deadlines.ts';
import { fault } from '../../src/environments/service/faults.ts';
import { createFingerprints } from '../../src/environments/service/fingerprint.ts';
import { createServicePort, type ServiceSession } from '../../src/environments/service/port.ts';

const tasks = trainTasks(20261020, 2);

/** A service whose calls fail while `failing` says so, and that refuses while `refusing` does. */
function service(state: { failing?: boolean; refusing?: boolean; opened: number }, openMs = 50) {
  const session: ServiceSession = {
    messages: [{ role: 'user', content: 'x' }],
    tools: [{ type: 'function', function: { name: 'f', description: '', parameters: {} } }],
    serviceId: () => null,
    async call() {
      if (state.failing) throw fault('service-lost', { doing: 'calling', found: 'an end', wanted: 'a reply' });
      return { content: 'y', error: false };
    },
    verify: async () => ({ reward: 0 }),
    end: async () => true,
  };
  return createServicePort(
    {
      keepsUnknownSessions: false,
      async open() {
        state.opened += 1;
        if (state.refusing)
          throw fault('service-refused', { doing: 'opening', found: 'ECONNREFUSED', wanted: 'a reply' });
        return session;
      },
    },
    { maxSessions: 8, deadlines: { ...DEFAULT_DEADLINES, openMs }, strictReward: 1 },
  );
}

/** Opens (`+`) and closes (`-n`, the n-th opened) sessions of two tasks, and gives the ids. */
async function idsOf(port: EnvironmentPort, script: readonly [task: 0 | 1, close: number | null][]): Promise<string[]> {
  const ids: string[] = [];
  for (const [task, close] of script) {
    if (close === null) ids.push((await port.open(tasks[task]!)).sessionId);
    else await port.close(ids[close]!);
  }
  return ids;
}

describe('session ids', () => {
  test('are those of the environment in process, whatever is opened and closed in whatever order', async () => {
    const script: [0 | 1, number | null][] = [
      [0, null],
      [0, null],
      [1, null],
      [0, 0],
      [0, null],
      [0, 1],
      [0, 3],
      [0, null],
      [1, 2],
      [1, null],
      [0, 4],
      [0, null],
    ];
    const remote = await idsOf(service({ opened: 0 }), script);
    expect(remote).toEqual(await idsOf(createGermanEnvironment(), script));
    expect(new Set(remote.map((id) => id.split('#')[1]))).toEqual(new Set(['1', '2', '3']));
  });

  test('of a rollout that is made again after a loss are the ones that it had', async () => {
    const state = { failing: false, opened: 0 };
    const port = service(state);
    const group: string[] = [];
    for (let i = 0; i < 4; i++) group.push((await port.open(tasks[0]!)).sessionId);
    state.failing = true;
    await expect(port.call(group[1]!, 'f', '{}')).rejects.toMatchObject({ code: 'service-lost' });
    state.failing = false;
    await port.close(group[1]!);
    expect((await port.open(tasks[0]!)).sessionId).toBe(group[1]);
    for (const id of group) await port.close(id);
    expect((await port.open(tasks[0]!)).sessionId).toBe(`${tasks[0]!.id}#1`);
  });
});

describe('first observations', () => {
  const message = (content: string) => [{ role: 'user' as const, content }];
  test('must be what they were, and are named by their hashes if they are not', async () => {
    const prints = createFingerprints();
    await prints.check('opening', 'a', message('x'), []);
    await prints.check('opening', 'a', message('x'), []);
    await prints.check('opening', 'b', message('y'), []);
    await expect(prints.check('opening', 'a', message('y'), [])).rejects.toMatchObject({
      code: 'group-fingerprint',
      message: expect.stringMatching(
        /its first observation has fingerprint [0-9a-f]{16}; wanted [0-9a-f]{16}, as when/,
      ),
    });
  });

  test('are forgotten, the oldest first, when they take too much room', async () => {
    const prints = createFingerprints(120);
    await prints.check('opening', 'a', message('x'), []);
    await prints.check('opening', 'b', message('y'.repeat(60)), []);
    await prints.check('opening', 'a', message('another'), []);
    await expect(prints.check('opening', 'a', message('x'), [])).rejects.toMatchObject({ code: 'group-fingerprint' });
  });
});

describe('a service that refuses', () => {
  test('is waited for once: the next opening fails at once, and the first success ends that', async () => {
    const state = { refusing: true, opened: 0 };
    const port = service(state, 150);
    await expect(port.open(tasks[0]!)).rejects.toMatchObject({ code: 'service-refused' });
    expect(state.opened).toBeGreaterThan(1);
    const before = state.opened;
    await expect(port.open(tasks[0]!)).rejects.toMatchObject({ code: 'service-refused' });
    expect(state.opened).toBe(before + 1);
    state.refusing = false;
    expect((await port.open(tasks[0]!)).sessionId).toBe(`${tasks[0]!.id}#1`);
    state.refusing = true;
    const again = state.opened;
    await expect(port.open(tasks[1]!)).rejects.toMatchObject({ code: 'service-refused' });
    expect(state.opened).toBeGreaterThan(again + 1);
  });
});
