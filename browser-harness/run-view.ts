// The Run view: what the run is, its curves with checkpoints, resumes and evaluations, and its steps.
// Not the rollouts: a step opens them. Invariant: new steps of a running job appear without drawing the page anew.
import { chartData, charts, type RunPoints, runPoints, type StepData } from '../src/inspect/run-series.ts';
import { type Chart, createChart, type Marker } from './curves.ts';
import { fill, h } from './dom.ts';
import { experimentCards, experimentHead, factsOf } from './experiment-card.ts';
import { number, percent, plural, shortHash } from './format.ts';
import { type Page, runOf, type View } from './page.ts';
import { go, placeUrl } from './router.ts';
import type { RunSource } from './run-source.ts';
import { createVirtualList } from './virtual-list.ts';

function facts(source: RunSource, points: RunPoints): [string, string][] {
  const { config } = source;
  const { start, end, steps } = points;
  const experiment = factsOf(source);
  const device = start?.device ?? {};
  const name = [device['description'] || device['device'], device['dawn']].filter(Boolean).join(', ');
  const list: [string, string][] = [
    ...(experiment ? experimentHead(source, experiment) : []),
    [
      experiment ? 'Training' : 'Status',
      end ? `${end.status}${end.reason ? `: ${end.reason}` : ''}` : start ? 'running, or stopped' : 'no journal',
    ],
    ['Steps', `${steps.length}${config ? ` of ${config.steps}` : ''}`],
  ];
  if (start && !experiment) {
    list.push(['Device', `${name || 'not named'}, ${start.kernelFamily}`], ['Plan', shortHash(start.planSha256)]);
  }
  if (config) {
    const { grpo, generation } = config;
    list.push(
      ['Model', config.model],
      ['Loss', `${grpo.loss}, beta ${grpo.beta}`],
      ['Rollouts a step', `${grpo.groupsPerStep} × ${grpo.groupSize}`],
      [
        'Tokens a rollout',
        `${generation.maxCompletionTokens} tokens, ${plural(generation.maxToolRounds, 'tool round')}`,
      ],
    );
  }
  const seconds = steps.reduce((sum, step) => sum + Object.values(step.seconds).reduce((a, b) => a + b, 0), 0);
  if (steps.length > 0) list.push(['Time in steps', `${number(seconds, 0)} s`]);
  return list;
}

function evaluationList(index: number, source: RunSource, { evaluations }: RunPoints): HTMLElement | null {
  if (evaluations.length === 0) return null;
  const items = evaluations.map(({ step, name, items: count, metrics, result }) => {
    const [metric] = Object.entries(metrics);
    const value = metric ? `${metric[0]} ${metric[1] <= 1 ? percent(metric[1]) : number(metric[1])}` : '';
    const known = source.evaluations.includes(result.file);
    const link = placeUrl('compare', { a: `${index}:${evaluations[0]!.result.file}`, b: `${index}:${result.file}` });
    return h('li', null, known ? h('a', { href: link }, name) : name, ` at step ${step}: ${value}, ${count} samples`);
  });
  return h('section', { class: 'card' }, h('h2', null, 'Evaluations'), h('ul', { class: 'plain' }, items));
}

function pointList({ checkpoints, resumes, findings }: RunPoints): HTMLElement | null {
  const items = [
    ...checkpoints.map(({ step, folder }) => [step, `sealed ${folder}`] as const),
    ...resumes.map(({ fromStep, time, overrides }) => {
      const more = overrides > 0 ? `, ${plural(overrides, 'accepted difference')}` : '';
      return [fromStep, `resumed at ${time.replace('T', ' ').slice(0, 19)}${more}`] as const;
    }),
    ...findings.map(({ step, text }) => [step, `audit: ${text}`] as const),
  ].sort(([a], [b]) => a - b);
  if (items.length === 0) return null;
  const rows = items.map(([step, text]) => h('li', null, h('b', null, `step ${step}`), ` ${text}`));
  return h(
    'section',
    { class: 'card' },
    h('h2', null, 'Checkpoints, resumes, findings'),
    h('ul', { class: 'plain' }, rows),
  );
}

