import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { cliPage, cliPagePath } from '../../tools/cli-page.ts';
import { runCli } from '../support/cli-terminal.ts';

const names = (
  'quickstart doctor qualify sample score train evaluate compare audit merge report prepare verify-plan run queue status ' +
  'verify inspect serve-env smoke-env serve-model bench'
).split(' ');

describe.each(names)('shaderl %s --help', (name) => {
  test('shows an example that starts with the command, and the --json flag', async () => {
    const { exitCode, stdout, stderr } = await runCli(name, '--help');
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
    expect(stdout).toMatch(new RegExp(`Examples?:\\n {2}\\$ shaderl ${name}\\b`));
    expect(stdout).toMatch(/^ {2}--json /m);
  });
});

describe('shaderl', () => {
  test('lists every command and the exit codes in its help', async () => {
    const { exitCode, stdout } = await runCli('--help');
    expect(exitCode).toBe(0);
    expect([...stdout.matchAll(/^ {2}([\w-]+) (?:\[options\]|\[command\])/gm)].map(([, name]) => name)).toEqual([
      ...names,
      'help',
    ]);
    expect([...stdout.matchAll(/^ {2}([0-4]) {2}\w/gm)].map(([, code]) => code)).toEqual(['0', '1', '2', '3', '4']);
  });

  test('has a page in docs that is what the commands say now', async () => {
    expect(readFileSync(cliPagePath, 'utf8')).toBe(await cliPage());
  });

  test('refuses to do nothing', async () => {
    const { exitCode, stdout, stderr } = await runCli();
    expect({ exitCode, stdout }).toEqual({ exitCode: 2, stdout: '' });
    expect(stderr).toMatchInlineSnapshot(`
      "shaderl: PlanError [no-command]: reading the command line: found no command; wanted one. Run \`shaderl --help\` for the list, or \`shaderl quickstart\` to see the whole job.
      "
    `);
  });

  test('names the nearest command for an unknown one', async () => {
    const { exitCode, stderr } = await runCli('qualifiy');
    expect(exitCode).toBe(2);
    expect(stderr).toMatchInlineSnapshot(`
      "shaderl: PlanError [unknown-command]: reading the command line: unknown command 'qualifiy'; did you mean qualify? Run \`shaderl --help\` for what it takes.
      "
    `);
  });

  test('says that a command is unknown where none is near', async () => {
    const { exitCode, stderr } = await runCli('xyzzy');
    expect(exitCode).toBe(2);
    expect(stderr).toMatchInlineSnapshot(`
      "shaderl: PlanError [unknown-command]: reading the command line: unknown command 'xyzzy'. Run \`shaderl --help\` for what it takes.
      "
    `);
  });

  test('names the nearest option for an unknown one', async () => {
    const { exitCode, stdout, stderr } = await runCli('sample', '--modle', 'x');
    expect({ exitCode, stdout }).toEqual({ exitCode: 2, stdout: '' });
    expect(stderr).toMatchInlineSnapshot(`
      "shaderl: PlanError [unknown-option]: reading the command line: unknown option '--modle'; did you mean --model? Run \`shaderl sample --help\` for what it takes.
      "
    `);
  });

  test('reports a usage error as one line of JSON with --json', async () => {
    const { exitCode, stdout, stderr } = await runCli('score', '--json', '--ids', 'a.json');
    expect({ exitCode, stdout }).toEqual({ exitCode: 2, stdout: '' });
    expect(stderr.trimEnd()).not.toContain('\n');
    expect(JSON.parse(stderr)).toMatchInlineSnapshot(`
      {
        "error": {
          "class": "PlanError",
          "code": "missing-mandatory-option-value",
          "exitCode": 2,
          "message": "reading the command line: required option '--model <dir>' not specified. Run \`shaderl score --help\` for what it takes.",
        },
      }
    `);
  });
});

