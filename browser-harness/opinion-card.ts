// The card of the second opinion: tfjs on the same adapter, kernel by kernel, and how far apart the two are.
// Not the comparing (tfjs.worker.ts). Invariant: a row's verdict follows from the numbers that it shows.
import { dataTable } from './data-table.ts';
import { deviceState, exclusively } from './device-client.ts';
import { button, fill, h } from './dom.ts';
import { number } from './format.ts';
import { type FetchedOpinion, secondOpinion } from './opinion-client.ts';
import type { Page } from './page.ts';
import { APART_LIMIT, agrees, type OpinionRow } from './second-opinion.ts';

let latest: FetchedOpinion | null = null;

const ratio = (worst: number) => (worst === 0 ? 'equal' : Number.isFinite(worst) ? worst.toPrecision(3) : 'NaN');

function ratioCell(worst: number, limit: number): HTMLElement {
  const width = 100 * Math.min(1, Number.isFinite(worst) ? worst / limit : 1);
  return h(
    'td',
    null,
    h(
      'span',
      { class: 'bar' },
      h('span', { class: 'bar-fill', style: `width:${width}%` }),
      h('span', { class: 'bar-text' }, ratio(worst)),
    ),
  );
}

function tableRow(row: OpinionRow): HTMLElement {
  const same = agrees(row);
  return h(
    'tr',
    { class: same ? '' : 'failed', 'data-kernel': row.kernel },
    h('th', { scope: 'row' }, row.kernel),
    h('td', null, row.operations),
    h('td', null, `${row.values} in ${row.cases}`),
    ratioCell(row.kernelWorst, 1),
    ratioCell(row.tfjsWorst, 1),
    ratioCell(row.apart, APART_LIMIT),
    h('td', { class: 'nowrap' }, same ? '✓ agree' : '✗ DIFFER'),
    h('td', { class: 'at' }, row.at),
  );
}

function resultNodes({ opinion, bytes, seconds }: FetchedOpinion): HTMLElement[] {
  const { rows, tfjsVersion, tfjsAdapter, ourAdapter } = opinion;
  const same = rows.every(agrees);
  const adapters =
    tfjsAdapter === ourAdapter ? `Both on ${ourAdapter}.` : `This program on ${ourAdapter}, tfjs on ${tfjsAdapter}.`;
  const head = [
    'Kernel',
    'tfjs operations',
    'Values in cases',
    'Kernel error',
    'tfjs error',
    'Apart',
    'Verdict',
    'Worst difference',
  ];
  const caption =
    'Three distances, each over the error bound of its element: kernel to f64 reference, tfjs to f64 reference, ' +
    `kernel to tfjs. The last may be ${APART_LIMIT}: both may be off by the bound, in opposite directions. ` +
    'tfjs multiplies by its tiled program throughout.';
  return [
    h(
      'p',
      { 'data-result': 'opinion', 'data-agrees': String(same), role: 'status' },
      h('b', null, same ? `✓ tfjs ${tfjsVersion} agrees` : `✗ tfjs ${tfjsVersion} differs`),
      `: ${adapters} Fetched ${number(bytes / 1e6, 2)} MB for it; ${number(seconds, 1)} s.`,
    ),
    dataTable('Second opinion', head, rows.map(tableRow), caption),
  ];
}

/** The card; `startNow` asks at once (the address said `against=tfjs`). */
export function opinionCard(page: Page, startNow: boolean): { element: HTMLElement; off: () => void } {
  const status = h('span', { class: 'hint', role: 'status' });
  const result = h('div', null);
  async function run(): Promise<void> {
    status.textContent = 'fetching tfjs';
    try {
      latest = await exclusively('asking tfjs', () =>
        secondOpinion((done, all, kernel) => {
          status.textContent = `${done} of ${all}: ${kernel}`;
        }),
      );
      fill(result, resultNodes(latest));
    } finally {
      status.textContent = '';
    }
  }
  const start = button('Ask tfjs', () => run().catch(page.report));
  const update = () => {
    start.disabled = deviceState.busy !== '';
  };
  update();
  if (latest) fill(result, resultNodes(latest));
  if (startNow && deviceState.busy === '') run().catch(page.report);
  const element = h(
    'section',
    { class: 'card' },
    h('h2', null, 'Second opinion'),
    h(
      'p',
      { class: 'hint' },
      'Computes the cases of products, norms, softmax and log-softmax with the WebGPU backend of TensorFlow.js on the ' +
        'same adapter. It is a file of its own, fetched from this server when you ask.',
    ),
    h('div', { class: 'bar-line' }, start, status),
    result,
  );
  return { element, off: deviceState.changed.on(update) };
}