export const runView: View = (page: Page, params, main) => {
  const { source, index } = runOf(page, params);
  if (!source) return () => {};
  const open = (step: number) => go('rollouts', { run: index || null, step });
  const factList = h('dl', { class: 'facts' });
  const chartGrid = h('div', { class: 'charts' });
  const aside = h('div', { class: 'cards' });
  const experimentPart = h('div', { class: 'stack' });
  const empty = h('p', { class: 'hint' });
  let steps: StepData[] = [];
  const list = createVirtualList({
    label: 'Steps',
    rowHeight: 30,
    columns: ['Step', 'Reward', 'Strict', 'KL', 'Entropy', 'Length', 'Tool failures', 'Seconds'].map((name) => ({
      name,
      width: 'minmax(4rem, 1fr)',
    })),
    cells: (i) => {
      const { step, metrics, seconds } = steps[i]!;
      const strict = metrics['rewards/strict/mean'];
      return [
        String(step),
        number(metrics['reward']),
        strict === undefined ? '–' : percent(strict),
        number(metrics['kl'], 4),
        number(metrics['entropy']),
        number(metrics['completions/mean_length'], 1),
        number(metrics['tools/failure_frequency']),
        number(
          Object.values(seconds).reduce((a, b) => a + b, 0),
          1,
        ),
      ];
    },
    open: (i) => open(steps[i]!.step),
  });
  const drawn = new Map<string, Chart>();

  function update(): void {
    const points = runPoints(source!.journal);
    const grew = steps.length > 0 && points.steps.length > steps.length;
    steps = points.steps;
    fill(
      factList,
      ...facts(source!, points).map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, value))),
    );
    const markers: Marker[] = [
      ...points.checkpoints.map(({ step }): Marker => ({ x: step, kind: 'checkpoint' })),
      ...points.resumes.map(({ fromStep }): Marker => ({ x: fromStep, kind: 'resume' })),
    ];
    const evaluated = points.evaluations.flatMap(({ step, name, metrics }) => {
      const y = metrics['strict'] ?? Object.values(metrics)[0];
      return y === undefined || y > 1 ? [] : [{ x: step, y, label: name }];
    });
    const experiment = factsOf(source!);
    for (const { step, strict } of experiment?.dev ?? []) {
      if (strict) evaluated.push({ x: step, y: strict.correct / Math.max(1, strict.samples), label: 'DEV' });
    }
    fill(experimentPart, experiment ? experimentCards(index, source!, experiment) : null);
    for (const spec of charts) {
      const data = chartData(spec, steps);
      if (!data) continue;
      const shown = spec.title === 'Strict success' ? evaluated : [];
      const chart = drawn.get(spec.title);
      if (chart) chart.update(data, markers, shown);
      else {
        const { title, unit } = spec;
        const made = createChart({
          title,
          unit,
          labels: spec.lines.map(({ label }) => label),
          data,
          markers,
          points: shown,
          onStep: open,
        });
        drawn.set(spec.title, made);
        chartGrid.append(made.element);
      }
    }
    fill(aside, evaluationList(index, source!, points), pointList(points));
    // A short run needs no tall list.
    list.element.style.maxHeight = `${34 + 30 * Math.max(4, steps.length)}px`;
    list.update(steps.length);
    if (grew) list.reveal(steps.length - 1);
    const rollouts = [...source!.files.values()].reduce((sum, rows) => sum + rows.length, 0);
    empty.textContent =
      steps.length > 0
        ? 'Click a curve or a step to open its rollouts. Dashed ' +
          'lines: checkpoints; dotted: resumes; diamonds: evaluations and DEV.'
        : `No step has been journalled yet. ${plural(rollouts, 'rollout')} can be opened under Rollouts.`;
  }
  fill(
    main,
    h('h1', null, source.name),
    factList,
    empty,
    chartGrid,
    experimentPart,
    h('section', { class: 'card' }, h('h2', null, 'Steps'), list.element),
    aside,
  );
  update();
  const off = source.changed.on(update);
  return () => {
    off();
    for (const chart of drawn.values()) chart.destroy();
  };
};
