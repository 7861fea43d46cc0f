// The in-page device: which adapter and model, and what can be done with them: chat, train, replay.
// Not the work (device.worker.ts). Invariant: only one thing runs at a time, and the view says what.

import { chatTab } from './chat-tab.ts';
import { deviceState, hasWebGpu, loadModel, onDevice } from './device-client.ts';
import { button, fill, h } from './dom.ts';
import { number } from './format.ts';
import { noWebGpu } from './no-webgpu.ts';
import type { Page, View } from './page.ts';
import { replayTab } from './replay-tab.ts';
import { placeUrl } from './router.ts';
import { trainTab } from './train-tab.ts';

const tabs = [
  ['chat', 'Chat', chatTab],
  ['train', 'Train', trainTab],
  ['replay', 'Replay', replayTab],
] as const;

const megabytes = (bytes: number) => `${(bytes / 2 ** 20).toFixed(1)} MiB`;

function modelCard(page: Page): { element: HTMLElement; off: () => void } {
  const facts = h('dl', { class: 'facts' });
  const state = h('p', { class: 'hint', role: 'status' });
  const embedded = page.listing?.embedded ?? [];
  const useEmbedded = button('Load the embedded policy', () => {
    const urls = embedded.map(({ name }): [string, string] => [name, new URL(`embedded/${name}`, location.href).href]);
    loadModel({ label: 'the embedded policy', urls }).catch(page.report);
  });
  useEmbedded.disabled = !embedded.some(({ name }) => name.endsWith('.safetensors'));
  const picker = h('input', { type: 'file', webkitdirectory: true, multiple: true, id: 'folder' });
  // So that the same folder can be picked again after a device was lost.
  picker.addEventListener('click', () => {
    picker.value = '';
  });
  picker.addEventListener('change', () => {
    const files = [...(picker.files ?? [])];
    if (files.length > 0) loadModel({ label: 'the picked folder', files }).catch(page.report);
  });
  const update = () => {
    const { identity, model, busy } = deviceState;
    const rows: [string, string][] = [];
    if (identity) {
      rows.push([
        'Adapter',
        [identity.vendor, identity.architecture, identity.device, identity.description].filter(Boolean).join(' '),
      ]);
      rows.push(['Kind', identity.software ? 'software: it runs on the CPU' : 'GPU']);
    }
    if (model) {
      rows.push(
        ['Model', model.label],
        ['Shape', `${model.layers} layers, width ${model.hiddenSize}, ${model.vocabSize} tokens`],
      );
      rows.push(['On the device', `${megabytes(model.bytes)}, loaded in ${number(model.seconds, 1)} s`]);
    }
    fill(facts, ...rows.map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, value))));
    state.textContent = busy === '' ? (model ? 'Ready.' : 'No model is loaded.') : `Working: ${busy} …`;
  };
  update();
  const off = deviceState.changed.on(update);
  const element = h(
    'section',
    { class: 'card' },
    h('h2', null, 'Device and model'),
    facts,
    state,
    h(
      'div',
      { class: 'bar-line' },
      useEmbedded,
      h('label', { class: 'field', for: 'folder' }, h('span', null, 'or a local folder'), picker),
    ),
    useEmbedded.disabled
      ? h(
          'p',
          { class: 'hint' },
          'The embedded policy comes with `shaderl inspect`; this page has no server, so pick its folder.',
        )
      : null,
  );
  return { element, off };
}

export const deviceView: View = (page, params, main) => {
  if (!hasWebGpu) {
    fill(main, h('h1', null, 'Device'), noWebGpu());
    return () => {};
  }
  const tab = tabs.find(([name]) => name === params['tab']) ?? tabs[0];
  const body = h('div', null);
  const card = modelCard(page);
  fill(
    main,
    h('h1', null, 'Device'),
    card.element,
    h(
      'nav',
      { class: 'tabs', 'aria-label': 'What to do' },
      tabs.map(([name, label]) =>
        h(
          'a',
          { href: placeUrl('device', { ...params, tab: name }), 'aria-current': name === tab[0] ? 'page' : null },
          label,
        ),
      ),
    ),
    body,
  );
  if (!deviceState.identity) onDevice('opening the adapter', async () => {}).catch(page.report);
  const leave = tab[2](page, params, body);
  return () => {
    card.off();
    leave();
  };
};