describe('a value that an option does not take', () => {
  test.each([
    ['sample', '--model', 'm', '--prompt', 'x', '--top-p', '0'],
    ['sample', '--model', 'm', '--prompt', 'x', '--top-p', '1.5'],
    ['sample', '--model', 'm', '--prompt', 'x', '--temperature', '-1'],
    ['sample', '--model', 'm', '--prompt', 'x', '--max-tokens', '2.5'],
    ['sample', '--model', 'm', '--prompt', 'x', '--seed', '4294967296'],
    ['sample', '--model', 'm', '--prompt', 'x', '--min-p', 'NaN'],
    ['sample', '--model', 'm', '--prompt', 'x', '--top-k', ''],
    ['score', '--model', 'm', '--text', 'x', '--temperature', '0'],
    ['qualify', '--family', 'fast'],
    ['evaluate', '--model', 'm', '--suite', 'agent', '--episodes', '4', '--output', 'o', '--seeds', '1,2,1'],
    ['evaluate', '--model', 'm', '--suite', 'agent', '--episodes', '4', '--output', 'o', '--seeds', '1,x'],
    ['evaluate', '--model', 'm', '--suite', 'code', '--episodes', '4', '--output', 'o'],
    ['quickstart', '--steps', '0'],
  ])('%s %s %s %s %s %s %s is refused before any work', async (...argv) => {
    const { exitCode, stdout, stderr } = await runCli(...argv);
    expect({ exitCode, stdout }).toEqual({ exitCode: 2, stdout: '' });
    expect(stderr).toContain('PlanError [invalid-argument]');
  });

  test('is named together with what was wanted', async () => {
    expect((await runCli('sample', '--model', 'm', '--prompt', 'x', '--top-p', '1.5')).stderr).toMatchInlineSnapshot(`
      "shaderl: PlanError [invalid-argument]: reading the command line: option '--top-p <p>' argument '1.5' is invalid. Wanted a number, more than 0 and at most 1. Run \`shaderl sample --help\` for what it takes.
      "
    `);
    expect(
      (await runCli('sample', '--model', 'm', '--prompt', 'x', '--max-tokens', '0')).stderr,
    ).toMatchInlineSnapshot(`
      "shaderl: PlanError [invalid-argument]: reading the command line: option '--max-tokens <n>' argument '0' is invalid. Wanted a whole number, at least 1. Run \`shaderl sample --help\` for what it takes.
      "
    `);
    expect((await runCli('qualify', '--family', 'fast')).stderr).toMatchInlineSnapshot(`
      "shaderl: PlanError [invalid-argument]: reading the command line: option '--family <family>' argument 'fast' is invalid. Allowed choices are portable, matrix. Run \`shaderl qualify --help\` for what it takes.
      "
    `);
  });
});

describe('options that contradict each other', () => {
  test.each([
    ['sample', '--model', 'm'],
    ['sample', '--model', 'm', '--prompt', ''],
    ['sample', '--model', 'm', '--prompt', 'x', '--messages', 'f'],
    ['sample', '--model', 'm', '--prompt', 'x', '--tools', 'f'],
    ['sample', '--model', 'm', '--messages', 'f', '--raw'],
    ['score', '--model', 'm'],
    ['score', '--model', 'm', '--ids', 'f', '--text', 'x'],
    ['evaluate', '--model', 'm', '--suite', 'agent', '--output', 'o'],
    ['evaluate', '--model', 'm', '--suite', 'agent', '--output', 'o', '--data', 'f'],
    ['evaluate', '--model', 'm', '--suite', 'math', '--output', 'o', '--data', 'f', '--episodes', '4'],
    ['compare', 'only-one.json'],
    ['compare', 'a.json', 'b.json', 'c.json'],
    ['audit'],
  ])('%s %s %s %s %s %s %s %s are refused with exit code 2', async (...argv) => {
    const { exitCode, stdout, stderr } = await runCli(...argv);
    expect({ exitCode, stdout }).toEqual({ exitCode: 2, stdout: '' });
    expect(stderr).toMatch(/^shaderl: PlanError \[[a-z-]+\]: reading the command line: /);
  });

  test('are explained', async () => {
    expect((await runCli('sample', '--model', 'm')).stderr).toMatchInlineSnapshot(`
      "shaderl: PlanError [bad-options]: reading the command line: found neither --prompt nor --messages; wanted one of them. Give --prompt "Hello", for example.
      "
    `);
    expect(
      (await runCli('evaluate', '--model', 'm', '--suite', 'agent', '--output', 'o', '--data', 'f')).stderr,
    ).toMatchInlineSnapshot(`
      "shaderl: PlanError [bad-options]: reading the command line: found --data with suite agent; wanted --episodes, as its episodes are generated. Give --episodes 64, for example.
      "
    `);
    expect((await runCli('score', '--model', 'm', '--ids', 'f', '--text', 'x')).stderr).toMatchInlineSnapshot(`
      "shaderl: PlanError [conflicting-option]: reading the command line: option '--ids <file>' cannot be used with option '--text <text>'. Run \`shaderl score --help\` for what it takes.
      "
    `);
  });
});
