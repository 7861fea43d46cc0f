// `shaderl qualify`: runs every kernel against its f64 reference on this device and writes qualification.json.
import { type Command, Option } from 'commander';
import type { KernelFamily } from '../../src/gpu/device.ts';
import type { Qualification } from '../../src/qualification.ts';
import { addCommand } from '../command.ts';
import type { OpenSession } from '../main.ts';
import { textTable } from '../table.ts';

interface QualifyOptions {
  json?: boolean;
  family: KernelFamily;
  output?: string;
}

export function addQualify(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'qualify',
    summary: 'run every kernel against its f64 reference on this device',
    details:
      'Writes qualification.json: worst error over bound of every case, whether bits repeat, and whether a token has ' +
      'the same bits whatever else is in the pass. Training wants one of this device. Exit code 1 if anything failed.',
    examples: ['shaderl qualify', 'shaderl qualify --family portable --output runs/qualification-portable'],
  })
    .addOption(new Option('--family <family>', 'kernel family').choices(['portable', 'matrix']).default('portable'))
    .option('--output <dir>', 'folder for qualification.json (default: "runs/qualification-<family>")')
    .action(async (options: QualifyOptions) => {
      const session = openSession(options);
      const { inspectAdapter, requireFamily } = await import('../../src/doctor.ts');
      const { openGpu } = await import('../../src/gpu/device.ts');
      const { qualify } = await import('../../src/qualification.ts');
      const node = await import('../../src/qualification-node.ts');
      const report = await inspectAdapter();
      // Without an adapter, opening the device says so with its remedy.
      if (report) requireFamily(report, options.family);
      const gpu = await openGpu();
      try {
        const qualification = await qualify(gpu, {
          family: options.family,
          sourceSha256: await node.sourceSha256(),
          onProgress: (done, all, kernel) => session.progress.update(`qualifying ${done}/${all}: ${kernel}`),
        });
        const file = node.writeQualification(options.output ?? node.qualificationFolder(options.family), qualification);
        session.result({ file, ...qualification }, qualifyText(qualification, file));
        if (!qualification.passed) session.fail(1);
      } finally {
        gpu.destroy();
      }
    });
}

const ratio = (worst: number | null) => (worst === null ? 'NaN' : worst === 0 ? 'exact' : worst.toPrecision(3));

/** The table, the warnings and the verdict. */
export function qualifyText(qualification: Qualification, file: string): string {
  const { kernels, canonical, device, family, passed } = qualification;
  const rows = kernels.map(({ name, cases, worst, passed: ok, slack }) => [
    name,
    String(cases.length),
    ratio(worst),
    cases.every((c) => c.stable) ? 'yes' : 'NO',
    cases.every((c) => c.guarded) ? 'yes' : 'NO',
    ok ? (slack ? 'passed, slack bound' : 'passed') : 'FAILED',
  ]);
  const table = textTable(['kernel', 'cases', 'worst/bound', 'repeats', 'guard', 'result'], rows, [1, 2]);
  const checks = canonical.map((check) => `${check.passed ? 'passed' : 'FAILED'}  ${check.name}: ${check.detail}`);
  const failures = kernels.flatMap(({ name, cases }) =>
    cases
      .filter((c) => !c.passed)
      .map((c) => `failed: ${name}, ${c.case}: worst/bound ${ratio(c.worst)}${c.at === '' ? '' : ` at ${c.at}`}`),
  );
  const warnings = kernels
    .filter((kernel) => kernel.slack)
    .map(({ name, worst }) => `warning: the bound of ${name} is slack: its worst error is ${ratio(worst)} of it`);
  const adapter = `${device.description || device.device}, ${device.dawn}`;
  const verdict = `${passed ? 'qualified' : 'NOT qualified'}: family ${family} on ${adapter}\nwrote ${file}`;
  return [table, ['canonical forward', ...checks].join('\n'), [...failures, ...warnings].join('\n'), verdict]
    .filter((part) => part !== '')
    .join('\n\n');
}
