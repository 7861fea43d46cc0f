// The bench's load on a service: so many sessions are open all the time, each failure is told, nothing is left open.
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterEach, describe, expect, it } from 'vitest';
import { type HoldOrder, holdSessions, passes } from '../../bench/service-hold.ts';
import type { LoadFigures } from '../../bench/service-load.ts';
import { countOf, scriptsOf } from '../../bench/service-play.ts';
import type { EnvironmentPort } from '../../src/environments/port.ts';
import type { ServicePort } from '../../src/environments/service/port.ts';
import { createFaults, parseFaultSwitch } from '../../workers/services/fault-switches.ts';
import { PROTOCOLS, type Protocol, serveGerman } from '../../workers/services/german-service.ts';
import type { ServiceHandle } from '../../workers/services/openenv-server.ts';
import { germanPort } from './support/german.ts';

const services: ServiceHandle[] = [];
afterEach(async () => {
  for (const service of services.splice(0)) await service.stop();
});

const scripts = scriptsOf(16);
const order: HoldOrder = { sessions: 8, spare: 8, warm: 8, episodes: 24 };

async function serve(protocol: Protocol, ...faults: string[]): Promise<{ service: ServiceHandle; port: ServicePort }> {
  const switches = faults.map((text) => parseFaultSwitch(text, protocol));
  const maxSessions = order.sessions + order.spare;
  const options = { protocol, maxSessions, version: '0.1.0', faults: createFaults(switches, () => {}) };
  const service = await serveGerman(options);
  services.push(service);
  return { service, port: germanPort(protocol, service.url, { openMs: 200 }, maxSessions) };
}

describe.each(PROTOCOLS)('load on the %s service', (protocol) => {
  it.each([8, 2])('is never less than its sessions, as the service counts them, with %i spare', async (spare) => {
    const { service, port } = await serve(protocol);
    let marks = 0;
    const seen: number[] = [];
    const watched: EnvironmentPort = {
      ...port,
      call: (...asked) => {
        if (marks === 1) seen.push(service.openSessions());
        return port.call(...asked);
      },
    };
    const held = await holdSessions(watched, scripts, { ...order, spare }, () => ++marks);
    expect(held.failures).toEqual([]);
    expect(seen.length).toBeGreaterThan(20);
    expect(Math.min(...seen)).toBeGreaterThanOrEqual(8);
    expect(Math.max(...seen)).toBeLessThanOrEqual(held.most);
    expect(held).toMatchObject({ least: 8, begin: 1, end: 2 });
    expect(held.most).toBeLessThanOrEqual(8 + spare);
    // An episode that was open before that time lacks its opening, one that is open after it its verdict.
    for (const kind of ['open', 'verify'] as const) expect(Math.abs(held.ms[kind].length - 24)).toBeLessThanOrEqual(8);
    expect(service.openSessions()).toBe(0);
    const { verified, ...rest } = await port.stats();
    expect(rest).toMatchObject({ opened: verified, open: 0, leaked: 0, lost: 0 });
    expect(verified).toBeGreaterThanOrEqual(8 + 24);
    expect(verified).toBeLessThan(8 + 24 + 8 + spare);
  });

  it('tells one failure for one fault, goes on, and closes what the fault left', async () => {
    const fault = protocol === 'openenv' ? 'drop@step:30' : 'drop@nachschlagen:30';
    const { service, port } = await serve(protocol, fault);
    const { failures, ms } = await holdSessions(port, scripts, order, () => null);
    expect(failures).toHaveLength(1);
    expect(failures[0]).toMatch(/^(calling|opening) /);
    expect(ms.verify.length).toBeGreaterThan(10);
    expect(service.openSessions()).toBe(0);
  });

  it('ends with every episode failed where the service is gone', async () => {
    const { service, port } = await serve(protocol);
    await service.stop();
    const { failures } = await holdSessions(port, scripts, { ...order, episodes: 8 }, () => null);
    expect(failures.length).toBeGreaterThanOrEqual(16);
  });
});

it('counts an answer and a verdict that are not those in process as failures', async () => {
  const { service, port } = await serve('openenv');
  let [calls, verdicts] = [0, 0];
  const wrong: EnvironmentPort = {
    ...port,
    call: async (...asked) => {
      const answer = await port.call(...asked);
      return ++calls === 3 ? { ...answer, content: `${answer.content} ` } : answer;
    },
    verify: async (...asked) => {
      const verdict = await port.verify(...asked);
      return ++verdicts === 5 ? { ...verdict, strict: !verdict.strict } : verdict;
    },
  };
  const { failures } = await holdSessions(wrong, scripts, order, () => null);
  expect(failures).toHaveLength(2);
  expect(failures.join()).toMatch(/as in process.*another verdict than in process/);
  expect(service.openSessions()).toBe(0);
});

it('passes where nothing failed and neither side has a session left', () => {
  const figures = { failures: 0, left: { client: 0, service: 0 } };
  expect(passes(figures)).toBe(true);
  expect(passes({ ...figures, failures: 1 })).toBe(false);
  expect(passes({ ...figures, left: { client: 1, service: 0 } })).toBe(false);
  expect(passes({ ...figures, left: { client: 0, service: 1 } })).toBe(false);
});

it('refuses a count that is none, with its range', () => {
  expect(countOf('sessions', '1024', 1024)).toBe(1024);
  for (const text of ['0', '1025', '1.5', 'viele', '']) {
    expect(() => countOf('sessions', text, 1024)).toThrow(
      `reading --sessions: found ${text}; wanted a count from 1 to 1024`,
    );
  }
});

it('measures both reference services in processes of their own', async () => {
  const bench = fileURLToPath(new URL('../../bench/service-load.ts', import.meta.url));
  const options = ['--sessions', '8', '--episodes', '24', '--warm', '8', '--json'];
  const { stdout } = await promisify(execFile)(process.execPath, ['--import', 'tsx', bench, ...options]);
  const found = JSON.parse(stdout) as { passed: boolean; rows: LoadFigures[] };
  expect(found).toMatchObject({ sessions: 8, spare: 8, episodes: 24, passed: true });
  expect(found.rows.map(({ protocol }) => protocol)).toEqual([...PROTOCOLS]);
  for (const { least, failures, left, requests, client, service, episodesPerSecond } of found.rows) {
    expect({ least, failures, left }).toEqual({ least: 8, failures: 0, left: { client: 0, service: 0 } });
    for (const { median, p95, longest } of Object.values(requests)) {
      expect([median, p95, longest]).toEqual([median, p95, longest].sort((a, b) => a - b));
      expect(median).toBeGreaterThan(0);
    }
    expect(episodesPerSecond).toBeGreaterThan(0);
    expect(Math.min(client.cpuMs, client.peakMiB, service.cpuMs, service.peakMiB)).toBeGreaterThan(0);
  }
});
