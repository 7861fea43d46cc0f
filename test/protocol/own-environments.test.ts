// Training on services with tasks of their own, over both protocols: a file of rows, tools from the row or the service,
// rewards from the service, and an audit that knows the tasks' prompts from the service alone.
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, describe, expect, test } from 'vitest';
import { auditRun } from '../../src/audit-node.ts';
import type { OwnServiceSection } from '../../src/experiment/service.ts';
import { SERVICE_FILE } from '../../src/experiment/service-facts.ts';
import { sha256Hex } from '../../src/lib/sha256-node.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import { loadText } from '../../src/model/text.ts';
import { type Episode, episode } from '../../src/rollout/episode.ts';
import { resolveRunConfig } from '../../src/run-config.ts';
import { rolloutsFile } from '../../src/train.ts';
import { withEnvironment } from '../../workers/services/run-environment.ts';
import { trainRun } from '../../workers/train-node.ts';
import { embedded } from '../support/experiment-fixture.ts';
import { OWN_PROTOCOLS, type OwnService, ownRow, serveOwnEnv, serveOwnGym } from '../wire/support/own-services.ts';

type OwnProtocol = (typeof OWN_PROTOCOLS)[number];
const base = mkdtempSync(join(tmpdir(), 'shaderl-own-'));
const services: OwnService[] = [];
afterEach(async () => {
  for (const service of services.splice(0)) await service.stop();
});
afterAll(() => rmSync(base, { recursive: true, force: true }));

/** Questions and weights that stand nowhere else: a weight in a prompt would be the answer key. */
const stocks = [
  { Brot: 77123, Birne: 77124 },
  { Apfel: 77125, Kirsche: 77126 },
  { Honig: 77127, Quark: 77128 },
];
const question = (goods: string[]) => `Ziehe ${goods[0]} von ${goods[1]} ab. Schreibe am Ende: Antwort: <Zahl>`;
const steps = 2;
const group = 4;

