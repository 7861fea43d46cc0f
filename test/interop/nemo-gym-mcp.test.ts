// NeMo Gym's tools over MCP with the real thing: our client on the nemo-gym package's server, the mcp package's client
// on our service.
import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createNemoGymPort } from '../../src/environments/nemo-gym/client.ts';
import { germanRow } from '../../src/environments/service/german-tasks.ts';
import { nodeHttp } from '../../src/environments/service/http-node.ts';
import { serveGerman } from '../../workers/services/german-service.ts';
import { tasks } from '../wire/support/german.ts';
import { pythonWith, startServer } from './python-modules.ts';

const withGym = pythonWith(
  'nemo_gym.mcp_auto_exposure',
  'mcp.server.lowlevel',
  'resources_servers.example_session_state_mgmt.app',
);
const withMcp = pythonWith('mcp.client.streamable_http');
const here = fileURLToPath(new URL('./python/', import.meta.url));
const skipped = (what: string) => ` (skipped: no Python with ${what}; name one in SHADERL_INTEROP_PYTHON)`;

describe.skipIf(!withGym)(
  `a server of nemo-gym that exposes its tools over MCP${withGym ? '' : skipped('nemo-gym and mcp 1')}`,
  () => {
    let server: ChildProcess;
    let url: string;
    beforeAll(async () => {
      ({ server, url } = await startServer(withGym!, (port) => ['nemo_gym_mcp_counter.py', port], '', 90_000));
    }, 120_000);
    afterAll(() => server.kill('SIGKILL'));

    it('gives our rollouts its tools, keeps them apart and scores them', async () => {
      const payload = {
        responses_create_params: { input: [{ role: 'user', content: 'Count to 6.' }], tools: [] },
        initial_count: 3,
        expected_count: 6,
      };
      const port = createNemoGymPort({ url, maxSessions: 4, tasks: 'row' }, nodeHttp);
      const play = async (id: string, steps: number[]) => {
        const { sessionId, tools } = await port.open({ id, payload });
        expect(tools.map((tool) => tool.function.name)).toEqual(['increment_counter', 'get_counter_value']);
        for (const count of steps) {
          const observation = await port.call(sessionId, 'increment_counter', JSON.stringify({ count }));
          expect(observation).toEqual({ content: '{"success":true}', error: false });
        }
        const refused = await port.call(sessionId, 'increment_counter', '{"count":"x"}');
        expect([refused.error, refused.content.includes('int_parsing')]).toEqual([true, true]);
        expect((await port.call(sessionId, 'verify', '{}')).error).toBe(true);
        const { reward } = await port.verify(sessionId, 'The count is 6.', 0);
        await port.close(sessionId);
        return reward;
      };
      const rewards = await Promise.all([play('a', [1, 2]), play('b', [1]), play('c', [3]), play('d', [])]);
      expect(rewards).toEqual([1, 0, 1, 0]);
    });
  },
);

describe.skipIf(!withMcp)(`the mcp package's client on our service${withMcp ? '' : skipped('mcp 1')}`, () => {
  it('shakes hands, lists the tools and calls them in its session', async () => {
    const service = await serveGerman({ protocol: 'nemo-gym', maxSessions: 4, version: '0.1.0', mcp: true });
    const calls = [
      ['rechner', { ausdruck: '7 * 6' }],
      ['rechner', { ausdruck: '1 / 0' }],
      ['nope', {}],
    ];
    const child = spawn(withMcp!, ['mcp_client.py'], { cwd: here });
    let out = '';
    child.stdout.on('data', (chunk) => {
      out += chunk;
    });
    child.stdin.end(JSON.stringify({ url: service.url, row: germanRow(tasks[0]!), calls }));
    expect(await new Promise((resolve) => child.once('exit', resolve))).toBe(0);
    const read = JSON.parse(out);
    expect([read.server, read.tools]).toEqual(['german_lookup', ['nachschlagen', 'rechner']]);
    expect(read.results[0]).toEqual([false, '42']);
    expect(read.results.map(([failed]: [boolean]) => failed)).toEqual([false, true, true]);
    await service.stop();
  });
});
