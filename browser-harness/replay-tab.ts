// Replays one recorded rollout on this device and shows how its log-probs differ from the record, token by token.
// Not the scoring (device-replay.ts). Invariant: the summary counts differing tokens by their bits.

import { deviceState, onDevice } from './device-client.ts';
import { button, checkbox, fill, h, labelled, select } from './dom.ts';
import { number } from './format.ts';
import { type OpenedRollout, openRollout } from './open-rollout.ts';
import { runOf, type View } from './page.ts';
import { keepReplay } from './replay-store.ts';
import { tokenCard } from './rollout-side.ts';
import { placeUrl } from './router.ts';
import { fileTitle } from './run-source.ts';
import { tokenRange } from './token-stream.ts';

interface Difference {
  token: number;
  size: number;
}

function differences({ episode }: OpenedRollout, logprobs: readonly (number | null)[]): Difference[] {
  return episode.ids.flatMap((_, token) => {
    const [recorded, own] = [episode.logprobs[token], logprobs[token]];
    if (recorded === null || recorded === undefined || own === null || own === undefined) return [];
    return [{ token, size: Math.abs(own - recorded) }];
  });
}

export const replayTab: View = (page, params, main) => {
  const { source, index } = runOf(page, params);
  const file = params['file'];
  if (!source || file === undefined) {
    fill(
      main,
      h(
        'section',
        { class: 'card' },
        h('h2', null, 'Replay'),
        h('p', { class: 'hint' }, 'Open a rollout and choose “replay on this device”.'),
      ),
    );
    return () => {};
  }
  const line = Number(params['line'] ?? 1);
  let baseInstead = false;
  let chosen = '';
  const result = h('div', null);

  async function replay(): Promise<void> {
    const opened = await openRollout(source!, file!, line);
    const adapters: [string, Uint8Array, Uint8Array][] = [];
    for (const folder of source!.checkpoints) {
      const files = source!.adapterFiles(folder);
      if (!files) continue;
      const whole = async (name: string) => files.read(name, 0, (await files.size(name))!);
      adapters.push([folder, await whole('adapter_config.json'), await whole('adapter_model.safetensors')]);
    }
    const request = { episode: opened.episode, adapters, config: source!.config, baseInstead, chosen: chosen || null };
    const found = await onDevice('replaying', (device) => device.replay(request));
    const values = { logprobs: found.logprobs, entropies: found.entropies, policy: found.policy };
    keepReplay(opened, values);
    const list = differences(opened, found.logprobs);
    const unequal = list.filter(({ size }) => size !== 0);
    const worst = list.reduce((a, b) => (b.size > a.size ? b : a), list[0] ?? { token: 0, size: 0 });
    const mean = list.reduce((sum, { size }) => sum + size, 0) / Math.max(1, list.length);
    const verdict =
      unequal.length === 0
        ? `All ${list.length} sampled tokens have the recorded bits.`
        : `${unequal.length} of ${list.length} sampled tokens differ: mean ` +
          `${number(mean, 8)}, most ${number(worst.size, 8)} nats at token ${worst.token}.`;
    const card = tokenCard();
    const stream = h(
      'div',
      { class: 'turns show-ws', tabindex: 0, role: 'region', 'aria-label': 'Token stream' },
      tokenRange(opened, opened.episode.promptLength, opened.episode.ids.length, {
        scale: 'difference',
        replay: values,
      }),
    );
    stream.addEventListener('mouseover', (event) => {
      const element = (event.target as Element).closest<HTMLElement>('.tok');
      if (element) card.show(opened, values, Number(element.dataset['i']));
    });
    card.show(opened, values, worst.token);
    fill(
      result,
      h(
        'p',
        {
          'data-result': 'replay',
          'data-unequal': unequal.length,
          'data-tokens': list.length,
          'data-most': worst.size,
          'data-exact': String(found.exact),
        },
        h('b', null, verdict),
        ` Weights: ${found.policy}.`,
      ),
      found.exact
        ? null
        : h(
            'p',
            { class: 'hint' },
            'These are other weights than the recorded ones: the differences are how far the two policies are apart, ' +
              'and say nothing about the device.',
          ),
      h(
        'p',
        null,
        h(
          'a',
          { href: placeUrl('rollout', { run: index || null, file, line, token: worst.token }) },
          'Open the rollout with these values',
        ),
      ),
      h('div', { class: 'split' }, stream, h('aside', { class: 'side' }, card.element)),
    );
  }
  const start = button('Replay', () => replay().catch(page.report), { class: 'primary' });
  const update = () => {
    start.disabled = !deviceState.model || deviceState.busy !== '';
  };
  update();
  fill(
    main,
    h(
      'section',
      { class: 'card' },
      h('h2', null, `Replay ${fileTitle(file)}, line ${line}`),
      h(
        'p',
        { class: 'hint' },
        'Scores the recorded ids with the weights that sampled them: the base ' +
          'model, the untrained adapter, or a sealed checkpoint, told by their hash.',
      ),
      h(
        'div',
        { class: 'bar-line' },
        start,
        labelled(
          'Score with',
          select(
            [['', 'the ones that sampled it'], ...source.checkpoints.map((name) => [name, name] as const)],
            chosen,
            (value) => {
              chosen = value;
            },
          ),
        ),
        checkbox('use the base model if the weights were not sealed', false, (value) => {
          baseInstead = value;
        }),
      ),
      result,
    ),
  );
  return deviceState.changed.on(update);
};
