// A plan's service: what is frozen of it, and that an altered or moved one is refused with what was found and wanted.
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { planDifferences } from '../../src/experiment/freeze-node.ts';
import { processStart } from '../../src/experiment/lock-node.ts';
import type { Plan } from '../../src/experiment/plan.ts';
import { parseRecipe } from '../../src/experiment/recipe.ts';
import { type PlanService, PROOF_FILE, type ServiceSection } from '../../src/experiment/service.ts';
import { sha256Hex } from '../../src/lib/sha256-node.ts';
import { freezeService, openPlanService, servicePackageChanges } from '../../workers/experiment/service-plan.ts';
import { freezeCommand } from '../../workers/services/command-facts.ts';
import { serveGerman } from '../../workers/services/german-service.ts';
import type { ServiceHandle } from '../../workers/services/openenv-server.ts';
import { type Inputs, preparedPlan, writeInputs } from '../support/experiment-fixture.ts';

const base = mkdtempSync(join(tmpdir(), 'shaderl-plan-service-'));
const root = fileURLToPath(new URL('../../', import.meta.url));
const loader = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;
const minutes = 60_000;
const folder = join(base, 'environment');
const script = join(folder, 'serve.mjs');
const recipeFile = join(base, 'recipe.json');
/** Read by the service when it starts, and pinned by nobody. */
const versionFile = join(folder, 'version.txt');
const lockFile = join(folder, 'package-lock.json');
const lockText = (version: string) => JSON.stringify({ packages: { '': {}, 'node_modules/words': { version } } });
const services: ServiceHandle[] = [];

/** A section whose command starts the German task in a process of a test's own. */
const owned = (change: object = {}): ServiceSection =>
  parseRecipe(
    JSON.stringify({
      service: {
        command: [process.execPath, '--import', loader, 'serve.mjs', '{port}'],
        cwd: 'environment',
        maxSessions: 4,
        ...change,
      },
    }),
    recipeFile,
  ).service;

let frozen: { service: PlanService; proof: Uint8Array };
let plan: Plan;

beforeAll(async () => {
  mkdirSync(folder);
  writeFileSync(
    script,
    `import { readFileSync } from 'node:fs';
import { serveGerman } from '${join(root, 'workers/services/german-service.ts')}';
const version = readFileSync('version.txt', 'utf8');
await serveGerman({ protocol: 'openenv', port: Number(process.argv[2]), maxSessions: 64, version });
console.log('pid', process.pid);
`,
  );
  writeFileSync(versionFile, '1.0.0');
  writeFileSync(lockFile, lockText('2.1.0'));
  const inputs: Inputs = writeInputs(base);
  ({ plan } = await preparedPlan(base, inputs));
  frozen = await freezeService({ protocol: 'openenv', section: owned(), recipe: recipeFile });
  plan = { ...plan, arm: 'openenv', recipe: { ...plan.recipe, service: owned() }, service: frozen.service };
}, 2 * minutes);
afterEach(async () => {
  for (const service of services.splice(0)) await service.stop();
});
afterAll(() => rmSync(base, { recursive: true, force: true }));

const refusal = (work: Promise<unknown>) =>
  work.then(
    () => expect.unreachable('it was not refused'),
    (error: { name: string; code: string; message: string }) => error,
  );
const run = (name: string) => openPlanService(plan, join(base, name), 1);
/** Pid that the last service wrote into its log. */
const pidOf = (name: string) =>
  Number(/pid (\d+)/.exec(readFileSync(join(base, name, 'service/attempt-000001.out.log'), 'utf8'))![1]);
/** Differences of the service's files alone: the program may be worked on while this runs. */
const changedFiles = async () =>
  (await planDifferences(plan, base)).filter(({ file }) => file.startsWith(folder) || file.endsWith(PROOF_FILE));

