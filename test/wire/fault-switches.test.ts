// The fault switches of the reference services: each gives the fault that it names, to our own clients too, and what a
// client makes of it is never a reward.
import { afterEach, describe, expect, it } from 'vitest';
import { createFaults, FAULT_KINDS, parseFaultSwitch } from '../../workers/services/fault-switches.ts';
import { type Protocol, serveGerman } from '../../workers/services/german-service.ts';
import type { ServiceHandle } from '../../workers/services/openenv-server.ts';
import { runCli } from '../support/cli-terminal.ts';
import { germanPort, play, tasks, transcriptOf, trueVerdict } from './support/german.ts';

const services: ServiceHandle[] = [];
afterEach(async () => {
  for (const service of services.splice(0)) await service.stop();
});

async function serve(protocol: Protocol, ...texts: string[]) {
  const lines: string[] = [];
  const faults = createFaults(
    texts.map((text) => parseFaultSwitch(text, protocol)),
    (line) => lines.push(line),
  );
  const service = await serveGerman({ protocol, maxSessions: 8, version: '0.1.0', faults });
  services.push(service);
  return { service, lines };
}

// An episode with two lookups and a calculation, so that there is something to fail at.
const index = tasks.findIndex((task, i) => transcriptOf(task, i).calls.length >= 3);
const task = tasks[index]!;
const expert = transcriptOf(task, index);
const deadlines = { replyMs: 300, closeMs: 300, openMs: 1000 };

describe.each<[Protocol, string, string]>([
  ['nemo-gym', 'stall@verify:1', 'service-timeout'],
  ['nemo-gym', 'stall@seed_session:1', 'service-timeout'],
  ['nemo-gym', 'delay=2000@3', 'service-timeout'],
  ['nemo-gym', 'drop@nachschlagen:1', 'service-lost'],
  ['nemo-gym', 'drop-after@verify:1', 'service-lost'],
  ['nemo-gym', 'status=502@verify:1', 'service-failed'],
  ['nemo-gym', 'judge-failed@verify:1', 'no-verdict'],
  ['openenv', 'stall@step:2', 'service-timeout'],
  ['openenv', 'delay=2000@reset:1', 'service-timeout'],
  ['openenv', 'drop@step:1', 'service-lost'],
  ['openenv', 'drop-after@step:3', 'service-lost'],
  ['openenv', 'close=1011@step:2', 'service-lost'],
  ['openenv', 'error=EXECUTION_ERROR@reset:1', 'service-failed'],
])('%s with --fault %s', (protocol, text, code) => {
  it(`gives our client the fault ${code} once, and the next episode goes well`, async () => {
    const { service, lines } = await serve(protocol, text);
    const port = germanPort(protocol, service.url, deadlines);
    expect(await play(port, task, expert)).toBe(code);
    expect(await play(port, task, expert)).toEqual(await trueVerdict(task, expert));
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain(`fault: ${text.split('@')[0]} at request `);
    await port.dispose();
  });
});

describe('fault switches', () => {
  it('leave out the cookie, which our client takes from the reply before', async () => {
    const { service, lines } = await serve('nemo-gym', 'no-cookie@nachschlagen:1+');
    const port = germanPort('nemo-gym', service.url, deadlines);
    expect(await play(port, task, expert)).toEqual(await trueVerdict(task, expert));
    expect(lines.length).toBeGreaterThan(0);
    const bare = await fetch(`${service.url}/nachschlagen`, { method: 'POST', body: '{}' });
    expect(bare.headers.get('set-cookie')).toBeNull();
  });

  it('meet every later request with a plus, and never the route of liveness', async () => {
    const { service, lines } = await serve('nemo-gym', 'status=500@2+');
    const statusOf = async (path: string, method: string) => (await fetch(`${service.url}${path}`, { method })).status;
    expect(await statusOf('/', 'GET')).toBe(200);
    expect(await statusOf('/reverify_mode', 'GET')).toBe(200);
    expect(await statusOf('/reverify_mode', 'GET')).toBe(500);
    expect(await statusOf('/', 'GET')).toBe(200);
    expect(await statusOf('/ng-rollout/r1/reverify_mode', 'GET')).toBe(500);
    expect(lines).toEqual([
      'fault: status=500 at request 2, reverify_mode',
      'fault: status=500 at request 3, reverify_mode',
    ]);
  });

  it.each<[Protocol, string, string]>([
    ['nemo-gym', 'stall', 'another form'],
    ['nemo-gym', 'stall@0', 'another form'],
    ['nemo-gym', 'explode@1', 'kind "explode"'],
    ['nemo-gym', 'close=1011@1', 'kind "close"'],
    ['openenv', 'status=500@1', 'kind "status"'],
    ['nemo-gym', 'status@1', 'no value'],
    ['nemo-gym', 'stall=5@1', 'the value 5'],
    ['nemo-gym', 'status=99@1', 'the value 99'],
    ['openenv', 'close=x@1', 'the value x'],
  ])('of %s refuse %s', (protocol, text, found) => {
    expect(() => parseFaultSwitch(text, protocol)).toThrow(`reading --fault ${text}: found ${found}; wanted `);
  });

  it('are all named in the help of serve-env, and read from the command line', async () => {
    const { stdout } = await runCli('serve-env', '--help');
    const help = stdout.replaceAll(/\s+/g, ' ');
    for (const kind of Object.keys(FAULT_KINDS)) expect(help).toContain(kind);
    const { exitCode, stderr } = await runCli('serve-env', '--protocol', 'openenv', '--fault', 'no-cookie@1');
    expect([exitCode, stderr.includes('found kind "no-cookie"; wanted one of stall, delay')]).toEqual([2, true]);
    const mcp = await runCli('serve-env', '--protocol', 'openenv', '--mcp');
    expect([mcp.exitCode, mcp.stderr.includes('found --mcp with openenv')]).toEqual([2, true]);
  });
});
