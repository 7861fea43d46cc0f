// `shaderl verify-plan`: whether everything is still as a plan froze it.
import { dirname, resolve } from 'node:path';
import type { Command } from 'commander';
import { addCommand } from '../command.ts';
import type { OpenSession } from '../main.ts';

export function addVerifyPlan(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'verify-plan',
    summary: 'check that nothing changed since a plan was prepared; names every file that did, the first one first',
    details: 'Reads the plan, the program, the inputs and the data, every byte of them. Exit code 1 if one differs.',
    examples: ['shaderl verify-plan runs/experiment/plan.json'],
  })
    .argument('<plan>', 'plan.json')
    .action(async (file: string, options: { json?: boolean }) => {
      const session = openSession(options);
      const { loadPlan, planDifferences } = await import('../../src/experiment/freeze-node.ts');
      const folder = dirname(resolve(file));
      const { plan, sha256 } = await loadPlan(resolve(file), folder);
      session.progress.update('hashing what the plan froze');
      const differences = await planDifferences(plan, folder);
      const shown = differences.map(
        ({ file: name, frozen, found }) =>
          `${name}\n  frozen  ${frozen ?? 'not in the plan'}\n  found   ${found ?? 'no such file'}`,
      );
      const text =
        differences.length === 0
          ? `nothing changed: plan ${sha256}`
          : `${differences.length} files are not as the plan froze them:\n${shown.join('\n')}\n` +
            'Restore them, or prepare a new plan in another folder.';
      session.result({ ok: differences.length === 0, sha256, differences }, text);
      if (differences.length > 0) session.fail(1);
    });
}
