// What a recipe may say of a service, which proofs a plan takes, and how another service is told.
import { describe, expect, test } from 'vitest';
import { parseRecipe } from '../../src/experiment/recipe.ts';
import {
  clientOptions,
  type PlanService,
  type ProofWanted,
  requireProof,
  requireSameService,
  withPort,
} from '../../src/experiment/service.ts';
import { resolvedSection } from '../../workers/services/reference-command.ts';
import { runCli } from '../support/cli-terminal.ts';

const recipe = (service: object) => parseRecipe(JSON.stringify({ service }), 'r.json');

describe('the service of a recipe', () => {
  test('is the reference service of this program where nothing is said', () => {
    const { service } = parseRecipe('{}', 'r.json');
    expect(service).toMatchObject({ url: null, command: null, maxSessions: 32, healthDeadlineSeconds: 60 });
    const { url, command } = resolvedSection(service, 'openenv');
    expect(url).toBe('http://127.0.0.1:{port}');
    expect(command?.slice(0, 1)).toEqual([process.execPath]);
    expect(command?.slice(2, 7)).toEqual(['serve-env', '--protocol', 'openenv', '--port', '{port}']);
  });

  test.each([
    [{ url: 'http://127.0.0.1:8000' }],
    [{ url: 'https://[::1]:8000/' }],
    [{ command: ['python', 'server.py', '--port', '{port}'], cwd: 'env', files: ['env/task.py'] }],
    [{ command: ['server'], url: 'http://127.0.0.1:8000' }],
  ])('may be %j', (service) => {
    expect(recipe(service).service).toMatchObject(service);
  });

  test.each([
    [{ url: '127.0.0.1:8000' }, /"service\.url": found "127\.0\.0\.1:8000"; wanted http\(s\):\/\/host:port/],
    [{ url: 'http://h:1/ws' }, /"service\.url".*nothing after it/],
    [{ url: 'http://h:{port}' }, /"service\.url".*wanted a port, as nothing is started/],
    [{ command: ['server'] }, /"service\.command": found \["server"\]; wanted \{port\} in one of its words/],
    [{ command: ['s', '{port}'], url: 'http://h:1' }, /"service\.url": found "http:\/\/h:1"; wanted \{port\} in it/],
    [{ url: 'http://h:1', cwd: 'x' }, /"service\.cwd": found "x"; wanted service\.command beside it/],
    [{ url: 'http://h:1', files: ['x'] }, /"service\.files"/],
    [{ maxSessions: 0 }, /"service\.maxSessions": found 0; wanted at least 1/],
    [{ urls: 'x' }, /"service\.urls"; the nearest known key is "service\.url"/],
    [{ deadlines: { openMS: 5 } }, /nearest known key is "service\.deadlines\.openMs"/],
  ])('is refused where it contradicts itself: %j', (service, message) => {
    expect(() => recipe(service)).toThrow(message);
  });

  test('says whether tools are called over MCP, and the reference service offers them then', () => {
    const { service } = recipe({ mcp: 'always' });
    expect(clientOptions(service, 'german')).toEqual({ tasks: 'german', mcp: 'always' });
    expect(resolvedSection(service, 'nemo-gym').command).toContain('--mcp');
    expect(clientOptions(recipe({}).service, 'german')).toEqual({ tasks: 'german' });
    expect(() => recipe({ mcp: 'sometimes' })).toThrow(/"service\.mcp": found "sometimes"; wanted one of "auto"/);
  });

  test('has the german task alone: suites and proof are of it', () => {
    const own = JSON.stringify({ training: { data: { environment: 'openenv', tasks: 'rows.jsonl' } } });
    expect(() => parseRecipe(own, 'r.json')).toThrow(/"training\.data\.environment": found "openenv"; wanted german/);
  });

  test('gets its port wherever a word asks for it', () => {
    expect(withPort('--bind=127.0.0.1:{port}', 4000)).toBe('--bind=127.0.0.1:4000');
    expect(withPort('http://h:{port}', null)).toBe('http://h:{port}');
  });
});

const digest = (letter: string) => letter.repeat(64);
const identity = { digests: { '/health': digest('a'), '/schema': digest('b') }, metadata: { name: 'x' } };
const checks = [
  'service-identity wire-manners prompt-parity tool-parity tool-error-parity replay-parity strict-score-parity',
  'reset-repeats reset-isolation forged-history undeclared-tools verify-once concurrency loss-of-service deadline',
]
  .join(' ')
  .split(' ')
  .map((name) => ({ name, ok: true, found: '', wanted: '' }));
const good = {
  schema: 'shaderl.smoke/1',
  protocol: 'openenv',
  url: 'http://127.0.0.1:8000',
  service: identity,
  client: {},
  concurrency: 32,
  checks,
  passed: true,
};
const wanted: ProofWanted = { protocol: 'openenv', url: 'http://127.0.0.1:8000', sessions: 32, identity };
const proof = (change: object = {}) => JSON.stringify({ ...good, ...change });

