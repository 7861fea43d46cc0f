// The smoke proof: it passes on our services, fails on ones that are wrong, and its bytes are canonical JSON. Also the
// two commands, from the command line to the exit code.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { canonicalJson } from '../../src/lib/canonical-json.ts';
import { sha256Hex } from '../../src/lib/sha256-node.ts';
import { germanResourcesServer } from '../../workers/services/german-nemo-gym.ts';
import { germanEnvironmentClass } from '../../workers/services/german-openenv.ts';
import { PROTOCOLS, serveGerman } from '../../workers/services/german-service.ts';
import { serveNemoGym } from '../../workers/services/nemo-gym-server.ts';
import { serveOpenEnv } from '../../workers/services/openenv-server.ts';
import { proveService, SMOKE_FILE, writeSmokeReport } from '../../workers/services/smoke/smoke.ts';
import { germanPort, tasks } from './support/german.ts';

const folder = mkdtempSync(join(tmpdir(), 'smoke-'));
afterAll(() => rmSync(folder, { recursive: true }));

const failedChecks = (report: Awaited<ReturnType<typeof proveService>>): string[] =>
  report.checks.filter(({ ok }) => !ok).map(({ name }) => name);

describe.each(PROTOCOLS)('the smoke proof over %s', (protocol) => {
  it('passes at least 12 checks on our own service and leaves no session', async () => {
    const service = await serveGerman({ protocol, maxSessions: 16, version: '0.1.0', timeToLiveMs: 2_000 });
    const report = await proveService({ protocol, url: service.url, concurrency: 16 });
    expect(report.checks.filter(({ ok }) => !ok)).toEqual([]);
    expect(report.checks.length).toBeGreaterThanOrEqual(12);
    expect(new Set(report.checks.map(({ name }) => name)).size).toBe(report.checks.length);
    // A NeMo Gym session whose client was cut off is freed after its time.
    await expect.poll(() => service.openSessions(), { timeout: 10_000 }).toBe(0);
    const sha256 = await writeSmokeReport(join(folder, protocol), report);
    const bytes = readFileSync(join(folder, protocol, SMOKE_FILE));
    expect(sha256Hex(bytes)).toBe(sha256);
    expect(canonicalJson(JSON.parse(bytes.toString('utf8')))).toBe(bytes.toString('utf8'));
    await expect(writeSmokeReport(join(folder, protocol), report)).rejects.toMatchObject({ code: 'smoke-exists' });
    await service.stop();
  });

  it.runIf(protocol === 'nemo-gym')('calls tools over MCP where it is told to, and says so', async () => {
    const service = await serveGerman({ protocol, maxSessions: 16, version: '0.1.0', mcp: true });
    const report = await proveService({ protocol, url: service.url, concurrency: 4, mcp: 'always' });
    expect(failedChecks(report)).toEqual([]);
    expect(report.mcp).toBe('always');
    await service.stop();
    const without = await serveGerman({ protocol, maxSessions: 16, version: '0.1.0' });
    const refused = await proveService({ protocol, url: without.url, concurrency: 4, mcp: 'always' });
    expect(failedChecks(refused)).toContain('prompt-parity');
    await without.stop();
  });

  it('finds a service that holds fewer sessions than wanted', async () => {
    const service = await serveGerman({ protocol, maxSessions: 4, version: '0.1.0' });
    const report = await proveService({ protocol, url: service.url, concurrency: 6 });
    expect(failedChecks(report)).toContain('concurrency');
    await service.stop();
  }, 90_000);

  it('rejects with an infrastructure failure where nothing answers', async () => {
    const service = await serveGerman({ protocol, maxSessions: 1, version: '0.1.0' });
    await service.stop();
    const proof = proveService({ protocol, url: service.url, concurrency: 1 });
    await expect(proof).rejects.toMatchObject({ code: 'service-refused' });
  });
});

describe('the smoke proof finds', () => {
  it('a tool that answers something else, and a score that is too kind', async () => {
    const server = germanResourcesServer({ maxSessions: 32 });
    const { run } = server.tools['rechner']!;
    server.tools = {
      ...server.tools,
      rechner: {
        model: null,
        run: async (...args) => {
          const result = await run(...args);
          return 'text' in result && result.text === '4814' ? { text: '4815' } : result;
        },
      },
    };
    const verify = server.verify!;
    server.verify = {
      ...verify,
      async run(...args) {
        const reply = await verify.run(...args);
        // Without the log, the client itself cannot notice.
        reply.delete('log');
        return reply.set('strict', true);
      },
    };
    const service = await serveNemoGym({ server });
    const report = await proveService({ protocol: 'nemo-gym', url: service.url, concurrency: 4 });
    expect(failedChecks(report)).toEqual(['tool-parity', 'replay-parity', 'strict-score-parity', 'forged-history']);
    await service.stop();
  });

  it('a log that is not what the client sent and got, by the client itself', async () => {
    const server = germanResourcesServer({ maxSessions: 32 });
    const verify = server.verify!;
    const run: typeof verify.run = async (...args) => (await verify.run(...args)).set('log', []);
    server.verify = { ...verify, run };
    const service = await serveNemoGym({ server });
    const port = germanPort('nemo-gym', service.url);
    const { sessionId } = await port.open(tasks[0]!);
    await port.call(sessionId, 'rechner', '{"ausdruck":"1+1"}');
    await expect(port.verify(sessionId, 'Antwort: 2', 0)).rejects.toMatchObject({ code: 'log-mismatch' });
    await port.dispose();
    await service.stop();
  });

  it('sessions that share one table', async () => {
    const environment = germanEnvironmentClass('0.1.0');
    const shared = environment.create();
    // One instance for all sockets: the last reset wins.
    const service = await serveOpenEnv({
      environment: { ...environment, create: () => ({ ...shared, close: () => {} }) },
      maxSessions: 32,
    });
    const report = await proveService({ protocol: 'openenv', url: service.url, concurrency: 4 });
    expect(failedChecks(report)).toContain('reset-isolation');
    await service.stop();
  });
});
