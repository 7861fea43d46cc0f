// `shaderl audit`: checks every rollout of a run against its own record and the environment's rules.
import type { Command } from 'commander';
import { PlanError } from '../../src/lib/errors.ts';
import { addCommand } from '../command.ts';
import type { OpenSession } from '../main.ts';

interface AuditOptions {
  json?: boolean;
  recompute?: boolean;
  replay?: boolean;
  device?: string;
}

export function addAudit(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'audit',
    summary: 'check every rollout of a run, by code that shares nothing with the sampler',
    details:
      'Exit code 1 if there is any finding. --recompute opens a device, the model and the checkpoints of the run, and ' +
      'computes the log-probs of the stored rollouts again through the pass that training uses, for every step whose ' +
      'weights were sealed. They must equal the sampled ones bit for bit on the device, driver and shaders of the run, ' +
      'and within a stated bound elsewhere. --replay also takes every step again on the stored rollouts, which covers ' +
      'the steps between two checkpoints and checks every journaled adapter (docs/audit.md).',
    examples: [
      'shaderl audit runs/quickstart',
      'shaderl audit runs/quickstart --recompute --device llvmpipe',
      'shaderl audit runs/quickstart --recompute --replay',
    ],
  })
    .argument('<run>', 'folder of the run')
    .option('--recompute', 'compute log-probs again on a device and compare them with the sampled ones')
    .option('--device <name>', 'with --recompute: refuse an adapter whose description lacks these words')
    .option('--replay', 'with --recompute: train again on the stored rollouts, for the steps between checkpoints')
    .action(async (run: string, options: AuditOptions) => {
      const session = openSession(options);
      const { recompute, replay = false, device } = options;
      const alone = device !== undefined ? `--device ${JSON.stringify(device)}` : replay ? '--replay' : null;
      if (alone !== null && !recompute) {
        throw new PlanError(
          'bad-options',
          `reading the command line: found ${alone} without --recompute; wanted both, as nothing else of an audit runs ` +
            'on a device. Add --recompute, or leave it out.',
        );
      }
      const settings = { replay, ...(device === undefined ? {} : { device }) };
      const { auditRun } = await import('../../src/audit-node.ts');
      const opener = recompute ? await import('../../workers/recompute-node.ts') : null;
      const audit = await auditRun(run, {
        ...(opener ? { recompute: (of) => opener.openRecomputer(of, settings) } : {}),
        onStep: (step, found) => session.progress.update(`audited step ${step}: ${found} findings`),
      });
      const { rollouts, steps, findings, duplicates, recomputed, notes } = audit;
      const verdict = `${rollouts} rollouts of ${steps} steps audited: ${findings.length} findings`;
      const repeats = `${duplicates.members} rollouts repeat an earlier one of their group`;
      const compared = `log-probs of ${recomputed} of ${rollouts} rollouts were recomputed; the run itself compared all`;
      session.result(
        { run, ...audit },
        [...findings, ...notes.map((note) => `note: ${note}`), verdict, repeats, compared].join('\n'),
      );
      if (findings.length > 0) session.fail(1);
    });
}
