// `shaderl verify-plan`: whether everything is still as a plan froze it.
import { dirname, resolve } from 'node:path';
import type { Command } from 'commander';
import { addCommand } from '../command.ts';
import type { OpenSession } from '../main.ts';

export function addVerifyPlan(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'verify-plan',
    summary: 'check that nothing changed since a plan was prepared; names every file that did, and its first byte',
    details:
      'Reads the plan, the program, the inputs and the data, every byte of them, and what starts the service. Names the ' +
      'first byte that differs (of files over 16 MiB: its block of 64 KiB). Contacts nothing. Exit code 1 if one differs.',
    examples: ['shaderl verify-plan runs/experiment/plan.json'],
  })
    .argument('<plan>', 'plan.json')
    .action(async (file: string, options: { json?: boolean }) => {
      const session = openSession(options);
      const { placeText } = await import('../../src/experiment/place.ts');
      const { loadPlan, planDifferences } = await import('../../src/experiment/freeze-node.ts');
      const folder = dirname(resolve(file));
      const { plan, sha256 } = await loadPlan(resolve(file), folder);
      session.progress.update('hashing what the plan froze');
      const differences = await planDifferences(plan, folder);
      const { servicePackageChanges } = await import('../../workers/experiment/service-plan.ts');
      const packages = servicePackageChanges(plan);
      const shown = differences.map(
        ({ file: name, frozen, found, place }) =>
          `${name}\n  frozen  ${frozen ?? 'not in the plan'}\n  found   ${found ?? 'no such file'}` +
          (place ? `\n  ${placeText(place)}` : ''),
      );
      const text =
        differences.length + packages.length === 0
          ? `nothing changed: plan ${sha256}`
          : `${differences.length + packages.length} items are not as the plan froze them:\n` +
            `${[...shown, ...packages].join('\n')}\n` +
            'Restore them, or prepare a new plan in another folder.';
      const ok = differences.length + packages.length === 0;
      session.result({ ok, sha256, differences, packages }, text);
      if (!ok) session.fail(1);
    });
}
