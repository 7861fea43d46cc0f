// `shaderl audit`: checks every rollout of a run against its own record and the environment's rules.
import type { Command } from 'commander';
import { addCommand } from '../command.ts';
import type { OpenSession } from '../main.ts';

export function addAudit(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'audit',
    summary: 'check every rollout of a run, by code that shares nothing with the sampler',
    details: 'Exit code 1 if there is any finding.',
    examples: ['shaderl audit runs/quickstart'],
  })
    .argument('<run>', 'folder of the run')
    .action(async (run: string, options: { json?: boolean }) => {
      const session = openSession(options);
      const { auditRun } = await import('../../src/audit-node.ts');
      const audit = await auditRun(run, {
        onStep: (step, found) => session.progress.update(`audited step ${step}: ${found} findings`),
      });
      const { rollouts, steps, findings, duplicates, recomputed, notes } = audit;
      const verdict = `${rollouts} rollouts of ${steps} steps audited: ${findings.length} findings`;
      const repeats = `${duplicates.members} rollouts repeat an earlier one of their group`;
      const compared = `log-probs of ${recomputed} rollouts were recomputed; the run itself compared the others`;
      session.result(
        { run, ...audit },
        [...findings, ...notes.map((note) => `note: ${note}`), verdict, repeats, compared].join('\n'),
      );
      if (findings.length > 0) session.fail(1);
    });
}
