// Asks the loaded model a question with the German task's tools at hand, and shows the stream that came of it.
// Not the sampling (device-chat.ts). Invariant: what is shown at the end is the record, token by token.
import { promptOf, readPayload, trainTasks } from '../src/environments/german-task.ts';
import { findingsOf } from '../src/inspect/audit-view.ts';
import { tokenPieces } from '../src/inspect/token-text.ts';
import type { Episode } from '../src/rollout/episode.ts';
import { callback, deviceState, onDevice } from './device-client.ts';
import { button, fill, h, labelled } from './dom.ts';
import { tokenBytes } from './embedded-text.ts';
import { mark, number, plural } from './format.ts';
import { controlTokens, type OpenedRollout } from './open-rollout.ts';
import type { View } from './page.ts';
import { callLine } from './rollout-view.ts';
import { tokenRange } from './token-stream.ts';

const seed = 20261020;

/** A record that was made in this page, as the views take one. */
export function madeHere(episode: Episode): OpenedRollout {
  const { text } = deviceState;
  const pieces = tokenPieces(
    episode.ids,
    text ? tokenBytes(text) : () => null,
    text ? controlTokens(text) : () => false,
  );
  const textNote = 'the loaded model’s tokenizer';
  return {
    file: '',
    line: 0,
    episode,
    text,
    textNote,
    pieces,
    ...findingsOf(episode, null),
    advantage: null,
    advantageNote: 'no group',
    loss: null,
  };
}

export const chatTab: View = (page, _params, main) => {
  const tasks = trainTasks(seed, 200);
  const question = (i: number) => promptOf(readPayload(tasks[i]!)).find(({ role }) => role === 'user')!.content;
  const task = h('input', { type: 'number', min: '0', max: '199', step: '1', value: '0' });
  const message = h('textarea', { rows: '2' });
  message.value = question(0);
  task.addEventListener('change', () => {
    message.value = question(Math.max(0, Math.min(199, Number(task.value) || 0)));
  });
  const temperature = h('input', { type: 'number', min: '0', max: '2', step: '0.1', value: '0.6' });
  const tokens = h('input', { type: 'number', min: '1', max: '768', step: '1', value: '256' });
  const log = h('div', { class: 'chat', 'aria-live': 'polite' });
  const result = h('div', null);

  async function ask(): Promise<void> {
    const index = Math.max(0, Math.min(199, Number(task.value) || 0));
    const own = message.value.trim() === question(index) ? null : message.value.trim();
    fill(log, h('p', { class: 'said user' }, message.value.trim()));
    fill(result);
    let paragraph: HTMLElement | null = null;
    const onText = callback((kind: 'sampled' | 'environment', text: string) => {
      if (!paragraph || paragraph.dataset['kind'] !== kind) {
        paragraph = h('p', { class: `said ${kind}`, 'data-kind': kind });
        log.append(paragraph);
      }
      paragraph.append(text);
    });
    const request = {
      task: index,
      message: own,
      temperature: Number(temperature.value),
      seed,
      maxTokens: Number(tokens.value),
    };
    const episode = await onDevice('answering', (device) => device.chat(request, onText));
    const opened = madeHere(episode);
    const { verdict } = episode;
    const scored = verdict
      ? `strict ${mark(verdict.strict)}, reward ${number(verdict.reward)}`
      : (episode.infrastructure ?? '');
    const calls = episode.turns.flatMap((turn) => turn.calls);
    fill(
      result,
      h('h2', null, 'The record'),
      h(
        'p',
        { class: 'hint', 'data-result': 'chat' },
        `${episode.ids.length} tokens, ${plural(calls.length, 'call')}, ${number(episode.seconds, 1)} s; ${scored}.`,
      ),
      calls.length > 0 ? h('ul', { class: 'calls' }, calls.map(callLine)) : null,
      h(
        'div',
        { class: 'turns show-ws show-mask', tabindex: 0, role: 'region', 'aria-label': 'Token stream' },
        tokenRange(opened, episode.promptLength, episode.ids.length, { scale: 'logprob', replay: null }),
      ),
    );
  }
  const send = button('Ask', () => ask().catch(page.report), { class: 'primary' });
  const update = () => {
    send.disabled = !deviceState.model || deviceState.busy !== '';
  };
  update();
  fill(
    main,
    h(
      'section',
      { class: 'card' },
      h('h2', null, 'Question'),
      h(
        'p',
        { class: 'hint' },
        'Each question starts a new conversation. The tools know ' +
          'the values of the chosen task; its own question is scored.',
      ),
      h(
        'div',
        { class: 'filters' },
        labelled('Task', task),
        labelled('Temperature', temperature),
        labelled('Most tokens', tokens),
      ),
      labelled('Question', message),
      h('div', { class: 'bar-line' }, send),
      log,
      result,
    ),
  );
  return deviceState.changed.on(update);
};
