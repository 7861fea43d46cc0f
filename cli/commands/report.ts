// `shaderl report`: report.html and report.json of a run, from its journal and evaluation files.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from 'commander';
import { addCommand } from '../command.ts';
import type { OpenSession } from '../main.ts';

export function addReport(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'report',
    summary: "write report.html and report.json of a run, from the run's own records",
    details: 'Reads the journal, verifying every line, and the evaluation files that it names.',
    examples: ['shaderl report runs/quickstart'],
  })
    .argument('<run>', 'folder of the run')
    .action(async (run: string, options: { json?: boolean }) => {
      const session = openSession(options);
      session.progress.update(`reading ${run}`);
      if (existsSync(join(run, 'plan.json'))) {
        const { reportExperiment } = await import('../../workers/experiment/report-node.ts');
        const { json, html } = await reportExperiment(run);
        session.result({ json, html }, `wrote ${html}`);
        return;
      }
      const { reportRun } = await import('../../workers/report-node.ts');
      const { report, json, html } = await reportRun(run);
      session.result({ json, html, headline: report.headline }, `${report.headline}\nwrote ${html}`);
    });
}
