// The qualification page: every kernel against its f64 reference on this browser's adapter, and the file of it.
// Not the qualifying (src/qualification.ts). Invariant: the download is the same JSON that `shaderl qualify` writes.
import { formatQualification, type Qualification } from '../src/qualification.ts';
import { dataTable } from './data-table.ts';
import { callback, deviceState, hasWebGpu, onDevice } from './device-client.ts';
import { button, download, fill, h } from './dom.ts';
import { plural } from './format.ts';
import { noWebGpu } from './no-webgpu.ts';
import { opinionCard } from './opinion-card.ts';
import type { View } from './page.ts';

let latest: { qualification: Qualification; seconds: number } | null = null;

const ratio = (worst: number | null) => (worst === null ? 'NaN' : worst === 0 ? 'exact' : worst.toPrecision(3));
const yes = (value: boolean) => (value ? 'yes' : 'NO');

function kernelRows({ kernels }: Qualification): HTMLElement[] {
  return kernels.map(({ name, cases, worst, passed, slack }) =>
    h(
      'tr',
      { class: passed ? '' : 'failed' },
      h('th', { scope: 'row' }, name),
      h('td', null, cases.length),
      h(
        'td',
        null,
        h(
          'span',
          { class: 'bar' },
          h('span', { class: 'bar-fill', style: `width:${100 * Math.min(1, worst ?? 1)}%` }),
          h('span', { class: 'bar-text' }, ratio(worst)),
        ),
      ),
      h('td', null, yes(cases.every(({ stable }) => stable))),
      h('td', null, yes(cases.every(({ guarded }) => guarded))),
      h('td', null, passed ? (slack ? '✓ passed, slack bound' : '✓ passed') : '✗ FAILED'),
      h(
        'td',
        null,
        cases
          .filter((one) => !one.passed)
          .map((one) => `${one.case}: ${one.at}`)
          .join('; '),
      ),
    ),
  );
}

function resultNodes({ qualification, seconds }: NonNullable<typeof latest>): HTMLElement[] {
  const { device, passed, canonical } = qualification;
  const name = [device.vendor, device.architecture, device.device, device.description].filter(Boolean).join(' ');
  const head = ['Kernel', 'Cases', 'Worst error / bound', 'Bits repeat', 'Guard kept', 'Result', 'What failed'];
  return [
    h(
      'p',
      { 'data-result': 'qualify', 'data-passed': String(passed), role: 'status' },
      h('b', null, passed ? '✓ Qualified' : '✗ Not qualified'),
      `: ${plural(qualification.kernels.length, 'kernel')} on ` +
        `${name}${device.software ? ' (software)' : ''}, ${seconds.toFixed(1)} s.`,
    ),
    button('Download qualification.json', () => download('qualification.json', formatQualification(qualification))),
    dataTable('Kernels', head, kernelRows(qualification)),
    h('h2', null, 'Canonical forward'),
    h(
      'ul',
      { class: 'plain' },
      canonical.map((check) => h('li', null, `${check.passed ? '✓' : '✗'} ${check.name}: ${check.detail}`)),
    ),
  ];
}

export const qualifyView: View = (page, params, main) => {
  if (!hasWebGpu) {
    fill(main, h('h1', null, 'Qualify'), noWebGpu());
    return () => {};
  }
  const status = h('span', { class: 'hint', role: 'status' });
  const result = h('div', null);
  async function run(): Promise<void> {
    const began = performance.now();
    const progress = callback((done: number, all: number, kernel: string) => {
      status.textContent = `${done} of ${all}: ${kernel}`;
    });
    // A page from a disk does not know the program's source; an all-zero hash stands for that.
    const sourceSha256 = page.listing?.sourceSha256 ?? '0'.repeat(64);
    const qualification = await onDevice('qualifying', (device) => device.qualify(sourceSha256, progress));
    latest = { qualification, seconds: (performance.now() - began) / 1000 };
    status.textContent = '';
    fill(result, resultNodes(latest));
  }
  const start = button('Qualify this adapter', () => run().catch(page.report), { class: 'primary' });
  const update = () => {
    start.disabled = deviceState.busy !== '';
  };
  update();
  const opinion = opinionCard(page, params['against'] === 'tfjs');
  fill(
    main,
    h('h1', null, 'Qualify'),
    h(
      'section',
      { class: 'card' },
      h(
        'p',
        { class: 'hint' },
        'Runs every case of every kernel against its f64 reference, twice, ' +
          'and the canonical forward. The shaders and cases are those of Node.',
      ),
      h('div', { class: 'bar-line' }, start, status),
      result,
    ),
    opinion.element,
  );
  if (latest) fill(result, resultNodes(latest));
  const off = deviceState.changed.on(update);
  return () => {
    off();
    opinion.off();
  };
};
