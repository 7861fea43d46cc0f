// The service of a run on tasks of its own: what is pinned of it, and that an altered, moved or unexpected one is refused
// with what was found and wanted, before or right after it is started, and never left running.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { processStart } from '../../src/experiment/lock-node.ts';
import { type OwnServiceSection, ownServiceSection } from '../../src/experiment/service.ts';
import { SERVICE_FILE, type ServiceFacts, serviceFacts } from '../../src/experiment/service-facts.ts';
import { sha256Hex } from '../../src/lib/sha256-node.ts';
import { serveGerman } from '../../workers/services/german-service.ts';
import { withEnvironment } from '../../workers/services/run-environment.ts';
import { germanPort, tasks } from '../wire/support/german.ts';
import { serveOwnGym } from '../wire/support/own-services.ts';

const base = mkdtempSync(join(tmpdir(), 'shaderl-run-service-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));

const loader = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;
const child = fileURLToPath(new URL('../wire/support/own-service-child.ts', import.meta.url));
/** Read by the service when it starts, and pinned by its answers alone. */
const versionFile = join(base, 'version');
const cwd = join(base, 'stall');
const script = join(cwd, 'serve.mjs');
const lockFile = join(cwd, 'package-lock.json');
const lockText = (version: string) => JSON.stringify({ packages: { '': {}, 'node_modules/words': { version } } });
const minutes = 60_000;

beforeEach(() => {
  mkdirSync(cwd, { recursive: true });
  writeFileSync(versionFile, '1');
  writeFileSync(
    script,
    `process.argv.push('${versionFile}'); console.log('pid', process.pid); await import('${child}');`,
  );
  writeFileSync(lockFile, lockText('2.1.0'));
});

const command = [process.execPath, '--import', loader, 'serve.mjs', 'openenv', '{port}'];
const section = (change: object = {}): OwnServiceSection => ownServiceSection.parse({ command, cwd, ...change });

/** Opens the service as `shaderl train` does and gives its facts, kept in `folder` as a run keeps them. */
async function open(folder: string, own: OwnServiceSection, resumed = false, url: string | null = null) {
  const asked = {
    env: own.url === null ? ('openenv' as const) : ('nemo-gym' as const),
    url,
    sessions: 4,
    own: { section: own, configFile: 'run.yaml', resumed: resumed ? folder : null },
    folder: join(folder, 'service'),
    name: resumed ? 'resumed' : 'train',
  };
  return withEnvironment(asked, async (_environment, facts) => {
    if (!resumed) writeFileSync(join(folder, SERVICE_FILE), JSON.stringify(facts));
    return facts as ServiceFacts;
  });
}

async function begun(name: string, own = section()): Promise<{ folder: string; facts: ServiceFacts }> {
  const folder = join(base, name);
  mkdirSync(folder);
  return { folder, facts: await open(folder, own) };
}

const refusal = (work: Promise<unknown>) =>
  work.then(
    () => expect.unreachable('it was not refused'),
    (error: { name: string; code: string; message: string }) => error,
  );
const log = (folder: string, name: string) => readFileSync(join(folder, 'service', `${name}.out.log`), 'utf8');
const alive = (text: string) => processStart(Number(/pid (\d+)/.exec(text)![1])) !== null;

describe('a service that the run starts', () => {
  test(
    'is pinned by command, folder, executable, files, package versions and answers, and is taken again',
    async () => {
      const { folder, facts } = await begun('same');
      expect(serviceFacts.parse(facts)).toEqual(facts);
      expect(facts).toMatchObject({ protocol: 'openenv', url: 'http://127.0.0.1:{port}' });
      expect(facts.owned).toMatchObject({
        command,
        cwd,
        executable: { path: process.execPath, sha256: sha256Hex(readFileSync(process.execPath)) },
        files: [{ path: script, sha256: sha256Hex(readFileSync(script)) }],
        packages: { node: process.version, words: '2.1.0' },
      });
      expect(Object.keys(facts.identity.digests)).toEqual(['/health', '/metadata', '/schema']);
      expect(facts.identity.metadata).toMatchObject({ name: 'stall', version: '1' });
      expect(await open(folder, section(), true)).toEqual(facts);
      expect(alive(log(folder, 'resumed'))).toBe(false);
    },
    minutes,
  );

  test(
    'is refused, and not left running, if it answers otherwise than when the run was started',
    async () => {
      const { folder, facts } = await begun('answers');
      writeFileSync(versionFile, '2');
      const error = await refusal(open(folder, section(), true));
      expect(error).toMatchObject({ name: 'PlanError', code: 'service-changed' });
      expect(error.message).toMatch(
        new RegExp(
          `^resuming ${folder}: checking service\\.json against http://127\\.0\\.0\\.1:\\d+/metadata: found an answer with ` +
            `SHA-256 [0-9a-f]{64} .*"version":"2".*; wanted, as when the run was started, ` +
            `${facts.identity.digests['/metadata']}\\. Nothing of the run was changed: bring that service back`,
        ),
      );
      expect(alive(log(folder, 'resumed'))).toBe(false);
    },
    minutes,
  );

  const alter: [string, () => void, string, RegExp][] = [
    [
      'a package of it has another version',
      () => writeFileSync(lockFile, lockText('2.2.0')),
      'service-changed',
      /package words of .* at version 2\.2\.0; wanted.* 2\.1\.0\./,
    ],
    [
      'a file that its command names was altered',
      () => writeFileSync(script, '//'),
      'service-changed',
      /stall\/serve\.mjs with SHA-256 [0-9a-f]{64}; wanted.* [0-9a-f]{64}\./,
    ],
    [
      'a file that its command named is gone',
      () => rmSync(script),
      'service-changed',
      /found no file .*stall\/serve\.mjs that is named; wanted.* [0-9a-f]{64}\./,
    ],
  ];
  test.each(alter)(
    'is refused before it is started if %s',
    async (what, change, code, message) => {
      const { folder } = await begun(what);
      change();
      const error = await refusal(open(folder, section(), true));
      expect(error).toMatchObject({ name: 'PlanError', code });
      expect(error.message).toMatch(message);
      expect(() => log(folder, 'resumed')).toThrow();
    },
    minutes,
  );

  test(
    'is refused before it is started if another command or folder starts it, or nothing does',
    async () => {
      const { folder } = await begun('moved');
      const other = section({ command: [...command, '--verbose'] });
      const elsewhere = section({ cwd: base, command: command.map((word) => (word === 'serve.mjs' ? script : word)) });
      for (const own of [other, elsewhere]) {
        expect(await refusal(open(folder, own, true))).toMatchObject({ name: 'PlanError', code: 'relocated-service' });
      }
      const error = await refusal(open(folder, section(), true, 'http://127.0.0.1:9'));
      expect(error).toMatchObject({ code: 'relocated-service' });
      expect(error.message).toContain(
        'found the address http://127.0.0.1:9; wanted, as when the run was started, http://127.0.0.1:{port}.',
      );
      expect(() => log(folder, 'resumed')).toThrow();
    },
    minutes,
  );
});

describe('a service that the configuration expects to be a certain one', () => {
  test(
    'is taken where answers, executable and packages are those, and refused before it is started where they are not',
    async () => {
      const { facts } = await begun('facts');
      const { '/metadata': metadata } = facts.identity.digests;
      const executable = facts.owned!.executable.sha256;
      const good = { digests: { '/metadata': metadata }, executable, packages: { words: '2.1.0' } };
      expect((await begun('expected', section({ identity: good }))).facts).toEqual(facts);

      const zeros = '0'.repeat(64);
      const wrong: [string, object, string][] = [
        ['executable', { executable: zeros }, `found ${process.execPath} with SHA-256 ${executable}; wanted ${zeros}.`],
        ['packages', { packages: { words: '2.0.0' } }, 'at version 2.1.0; wanted 2.0.0.'],
        ['no package', { packages: { letters: '1.0.0' } }, 'at version none; wanted 1.0.0.'],
      ];
      for (const [name, identity, said] of wrong) {
        const error = await refusal(begun(name, section({ identity })));
        expect(error).toMatchObject({ name: 'PlanError', code: 'service-changed' });
        expect(error.message).toMatch(/^reading service\.identity of run\.yaml: .*Nothing was trained: give the run/);
        expect(error.message).toContain(said);
        expect(() => log(join(base, name), 'train')).toThrow();
      }
      const answers = await refusal(
        begun('answers expected', section({ identity: { digests: { '/metadata': zeros } } })),
      );
      expect(answers).toMatchObject({ name: 'PlanError', code: 'service-changed' });
      expect(answers.message).toMatch(
        new RegExp(
          `against http://127\\.0\\.0\\.1:\\d+/metadata: found an answer with SHA-256 ${metadata} .*; wanted ${zeros}\\.`,
        ),
      );
      expect(alive(log(join(base, 'answers expected'), 'train'))).toBe(false);
    },
    2 * minutes,
  );

  test('has room for all rollouts of a step, or is refused with its cap before the first one', async () => {
    const own = (url: string) => section({ command: null, cwd: null, url });
    const openAs = (url: string, sessions: number) =>
      withEnvironment(
        {
          env: 'openenv',
          url: null,
          sessions,
          own: { section: own(url), configFile: 'run.yaml', resumed: null },
          folder: join(base, 'room'),
          name: 'train',
        },
        async () => 'opened',
      );
    const service = await serveGerman({ protocol: 'openenv', maxSessions: 4, version: '0.1.0' });
    try {
      expect(await openAs(service.url, 4)).toBe('opened');
      const error = await refusal(openAs(service.url, 5));
      expect(error).toMatchObject({ name: 'EnvError', code: 'small-service' });
      expect(error.message).toContain('found 4 sessions at once; wanted 5, one for each rollout of a step.');
      await expect.poll(() => service.openSessions()).toBe(0);
      // Places that somebody else holds now are waited for when the run opens its sessions.
      const other = germanPort('openenv', service.url);
      const { sessionId } = await other.open(tasks[0]!);
      expect(await openAs(service.url, 4)).toBe('opened');
      await other.close(sessionId);
    } finally {
      await service.stop();
    }
  });

  test('is asked for its answers alone where somebody else runs it', async () => {
    const service = await serveOwnGym();
    try {
      const { folder, facts } = await begun('external', section({ command: null, cwd: null, url: service.url }));
      expect(facts).toMatchObject({ protocol: 'nemo-gym', url: service.url, owned: null });
      const digests = { '/openapi.json': facts.identity.digests['/openapi.json'] };
      const own = section({ command: null, cwd: null, url: service.url, identity: { digests } });
      expect(await open(folder, own, true)).toEqual(facts);
      const packages = section({
        identity: { packages: { words: '2.1.0' } },
        command: null,
        cwd: null,
        url: service.url,
      });
      const error = await refusal(open(folder, packages));
      expect(error).toMatchObject({ name: 'PlanError', code: 'service-changed' });
      expect(error.message).toContain('found a service that is not started by the run');
    } finally {
      await service.stop();
    }
  });
});
