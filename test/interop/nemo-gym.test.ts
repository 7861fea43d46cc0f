// The nemo-gym package itself: our client drives its counter server, and its data models read what our service sends.
import { type ChildProcess, spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createNemoGymPort } from '../../src/environments/nemo-gym/client.ts';
import { nodeHttp } from '../../src/environments/service/http-node.ts';
import { serveGerman } from '../../workers/services/german-service.ts';
import { germanPort, play, tasks, transcriptOf } from '../wire/support/german.ts';
import { readTranscript } from '../wire/support/transcript.ts';
import { expectGermanParity } from './german-parity.ts';
import { pythonWith, startServer } from './python-modules.ts';

const python = pythonWith('nemo_gym.openai_utils', 'resources_servers.example_session_state_mgmt.app');
const reason = python ? '' : ' (skipped: no Python with nemo-gym; name one in SHADERL_INTEROP_PYTHON)';
const here = fileURLToPath(new URL('./python/', import.meta.url));

describe.skipIf(!python)(`a resources server of the nemo-gym package${reason}`, () => {
  let server: ChildProcess;
  let url: string;
  beforeAll(async () => {
    ({ server, url } = await startServer(python!, (port) => ['nemo_gym_counter.py', port], '', 90_000));
  }, 120_000);
  afterAll(() => server.kill('SIGKILL'));

  it('keeps our rollouts apart and scores them', async () => {
    const row = JSON.parse(readTranscript('nemo-gym', 'episode').lines[0]!.body!);
    const port = createNemoGymPort({ url, maxSessions: 4, tasks: 'row' }, nodeHttp);
    const play = async (id: string, steps: number[]) => {
      const { sessionId } = await port.open({ id, payload: row });
      for (const count of steps) {
        expect(await port.call(sessionId, 'increment_counter', JSON.stringify({ count }))).toEqual({
          content: '{"success":true}',
          error: false,
        });
      }
      const refused = await port.call(sessionId, 'increment_counter', '{"count":"x"}');
      expect([refused.error, refused.content.includes('int_parsing')]).toEqual([true, true]);
      const { reward } = await port.verify(sessionId, 'The count is 6.', 0);
      await port.close(sessionId);
      return reward;
    };
    // initial_count is 3 and expected_count 6.
    const rewards = await Promise.all([play('a', [1, 2]), play('b', [1]), play('c', [3]), play('d', [])]);
    expect(rewards).toEqual([1, 0, 1, 0]);
  });
});

describe.skipIf(!python)(`the German task, written in Python and served by the nemo-gym package${reason}`, () => {
  it('gives our client the prompts, tools, observations and verdicts of the environment in process', async () => {
    const { server, url } = await startServer(python!, (port) => ['nemo_gym_german.py', port], '', 90_000);
    try {
      const port = germanPort('nemo-gym', url, {}, 8);
      await expectGermanParity(port, 32);
      expect(await port.stats()).toMatchObject({ verified: 32, lost: 0, leaked: 0, open: 0 });
    } finally {
      server.kill('SIGKILL');
    }
  }, 150_000);
});

describe.skipIf(!python)(`the nemo-gym package's models${reason}`, () => {
  it('read the replies of our service', async () => {
    const service = await serveGerman({ protocol: 'nemo-gym', maxSessions: 4, version: '0.1.0' });
    const replies: { reward: number }[] = [];
    const port = createNemoGymPort({ url: service.url, maxSessions: 4, tasks: 'german' }, async (...args) => {
      const reply = await nodeHttp(...args);
      if (args[1].url.endsWith('/verify')) replies.push(JSON.parse(reply.text));
      return reply;
    });
    for (const [i, task] of tasks.slice(0, 8).entries()) await play(port, task, transcriptOf(task, i));
    await service.stop();
    const run = spawnSync(python!, ['nemo_gym_models.py'], {
      cwd: here,
      input: JSON.stringify(replies),
      encoding: 'utf8',
    });
    expect([run.status, run.status === 0 ? '' : run.stderr]).toEqual([0, '']);
    const read = JSON.parse(run.stdout) as { tools: number; types: string[]; reward: number }[];
    expect(read.map(({ tools }) => tools)).toEqual(Array(8).fill(2));
    expect(read.map(({ reward }) => reward)).toEqual(replies.map(({ reward }) => reward));
    for (const { types } of read) expect(types.at(-1)).toBe('message');
  });
});