describe('a smoke proof', () => {
  test('is taken if it is of this service, complete and passed', () => {
    expect(() => requireProof(proof(), 'p.json', wanted)).not.toThrow();
  });

  test('may name any port where the port is chosen at each start, but no other host', () => {
    const anyPort = { ...wanted, url: 'http://127.0.0.1:{port}' };
    expect(() => requireProof(proof(), 'p.json', anyPort)).not.toThrow();
    expect(() => requireProof(proof({ url: 'http://other:8000' }), 'p.json', anyPort)).toThrow(/relocated|elsewhere/);
  });

  test.each([
    ['bad-proof', 'text that is no JSON', '{', /reading the smoke proof p\.json: found/],
    ['bad-proof', 'another schema', proof({ schema: 'x' }), /found schema/],
    ['other-proof', 'the other protocol', proof({ protocol: 'nemo-gym' }), /found protocol nemo-gym; wanted openenv/],
    [
      'failed-proof',
      'a failed check',
      proof({ checks: [...checks, { name: 'x', ok: false }], passed: false }),
      /found check x failed/,
    ],
    ['failed-proof', 'no verdict of its own', proof({ passed: false }), /found check undefined failed/],
    ['bad-proof', 'few checks', proof({ checks: checks.slice(0, 11) }), /found no check concurrency/],
    [
      'bad-proof',
      'a needed check missing',
      proof({ checks: checks.filter(({ name }) => name !== 'loss-of-service') }),
      /found no check loss-of-service/,
    ],
    [
      'relocated-service',
      'another address',
      proof({ url: 'http://127.0.0.1:8001' }),
      /found a proof of http:\/\/127\.0\.0\.1:8001; wanted http:\/\/127\.0\.0\.1:8000\. A service elsewhere needs/,
    ],
    [
      'other-proof',
      'tools called another way',
      proof({ mcp: 'always' }),
      /found tools called over MCP; wanted tools called by their routes, as service\.mcp says/,
    ],
    ['small-proof', 'fewer sessions', proof({ concurrency: 8 }), /found 8 sessions at once; wanted at least .*32/],
    [
      'other-proof',
      'another schema answer',
      proof({ service: { ...identity, digests: { ...identity.digests, '/schema': digest('c') } } }),
      new RegExp(`found /schema with SHA-256 ${digest('c')}; wanted ${digest('b')}`),
    ],
  ])('is refused as %s for %s', (code, _name, text, message) => {
    expect(() => requireProof(text, 'p.json', wanted)).toThrow(
      expect.objectContaining({ name: 'PlanError', code, message: expect.stringMatching(message) }),
    );
  });
});

describe('a service that answers otherwise than the plan froze', () => {
  const service: PlanService = {
    protocol: 'openenv',
    url: 'http://127.0.0.1:8000',
    owned: null,
    identity,
    proof: { path: 'proof/smoke.json', bytes: 1, sha256: digest('d') },
  };
  test('is refused with the path, both hashes and a remedy', () => {
    const other = { ...identity, digests: { ...identity.digests, '/health': digest('e') } };
    expect(() => requireSameService(service, 'http://127.0.0.1:8000', other, '/r/plan.json')).toThrow(
      expect.objectContaining({
        code: 'service-changed',
        message: expect.stringMatching(
          new RegExp(
            `checking /r/plan.json against http://127.0.0.1:8000/health: found an answer with SHA-256 ${digest('e')} ` +
              `.*; the plan froze ${digest('a')}\\. .* prepare a new plan`,
          ),
        ),
      }),
    );
    expect(() => requireSameService(service, 'http://127.0.0.1:8000', identity, '/r/plan.json')).not.toThrow();
  });
});

describe('prepare refuses options that do not fit each other:', () => {
  const inputs = ['--baseline', 'b', '--tokenizer', 't', '--math-dev', 'd', '--mgsm', 'm'];
  test.each([
    ['an input that is missing', inputs.slice(0, 6), /found no --mgsm; wanted all inputs/],
    [
      'an input beside --baseline-from',
      [...inputs.slice(0, 2), '--baseline-from', 'x'],
      /found --baseline with --baseline-from/,
    ],
    ['--rerun-baseline of a first arm', [...inputs, '--rerun-baseline'], /found --rerun-baseline alone/],
    ['a proof of nothing', [...inputs, '--proof', 'p'], /found --proof with --env local/],
  ])('%s', async (_name, argv, message) => {
    const { exitCode, stderr } = await runCli('prepare', ...argv, '--env', 'local', '--output', 'o');
    expect({ exitCode }).toEqual({ exitCode: 2 });
    expect(stderr).toMatch(message);
  });
});
