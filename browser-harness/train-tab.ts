// Trains the loaded model for a few steps in the page, with its curves, and opens the run in the other views.
// Not the training (device-train.ts). Invariant: the run is an ordinary one: journal, configuration, rollouts.
import { chartData, charts, runPoints } from '../src/inspect/run-series.ts';
import { type Chart, createChart } from './curves.ts';
import { callback, deviceState, onDevice } from './device-client.ts';
import { button, fill, h, labelled } from './dom.ts';
import { createDropped } from './dropped-source.ts';
import { number, shortHash } from './format.ts';
import type { View } from './page.ts';
import { placeUrl } from './router.ts';

const shownCharts = ['Reward', 'KL to the reference', 'Gradient norm', 'Entropy', 'Length', 'Step time'];

export const trainTab: View = (page, _params, main) => {
  const field = (value: number, attributes: Record<string, string>) =>
    h('input', { type: 'number', value, ...attributes });
  const steps = field(2, { min: '1', max: '1000', step: '1' });
  const groupSize = field(4, { min: '2', max: '16', step: '1' });
  const learningRate = field(0.0005, { min: '0', step: 'any' });
  const maxTokens = field(256, { min: '16', max: '704', step: '1' });
  const seed = field(20261020, { min: '0', max: '4294967295', step: '1' });
  const status = h('p', { class: 'hint', role: 'status' });
  const grid = h('div', { class: 'charts' });
  const result = h('div', null);
  const drawn = new Map<string, Chart>();

  async function train(): Promise<void> {
    for (const chart of drawn.values()) chart.destroy();
    drawn.clear();
    fill(grid);
    fill(result);
    const run = createDropped(`in-page run ${page.runs.length + 1}`);
    const index = page.runs.push(run.source) - 1;
    page.changed.emit();
    let taking = Promise.resolve();
    const onFile = callback((name: string, bytes: Uint8Array) => {
      const file = new File([bytes as Uint8Array<ArrayBuffer>], name.split('/').at(-1)!);
      taking = taking.then(() => run.add([file]));
      if (name === 'journal.jsonl') taking = taking.then(draw);
    });
    const draw = () => {
      const points = runPoints(run.source.journal);
      for (const spec of charts) {
        const data = shownCharts.includes(spec.title) ? chartData(spec, points.steps) : null;
        if (!data) continue;
        const chart = drawn.get(spec.title);
        if (chart) {
          chart.update(data, [], []);
          continue;
        }
        const { title, unit } = spec;
        const labels = spec.lines.map(({ label }) => label);
        const made = createChart({ title, unit, labels, data, markers: [], points: [], onStep: () => {} });
        drawn.set(title, made);
        grid.append(made.element);
      }
    };
    const onRollout = callback((step: number, done: number, all: number) => {
      status.textContent = `Step ${step}: ${done} of ${all} rollouts`;
    });
    const request = {
      steps: Number(steps.value),
      groupSize: Number(groupSize.value),
      learningRate: Number(learningRate.value),
      maxTokens: Number(maxTokens.value),
      seed: Number(seed.value),
    };
    // A run that fails is kept up to its last step, with the text of the model that made it.
    run.source.text = deviceState.text;
    run.source.textNote = 'the loaded model’s tokenizer';
    const outcome = await onDevice('training', (device) => device.train(request, onFile, onRollout)).catch(
      async (error: unknown) => {
        await taking;
        status.textContent = `Stopped after ${runPoints(run.source.journal).steps.length} steps.`;
        fill(result, h('a', { href: placeUrl('run', { run: index }) }, 'Open what there is in the Run view'));
        throw error;
      },
    );
    await taking;
    run.source.changed.emit();
    status.textContent = `Done: ${outcome.steps} steps in ${number(outcome.seconds, 1)} s.`;
    const { steps: made } = runPoints(run.source.journal);
    fill(
      result,
      h(
        'p',
        {
          'data-result': 'train',
          'data-adapter': outcome.adapterSha256,
          'data-metrics': JSON.stringify(made.map(({ metrics }) => metrics)),
        },
        `Adapter ${shortHash(outcome.adapterSha256)} `,
        h('a', { href: placeUrl('run', { run: index }) }, 'Open it in the Run view'),
        '. It is gone when this page is closed.',
      ),
    );
  }
  const start = button('Train', () => train().catch(page.report), { class: 'primary' });
  const update = () => {
    start.disabled = !deviceState.model || deviceState.busy !== '';
  };
  update();
  fill(
    main,
    h(
      'section',
      { class: 'card' },
      h('h2', null, 'Train in the page'),
      h(
        'p',
        { class: 'hint' },
        'A new adapter of rank 8, the strict audit on, nothing ' +
          'sealed. The same request gives the same adapter on one device.',
      ),
      h(
        'div',
        { class: 'filters' },
        labelled('Steps', steps),
        labelled('Group size', groupSize),
        labelled('Learning rate', learningRate),
        labelled('Most tokens', maxTokens),
        labelled('Seed', seed),
      ),
      h('div', { class: 'bar-line' }, start, status),
      grid,
      result,
    ),
  );
  const off = deviceState.changed.on(update);
  return () => {
    off();
    for (const chart of drawn.values()) chart.destroy();
  };
};
