// `shaderl verify`: an experiment checked from its files, without a device.
import type { Command } from 'commander';
import { addCommand } from '../command.ts';
import type { OpenSession } from '../main.ts';

export function addVerify(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'verify',
    summary: 'verify an experiment from its files: chains, hashes, seals, audit, selection, merge and report',
    details:
      'Opens no device and writes nothing. Exit code 1 if a check fails. A stopped experiment is verified as far as it ' +
      'went. docs/plan.md says what is found, and how to do it without this program.',
    examples: ['shaderl verify runs/experiment'],
  })
    .argument('<run>', 'folder of the experiment')
    .action(async (run: string, options: { json?: boolean }) => {
      const session = openSession(options);
      const { verifyExperiment } = await import('../../src/experiment/verify-node.ts');
      const { renderedReport } = await import('../../workers/experiment/report-node.ts');
      session.progress.update(`verifying ${run}`);
      const { passed, planSha256, checks } = await verifyExperiment(run, renderedReport);
      const lines = checks.map(({ name, passed: good, detail }) =>
        [`${good ? 'ok    ' : 'FAILED'}  ${name}`, ...detail.slice(0, 5).map((line) => `        ${line}`)].join('\n'),
      );
      session.result(
        { passed, planSha256, checks },
        `${lines.join('\n')}\n${passed ? 'verified' : 'not verified'}: plan ${planSha256}`,
      );
      if (!passed) session.fail(1);
    });
}
