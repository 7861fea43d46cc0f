import { describe, expect, test } from 'vitest';
import { failureOf } from '../../cli/failure.ts';
import { createProgress, formatBytes } from '../../cli/progress.ts';
import { evaluationProgress, runProgress } from '../../cli/run-progress.ts';
import { factLines, textTable } from '../../cli/table.ts';
import {
  AuditError,
  CheckpointError,
  DeviceError,
  EnvError,
  EvaluationError,
  KernelError,
  ModelFileError,
  PlanError,
} from '../../src/lib/errors.ts';
import { keptTerminal } from '../support/cli-terminal.ts';

describe('progress on a terminal', () => {
  test('rewrites one line, and takes it away before a line that stays', () => {
    const terminal = keptTerminal({ interactive: true });
    const progress = createProgress(terminal);
    progress.update('one');
    terminal.time = 200;
    progress.update('two');
    progress.line('kept');
    progress.clear();
    expect(terminal.stderr).toBe('\r\x1b[2Kone\r\x1b[2Ktwo\r\x1b[2Kkept\n');
  });

  test('cuts a line that would wrap, since a wrapped one could not be rewritten', () => {
    const terminal = keptTerminal({ interactive: true, columns: 20 });
    createProgress(terminal).update('x'.repeat(20));
    expect(terminal.stderr).toBe(`\r\x1b[2K${'x'.repeat(16)}...`);
  });

  test('is not redrawn more than ten times a second', () => {
    const terminal = keptTerminal({ interactive: true });
    const progress = createProgress(terminal);
    for (terminal.time = 0; terminal.time < 1000; terminal.time += 10) progress.update('x');
    expect(terminal.stderr.match(/x/g)).toHaveLength(10);
  });
});

describe('progress on a pipe', () => {
  test('is a plain line at first and one every ten seconds; lines that stay are all there', () => {
    const terminal = keptTerminal();
    const progress = createProgress(terminal);
    for (let second = 0; second <= 20; second++) {
      terminal.time = second * 1000;
      progress.update(`at ${second} s`);
      if (second === 3) progress.line('note');
    }
    progress.clear();
    expect(terminal.stderr).toBe('at 0 s\nnote\nat 10 s\nat 20 s\n');
  });
});

describe('what is left', () => {
  const lines = (work: (progress: ReturnType<typeof createProgress>, at: (ms: number) => void) => void) => {
    const terminal = keptTerminal({ interactive: true });
    work(createProgress(terminal), (ms) => {
      terminal.time = ms;
    });
    const plain = terminal.stderr.replaceAll('\r\x1b[2K', '\n');
    return plain.split('\n').filter((line) => line !== '');
  };

  test('of a training is told from its second step on, by the pace of its last ten, and not at the end', () => {
    const shown = lines((progress) => {
      const { onStep } = runProgress(progress);
      for (let step = 1; step <= 20; step++) onStep?.(step, 20, { step_time: step <= 8 ? 100 : 30 });
    });
    expect(shown[0]).toBe('step 1/20  step_time 100');
    expect(shown[1]).toBe('step 2/20  step_time 100  about 30 min 0 s left');
    expect(shown[17]).toBe('step 18/20  step_time 30  about 1 min 0 s left');
    expect(shown[19]).toBe('step 20/20  step_time 30');
  });

  test('of a branch that begins again does not take the pace of the one before', () => {
    const shown = lines((progress) => {
      const { onStep } = runProgress(progress);
      for (const seconds of [100, 2]) for (const step of [1, 2, 3]) onStep?.(step, 4, { step_time: seconds });
    });
    expect(shown[3]).toBe('step 1/4  step_time 2');
    expect(shown[4]).toBe('step 2/4  step_time 2  about 4 s left');
  });

  test('of an evaluation is told once a quarter of it is done, and is its own', () => {
    const shown = lines((progress, at) => {
      let ms = 0;
      const show = evaluationProgress(progress, () => ms);
      for (const [time, unit, finished] of [
        [0, 'a', 0],
        [10_000, 'a', 3],
        [20_000, 'a', 4],
        [60_000, 'a', 16],
        [61_000, 'b', 0],
        [65_000, 'b', 8],
      ] as const) {
        at(time);
        ms = time;
        show(unit, finished, 16);
      }
    });
    expect(shown).toEqual([
      'a: 0/16 samples',
      'a: 3/16 samples',
      'a: 4/16 samples, about 1 min 0 s left of it',
      'a: 16/16 samples',
      'b: 0/16 samples',
      'b: 8/16 samples, about 4 s left of it',
    ]);
  });
});

describe('an error', () => {
  test.each([
    [new PlanError('a', 'm'), 2],
    [new ModelFileError('a', 'm'), 2],
    [new KernelError('a', 'm'), 1],
    [new AuditError('a', 'm'), 1],
    [new CheckpointError('a', 'm'), 1],
    [new EvaluationError('a', 'm'), 1],
    [new DeviceError('a', 'm'), 3],
    [new EnvError('a', 'm'), 4],
    [new TypeError('m'), 4],
  ])('%s ends the command with exit code %i', (error, exitCode) => {
    expect(failureOf(error, false).exitCode).toBe(exitCode);
    const { error: plain } = JSON.parse(failureOf(error, true).text);
    expect(plain).toEqual({
      class: error.name,
      code: error instanceof TypeError ? 'unexpected' : 'a',
      message: 'm',
      exitCode,
    });
  });

  test('of ours is shown in one line, and any other with its stack', () => {
    expect(failureOf(new DeviceError('lost', 'doing: found; wanted. Do.'), false).text).toBe(
      'shaderl: DeviceError [lost]: doing: found; wanted. Do.\n',
    );
    expect(failureOf(new TypeError('x is no function'), false).text).toMatch(
      /^shaderl: TypeError \[unexpected\]: x is no function\n +at .*cli-progress\.test\.ts/,
    );
  });
});

describe('text for people', () => {
  test('gives sizes in decimal units with one digit', () => {
    const sizes = [0, 999, 1000, 999_949, 999_950, 134_217_728, 4_294_967_295, 2.5e15];
    expect(sizes.map(formatBytes)).toEqual([
      '0 bytes',
      '999 bytes',
      '1.0 kB',
      '999.9 kB',
      '1.0 MB',
      '134.2 MB',
      '4.3 GB',
      '2500.0 TB',
    ]);
  });

  test('lines columns up, numbers flush right', () => {
    expect(
      textTable(
        ['name', 'n'],
        [
          ['a', '1'],
          ['long name', '100'],
        ],
        [1],
      ),
    ).toBe(['name         n', '---------  ---', 'a            1', 'long name  100'].join('\n'));
    expect(
      factLines([
        ['a', '1'],
        ['bcd', '2'],
      ]),
    ).toBe('a    1\nbcd  2');
  });
});