describe('a service that the run starts', () => {
  test('is pinned by command, executable, files, package versions, answers and the bytes of its proof', () => {
    const { service, proof } = frozen;
    expect(service).toMatchObject({ protocol: 'openenv', url: 'http://127.0.0.1:{port}' });
    expect(service.owned).toMatchObject({
      command: [process.execPath, '--import', loader, 'serve.mjs', '{port}'],
      cwd: folder,
      executable: { path: process.execPath, sha256: sha256Hex(readFileSync(process.execPath)) },
      files: [{ path: script, sha256: sha256Hex(readFileSync(script)) }],
      packages: { node: process.version, words: '2.1.0' },
    });
    expect(Object.keys(service.identity.digests)).toEqual(['/health', '/metadata', '/schema']);
    expect(service.identity.metadata).toMatchObject({ version: '1.0.0' });
    expect(service.proof).toEqual({ path: PROOF_FILE, bytes: proof.length, sha256: sha256Hex(proof) });
    expect(JSON.parse(Buffer.from(proof).toString('utf8'))).toMatchObject({ passed: true, concurrency: 4 });
  });

  test(
    'is started, recognised and stopped',
    async () => {
      const service = await run('good');
      expect((await fetch(`${service.address.url}/health`)).status).toBe(200);
      expect(service.address).toMatchObject({ protocol: 'openenv', maxSessions: 4 });
      await service.stop();
      expect(processStart(pidOf('good'))).toBeNull();
    },
    minutes,
  );

  test(
    'is refused, and not left running, if it answers otherwise than when it was proven',
    async () => {
      writeFileSync(versionFile, '1.0.1');
      const error = await refusal(run('other'));
      expect(error).toMatchObject({ name: 'PlanError', code: 'service-changed' });
      expect(error.message).toMatch(
        new RegExp(
          `other/plan\\.json against http://127\\.0\\.0\\.1:\\d+/metadata: found an answer with SHA-256 [0-9a-f]{64} ` +
            `.*"version":"1\\.0\\.1".*; the plan froze ${frozen.service.identity.digests['/metadata']}\\..*new plan`,
        ),
      );
      expect(processStart(pidOf('other'))).toBeNull();
      writeFileSync(versionFile, '1.0.0');
    },
    minutes,
  );

  test('is refused before it is started if a package of it has another version', async () => {
    writeFileSync(lockFile, lockText('2.2.0'));
    expect(servicePackageChanges(plan)).toEqual([
      `package words of ${process.execPath}: found version 2.2.0; the plan froze 2.1.0`,
    ]);
    const error = await refusal(run('packages'));
    expect(error).toMatchObject({ name: 'PlanError', code: 'service-changed' });
    expect(() => readFileSync(join(base, 'packages/service/attempt-000001.out.log'))).toThrow();
    writeFileSync(lockFile, lockText('2.1.0'));
    expect(servicePackageChanges(plan)).toEqual([]);
  });

  test('has its files and its proof among those that the plan is checked against', async () => {
    mkdirSync(join(base, 'proof'), { recursive: true });
    writeFileSync(join(base, PROOF_FILE), frozen.proof);
    expect(await changedFiles()).toEqual([]);
    const good = readFileSync(script, 'utf8');
    writeFileSync(script, `${good}//`);
    writeFileSync(join(base, PROOF_FILE), '{}');
    const proof = { frozen: sha256Hex(frozen.proof), found: sha256Hex('{}') };
    expect(await changedFiles()).toMatchObject([
      { file: join(base, PROOF_FILE), ...proof },
      { file: script, frozen: sha256Hex(good), found: sha256Hex(`${good}//`) },
    ]);
    writeFileSync(script, good);
  });

  test(
    'that does not come up is named with its log',
    async () => {
      const service = owned({ command: [process.execPath, 'missing.mjs', '{port}'] });
      const error = await refusal(freezeService({ protocol: 'openenv', section: service, recipe: recipeFile }));
      expect(error).toMatchObject({ name: 'EnvError', code: 'service-exited' });
      expect(error.message).toContain('missing.mjs');
      const none = owned({ command: ['no-such-program', '{port}'] });
      expect(await refusal(freezeService({ protocol: 'openenv', section: none, recipe: recipeFile }))).toMatchObject({
        name: 'PlanError',
        code: 'no-executable',
      });
    },
    minutes,
  );
});

describe('a service that somebody else runs', () => {
  async function serve(protocol: 'nemo-gym' | 'openenv', port = 0): Promise<ServiceHandle> {
    const service = await serveGerman({ protocol, port, maxSessions: 32, version: '1.0.0' });
    services.push(service);
    return service;
  }
  const at = (url: string) => parseRecipe(JSON.stringify({ service: { url, maxSessions: 4 } }), recipeFile).service;
  const options = { protocol: 'nemo-gym', recipe: recipeFile } as const;

  test(
    'is proven when the plan is made; the proof of one is no proof of another',
    async () => {
      const [one, two] = [await serve('nemo-gym'), await serve('nemo-gym')];
      const { service, proof } = await freezeService({ ...options, section: at(one.url) });
      expect(service).toMatchObject({ owned: null, url: one.url, protocol: 'nemo-gym' });
      const file = join(base, 'smoke.json');
      writeFileSync(file, proof);
      const again = await freezeService({ ...options, section: at(one.url), proof: file });
      expect(again.service).toEqual(service);
      const error = await refusal(freezeService({ ...options, section: at(two.url), proof: file }));
      expect(error).toMatchObject({ name: 'PlanError', code: 'relocated-service' });
      expect(error.message).toContain(
        `reading the smoke proof ${file}: found a proof of ${one.url}; wanted ${two.url}`,
      );
      const wrong = {
        ...options,
        protocol: 'openenv',
        section: at((await serve('openenv')).url),
        proof: file,
      } as const;
      expect(await refusal(freezeService(wrong))).toMatchObject({ code: 'other-proof' });
    },
    minutes,
  );

  test(
    'is refused when it is gone, and is not stopped by a run',
    async () => {
      const service = await serve('nemo-gym');
      const made = await freezeService({ ...options, section: at(service.url) });
      const external: Plan = { ...plan, arm: 'nemo-gym', service: made.service };
      const opened = await openPlanService(external, join(base, 'external'), 1);
      await opened.stop();
      expect((await fetch(service.url)).status).toBe(200);
      await service.stop();
      services.pop();
      const error = await refusal(openPlanService(external, join(base, 'external'), 2));
      expect(error).toMatchObject({ name: 'EnvError', code: 'service-refused' });
    },
    minutes,
  );
});

const python = (() => {
  try {
    return execFileSync('python3', ['-c', 'import sys; print(sys.executable)'], { encoding: 'utf8' }).trim();
  } catch {
    return null;
  }
})();
if (python === null) console.info('the packages of a Python service are not tested: there is no python3');

test.runIf(python !== null)('a Python command is pinned by its interpreter and all its packages', async () => {
  const command = await freezeCommand(['python3', '-m', 'http.server', '{port}'], base);
  expect(command.command[0]).toMatch(/python3$/);
  expect(command.packages).toMatchObject({ python: expect.stringMatching(/^3\./), 'sys.executable': python });
  const tool = join(base, 'tool');
  writeFileSync(tool, `#!${python}\n`, { mode: 0o755 });
  expect((await freezeCommand([tool], base)).packages).toEqual(command.packages);
});
