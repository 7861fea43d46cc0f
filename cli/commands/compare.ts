// `shaderl compare`: two evaluations of the same items, paired.
import type { Command } from 'commander';
import type { Comparison } from '../../src/evaluation/compare.ts';
import { addCommand, numberOption, seedRange } from '../command.ts';
import type { OpenSession } from '../main.ts';
import { factLines, textTable } from '../table.ts';

export function addCompare(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'compare',
    summary: 'compare two evaluations of the same items, item by item',
    details:
      'A is the baseline, B the candidate, both written by `shaderl evaluate`. Gives wins and losses, the paired ' +
      'difference with its bootstrap interval over items, and the exact McNemar test. Exit code 1 where the two are ' +
      'not evaluations of the same items under the same settings.',
    examples: ['shaderl compare runs/before.json runs/after.json'],
  })
    .argument('<a>', 'evaluation file of the baseline')
    .argument('<b>', 'evaluation file of the candidate')
    .addOption(numberOption('--seed <n>', 'seed of the bootstrap', seedRange, 0))
    .action(async (a: string, b: string, options: { json?: boolean; seed: number }) => {
      const session = openSession(options);
      const { readEvaluation } = await import('../../src/evaluation/files-node.ts');
      const { compareEvaluations } = await import('../../src/evaluation/compare.ts');
      const comparison = compareEvaluations(readEvaluation(a), readEvaluation(b), {
        seed: options.seed,
        files: [a, b],
      });
      session.result(comparison, compareText(comparison));
    });
}

const percent = (rate: number) => `${(100 * rate).toFixed(1)} %`;
const points = (difference: number) => `${difference >= 0 ? '+' : ''}${(100 * difference).toFixed(1)} points`;

function compareText(c: Comparison): string {
  const { difference, interval } = c.difference;
  const facts = factLines([
    ['measure', `${c.measure}, suite ${c.suite}`],
    ['a', `${percent(c.a.rate)} (${c.a.correct} of ${c.a.samples})`],
    ['b', `${percent(c.b.rate)} (${c.b.correct} of ${c.b.samples})`],
    ['difference', points(difference)],
    ['95 % interval', interval ? `${points(interval.low)} to ${points(interval.high)}, over items` : 'none'],
    ['items', `${c.items}: ${c.wins} won, ${c.losses} lost, ${c.ties} equal`],
    ['McNemar', `p = ${c.mcnemar.pValue.toPrecision(3)}, exact`],
    ['left out', `${c.leftOut} samples that a failed service lost`],
  ]);
  const rows = Object.entries(c.outcomes).map(([outcome, both]) => [outcome, String(both.a), String(both.b)]);
  const notes = c.notes.map((note) => `note: ${note}`).join('\n');
  return [facts, textTable(['outcome', 'a', 'b'], rows, [1, 2]), notes].filter((part) => part !== '').join('\n\n');
}
