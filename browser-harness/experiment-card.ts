// The experiment that a training belongs to: stages, DEV points with the selection, attempts and the account.
// Not a report (shaderl report). Invariant: a state is a word and a sign, never a colour alone.
import {
  type DevRow,
  type ExperimentFacts,
  experimentFacts,
  type Score,
  type StageRow,
} from '../src/inspect/experiment-facts.ts';
import { dataTable } from './data-table.ts';
import { h } from './dom.ts';
import { number, percent, shortHash } from './format.ts';
import { placeUrl } from './router.ts';
import type { RunSource } from './run-source.ts';

/** The facts of a source's experiment; null where it has none. */
export const factsOf = ({ experiment }: RunSource): ExperimentFacts | null => experiment && experimentFacts(experiment);

const signs: Record<StageRow['state'], string> = {
  passed: '✓ passed',
  'under way': '… under way',
  stopped: '■ stopped',
  'not begun': '– not begun',
};

const time = (iso: string | null) => (iso === null ? '–' : iso.replace('T', ' ').slice(0, 19));

/** What a stage found, without digests and the device, which stand elsewhere. */
function stageText({ facts }: StageRow): string {
  return Object.entries(facts)
    .filter(([name, value]) => !/sha256|digest|^device\.|^step-/i.test(name) && String(value).length < 40)
    .map(
      ([name, value]) =>
        `${name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)} ${typeof value === 'number' ? number(value, 4) : value}`,
    )
    .join(', ');
}

function stagesCard({ stages }: ExperimentFacts): HTMLElement {
  const rows = stages.map((row) =>
    h(
      'tr',
      { 'data-stage': row.stage, 'data-state': row.state },
      h('th', { scope: 'row' }, row.stage),
      h('td', { class: 'nowrap' }, signs[row.state]),
      h('td', { class: 'nowrap' }, time(row.ended)),
      h('td', null, stageText(row)),
    ),
  );
  return h(
    'section',
    { class: 'card' },
    h('h2', null, 'Stages'),
    dataTable('Stages', ['Stage', 'State', 'Ended (UTC)', 'Found'], rows),
  );
}

const score = (value: Score | null) =>
  value === null
    ? '–'
    : `${value.correct} of ${value.samples} (${percent(value.correct / Math.max(1, value.samples))})`;

function verdictOf({ step, rank, eligible, reasons, chosen }: DevRow): string {
  const place = chosen === 'selected' ? '◆ selected' : chosen === 'diagnostic' ? '◇ assessed as a diagnostic' : '';
  const rule =
    step === 0 || eligible === null ? '' : eligible ? `eligible, rank ${rank}` : `not eligible: ${reasons.join('; ')}`;
  return [place, rule].filter((text) => text !== '').join(', ') || '–';
}

function devCard(index: number, { dev, selection }: ExperimentFacts, { experiment, evaluations }: RunSource) {
  const baseline = dev[0]?.file ?? null;
  const rows = dev.map((row) => {
    const both = baseline !== null && row.file !== null && row.step !== 0 && evaluations.includes(row.file);
    const link = both
      ? h('a', { href: placeUrl('compare', { a: `${index}:${baseline}`, b: `${index}:${row.file}` }) }, 'item by item')
      : '–';
    return h(
      'tr',
      { 'data-dev': row.step, class: row.chosen ? 'chosen-row' : '' },
      h('th', { scope: 'row' }, row.step === 0 ? 'baseline' : `step ${row.step}`),
      h('td', { class: 'nowrap' }, score(row.strict)),
      h('td', { class: 'nowrap' }, score(row.math)),
      h('td', null, row.toolErrors ?? '–'),
      h('td', null, verdictOf(row)),
      h('td', { class: 'nowrap' }, link),
    );
  });
  const recommendation = experiment?.recommendation ?? null;
  const decided =
    selection === null
      ? 'No step has been selected yet.'
      : selection.selected === null
        ? `Rule ${selection.rule} selected no step: the baseline stays, and step ${selection.assessed} was assessed as a diagnostic.`
        : `Rule ${selection.rule} selected step ${selection.selected}.`;
  return h(
    'section',
    { class: 'card' },
    h('h2', null, 'DEV and selection'),
    h('p', { 'data-result': 'selection' }, decided),
    recommendation
      ? h(
          'p',
          { 'data-result': 'recommendation' },
          h('b', null, `Recommended: ${recommendation.step === null ? '' : `step ${recommendation.step}, `}`),
          h('b', null, recommendation.recommended),
          `: ${recommendation.reason}.`,
        )
      : null,
    dataTable('DEV points', ['Policy', 'Strict success', 'Math', 'Tool errors', 'Rule', 'Against the baseline'], rows),
  );
}

function attemptsCard({ attempts, budget }: ExperimentFacts): HTMLElement {
  const used = budget.chargedSeconds / Math.max(1, budget.wallSeconds);
  const rows = attempts.map(({ attempt, host, started, status, reason, chargedSeconds }) =>
    h(
      'tr',
      { 'data-attempt': attempt },
      h('th', { scope: 'row' }, attempt === 1 ? '1: start' : `${attempt}: resume`),
      h('td', { class: 'nowrap' }, time(started)),
      h('td', null, host),
      h('td', null, status.replaceAll('-', ' ')),
      h('td', null, `${chargedSeconds} s`),
      h('td', null, reason || '–'),
    ),
  );
  return h(
    'section',
    { class: 'card' },
    h('h2', null, 'Attempts and budget'),
    h(
      'span',
      { class: 'bar', 'data-result': 'budget' },
      h('span', { class: 'bar-fill', style: `width:${100 * Math.min(1, used)}%` }),
      h(
        'span',
        { class: 'bar-text' },
        `${budget.chargedSeconds} s of ${budget.wallSeconds} s, ${Math.max(0, budget.wallSeconds - budget.chargedSeconds)} s left`,
      ),
    ),
    dataTable('Attempts', ['Attempt', 'Began (UTC)', 'Host', 'Ended', 'Charged', 'Reason'], rows),
  );
}

/** Names and values for the head of the Run view. */
export function experimentHead({ experiment }: RunSource, facts: ExperimentFacts): [string, string][] {
  if (!experiment) return [];
  const { device, description, family, dawn } = facts.device;
  const list: [string, string][] = [
    ['Experiment', `${experiment.recipe}, arm ${experiment.arm}`],
    ['Experiment state', facts.state],
    ['Plan', shortHash(experiment.planSha256)],
  ];
  const named = [description || device, dawn, family].filter(Boolean).join(', ');
  if (named !== '') list.push(['Device', named]);
  return list;
}

export function experimentCards(index: number, source: RunSource, facts: ExperimentFacts): HTMLElement[] {
  return [devCard(index, facts, source), stagesCard(facts), attemptsCard(facts)];
}