function tasksFile(name: string, protocol: OwnProtocol, flags: Record<string, unknown> = {}): string {
  const lines = stocks.map((stock) => {
    const prompt = question(Object.keys(stock));
    if (protocol === 'nemo-gym') return ownRow(prompt, stock, flags);
    return { reset: { stock, question: prompt }, messages: [{ role: 'system', content: 'Nutze die Werkzeuge.' }] };
  });
  const file = join(base, `${name}.jsonl`);
  writeFileSync(file, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  return file;
}

function configure(protocol: OwnProtocol, tasks: string, service: Record<string, unknown>) {
  const config = {
    model: embedded,
    output: 'run',
    steps,
    data: { environment: protocol, tasks },
    service,
    generation: { temperature: 1, topP: 1, topK: 0, maxCompletionTokens: 120 },
    grpo: { groupSize: group, beta: 0 },
    optimizer: { learningRate: 0.002 },
    lora: { rank: 4, alpha: 8 },
    checkpoints: { every: 1 },
  };
  return resolveRunConfig(JSON.stringify(config), 'run.json');
}

/** As `shaderl train` does it; `url` is its --env-url. */
async function trained(
  name: string,
  run: Awaited<ReturnType<typeof configure>>,
  resume = false,
  stop = false,
  url: string | null = null,
) {
  const folder = join(base, name);
  const { data, service } = run.config;
  const asked = {
    env: data.environment as OwnProtocol,
    url,
    sessions: group,
    own: { section: service as OwnServiceSection, configFile: 'run.json', resumed: resume ? folder : null },
    folder: join(folder, 'service'),
    name: 'train',
  };
  const outcome = await withEnvironment(asked, (environment, facts) =>
    trainRun(run, { resume, qualify: 'here', folder, environment, service: facts, shouldStop: () => stop }),
  );
  return { folder, outcome };
}

function rolloutsOf(folder: string): Episode[] {
  return Array.from({ length: steps }, (_, i) => readFileSync(join(folder, rolloutsFile(i + 1)), 'utf8'))
    .flatMap((text) => text.trimEnd().split('\n'))
    .map((line) => episode.parse(JSON.parse(line)));
}

const serve = async (protocol: OwnProtocol, port = 0, version = '1'): Promise<OwnService> => {
  const service = await (protocol === 'openenv' ? serveOwnEnv : serveOwnGym)(port, version);
  services.push(service);
  return service;
};

describe.each(OWN_PROTOCOLS)('a training on the own tasks of a service over %s', (protocol) => {
  const options = protocol === 'openenv' ? { rewardRule: 'last', rewardWithoutSteps: 0 } : {};

  test('takes prompt, tools and rewards from the service and leaves nothing open', async () => {
    const service = await serve(protocol);
    const tasks = tasksFile(protocol, protocol);
    const run = await configure(protocol, tasks, { url: service.url, ...options });
    const { folder, outcome } = await trained(protocol, run);
    expect(outcome).toMatchObject({ status: 'finished', steps });
    expect(service.open()).toBe(0);

    const rollouts = rolloutsOf(folder);
    expect(rollouts).toHaveLength(steps * group);
    const calls = rollouts.flatMap(({ turns }) => turns.flatMap((turn) => turn.calls));
    expect(calls.filter(({ dispatched }) => dispatched).length).toBeGreaterThan(0);
    // Nobody but the service gives these observations and rewards.
    const log = rollouts.flatMap(({ verdict }) => verdict!.log);
    expect(log.length).toBeGreaterThan(0);
    for (const entry of log) expect(entry.observation).toMatch(/^\{"(g|n|problem)"|the episode is over/);
    expect(new Set(rollouts.map(({ verdict }) => verdict!.reward)).size).toBeGreaterThan(1);

    // The answer key went to the service and into no prompt.
    const text = await loadText(folderSource(embedded));
    for (const { ids, promptLength } of rollouts) {
      const prompt = text.decode(ids.slice(0, promptLength));
      expect(prompt).toContain('Weighs a good.');
      expect(prompt).not.toContain('7712');
    }
    expect(service.heard.filter((line) => line.includes('7712')).length).toBeGreaterThanOrEqual(rollouts.length);
    if (protocol === 'nemo-gym') {
      const routes = service.heard.map((line) => line.split(' ')[1]);
      expect(routes.filter((route) => route === '/verify')).toHaveLength(rollouts.length);
      const allowed = ['/', '/reverify_mode', '/openapi.json', '/seed_session', '/nachschlagen', '/rechner', '/verify'];
      expect(routes.filter((route) => !allowed.includes(route!))).toEqual([]);
    }

    // The audit after the fact reads the prompts from the service's openings, and notices others.
    expect(await auditRun(folder)).toMatchObject({ findings: [], rollouts: rollouts.length });
    const openings = join(folder, 'openings/step-000001.json');
    writeFileSync(openings, readFileSync(openings, 'utf8').replace('Weighs a good.', 'Weighs a brick.'));
    const altered = await auditRun(folder);
    expect(altered.findings.some((finding) => finding.startsWith('[prompt'))).toBe(true);
    rmSync(openings);
    expect((await auditRun(folder)).findings.join('\n')).toContain('openings/step-000001.json: found no such file');
  }, 600_000);

  test('stops, resumes and ends in the bytes of an uninterrupted run, on a service that it starts itself', async () => {
    const child = fileURLToPath(new URL('../wire/support/own-service-child.ts', import.meta.url));
    const command = [process.execPath, '--import', 'tsx', child, protocol, '{port}'];
    const tasks = tasksFile(`owned-${protocol}`, protocol);
    const run = await configure(protocol, tasks, { command, ...options });
    const whole = await trained(`whole-${protocol}`, run);
    const part = await trained(`part-${protocol}`, run, false, true);
    expect(part.outcome).toMatchObject({ status: 'interrupted', steps: 1 });
    const { outcome } = await trained(`part-${protocol}`, run, true);
    expect(outcome.adapterSha256).toBe(whole.outcome.adapterSha256);
    const evidence = (folder: string) => rolloutsOf(folder).map(({ seconds: _s, ...rest }) => rest);
    expect(evidence(part.folder)).toEqual(evidence(whole.folder));

    // Other tasks are another run.
    writeFileSync(tasks, readFileSync(tasks, 'utf8').replaceAll('77123', '77999'));
    await expect(trained(`part-${protocol}`, run, true)).rejects.toMatchObject({ code: 'other-tasks' });
  }, 600_000);
});

/** Every file of a run's folder with its bytes, but for the logs of its service. */
const contentOf = (folder: string) =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && !entry.parentPath.startsWith(join(folder, 'service')))
    .map((entry) => join(entry.parentPath, entry.name))
    .sort()
    .map((file) => [file, readFileSync(file, 'base64')]);

describe.each(OWN_PROTOCOLS)('a run on a service that somebody else keeps over %s', (protocol) => {
  const options = protocol === 'openenv' ? { rewardWithoutSteps: 0 } : {};

  test('pins it when it begins, goes on with it alone, and loses nothing to another one', async () => {
    const name = `pinned-${protocol}`;
    const service = await serve(protocol);
    const { url } = service;
    const port = Number(new URL(url).port);
    const run = await configure(protocol, tasksFile(name, protocol), { url, ...options });
    const whole = await trained(`${name}-whole`, run);
    const { folder } = await trained(name, run, false, true);

    const pinned = readFileSync(join(folder, SERVICE_FILE), 'utf8');
    expect(JSON.parse(pinned)).toMatchObject({ protocol, url, owned: null });
    const lines = readFileSync(join(folder, 'journal.jsonl'), 'utf8').trimEnd().split('\n');
    const begun = lines.map((line) => JSON.parse(line)).find(({ kind }) => kind === 'run-start');
    expect(begun.data.versions[SERVICE_FILE]).toBe(sha256Hex(Buffer.from(pinned)));
    const state = JSON.parse(readFileSync(join(folder, 'checkpoints/step-000001/state.json'), 'utf8'));
    expect(state.identity.environment).toMatch(new RegExp(`, service ${sha256Hex(Buffer.from(pinned))}$`));
    const before = contentOf(folder);
    const refusal = async (at: string | null = null) => {
      const error = await trained(name, run, true, false, at).catch((thrown: unknown) => thrown);
      expect(contentOf(folder)).toEqual(before);
      return error as { name: string; code: string; message: string };
    };

    // The same program at another address.
    const elsewhere = await serve(protocol);
    const moved = await refusal(elsewhere.url);
    expect(moved).toMatchObject({ name: 'PlanError', code: 'relocated-service' });
    expect(moved.message).toContain(
      `resuming ${folder}: checking service.json: found the address ${elsewhere.url}; wanted, as when the run was started, ${url}.`,
    );
    expect(elsewhere.heard.filter((line) => !line.startsWith('GET'))).toEqual([]);

    // Another version at the address of the first.
    await service.stop();
    services.splice(services.indexOf(service), 1);
    const other = await serve(protocol, port, '2');
    const path = protocol === 'openenv' ? '/metadata' : '/openapi.json';
    const changed = await refusal();
    expect(changed).toMatchObject({ name: 'PlanError', code: 'service-changed' });
    expect(changed.message).toMatch(
      new RegExp(
        `^resuming ${folder}: checking service\\.json against ${url}${path}: found an answer with SHA-256 [0-9a-f]{64} ` +
          `.*; wanted, as when the run was started, ${JSON.parse(pinned).identity.digests[path]}\\. Nothing of the run was ` +
          'changed: bring that service back',
      ),
    );
    await other.stop();
    services.splice(services.indexOf(other), 1);

    // The first one again: the run ends as if nothing had happened.
    await serve(protocol, port);
    const { outcome } = await trained(name, run, true);
    expect(outcome).toMatchObject({ status: 'finished', adapterSha256: whole.outcome.adapterSha256 });
    expect(await auditRun(folder)).toMatchObject({ findings: [] });

    // Facts that were altered after the fact are no facts.
    writeFileSync(join(folder, SERVICE_FILE), pinned.replace(url, elsewhere.url));
    const findings = (await auditRun(folder)).findings.join('\n');
    expect(findings).toMatch(/\[evidence\] service\.json: found SHA-256 .*; wanted .*, as the journal says/);
    await expect(trained(name, run, true, false, elsewhere.url)).rejects.toMatchObject({ code: 'altered-input' });
    writeFileSync(join(folder, SERVICE_FILE), pinned.replace('"metadata"', '"metadatum"'));
    await expect(trained(name, run, true)).rejects.toMatchObject({ code: 'bad-service-file' });
    rmSync(join(folder, SERVICE_FILE));
    await expect(trained(name, run, true)).rejects.toMatchObject({ code: 'altered-input' });
  }, 600_000);
});

describe('a rollout without a reward of its service', () => {
  const flagged = async (name: string, flags: Record<string, unknown>) => {
    const service = await serve('nemo-gym');
    const run = await configure('nemo-gym', tasksFile(name, 'nemo-gym', flags), { url: service.url });
    return { service, run };
  };

  test('is left out of its group where the service masked it, and is no zero', async () => {
    const { service, run } = await flagged('masked', { mask: 'first' });
    const { folder, outcome } = await trained('masked', run);
    expect(outcome.status).toBe('finished');
    const rollouts = rolloutsOf(folder);
    const masked = rollouts.filter(({ verdict }) => verdict === null);
    expect(masked.length).toBeGreaterThan(0);
    expect(masked.length).toBeLessThan(rollouts.length);
    for (const { infrastructure } of masked) expect(infrastructure).toContain('mask_sample');
    expect(service.open()).toBe(0);
    expect(await auditRun(folder)).toMatchObject({ findings: [] });
  }, 600_000);

  test.each([
    ['its judge failed', { judge: 'fails' }, 'judge_failed'],
    ['all of a group is masked', { mask: 'all' }, 'mask_sample'],
  ])(
    'stops the run before anything is learnt where %s',
    async (name, flags, said) => {
      const { run } = await flagged(said, flags);
      const failed = trained(name, run);
      await expect(failed).rejects.toMatchObject({ code: 'lost-rollouts', message: expect.stringContaining(said) });
    },
    600_000,
  );
});
