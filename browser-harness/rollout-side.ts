// What stands beside a token stream: verdict and reward parts, findings, and the facts of the chosen token.
// Not the stream. Invariant: a finding links to its token.
import { fill, h } from './dom.ts';
import { mark, number, plural, shortHash } from './format.ts';
import type { OpenedRollout } from './open-rollout.ts';
import { type ReplayValues, tokenFacts } from './token-stream.ts';

const rows = (facts: readonly (readonly [string, string])[]) =>
  facts.map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, value)));

/** Strict verdict, shaped reward and its parts. */
export function verdictCard({ episode, advantage, advantageNote }: OpenedRollout): HTMLElement {
  const { verdict, infrastructure } = episode;
  if (!verdict) {
    const reason = infrastructure ?? 'no reason is recorded';
    return h(
      'section',
      { class: 'card' },
      h('h2', null, 'Verdict'),
      h('p', null, `None: the environment failed (${reason}).`),
    );
  }
  const parts = Object.entries(verdict.parts).map(([name, value]) =>
    h(
      'li',
      null,
      h('span', null, name),
      h(
        'span',
        { class: 'bar' },
        h('span', { class: 'bar-fill', style: `width:${100 * Math.max(0, Math.min(1, value))}%` }),
        h('span', { class: 'bar-text' }, number(value, 2)),
      ),
    ),
  );
  return h(
    'section',
    { class: 'card' },
    h('h2', null, 'Verdict'),
    h(
      'dl',
      { class: 'pairs' },
      rows([
        ['Strict success', `${mark(verdict.strict)} ${verdict.strict ? 'yes' : 'no'}`],
        ['Reward', number(verdict.reward)],
        ['Advantage', advantage === null ? advantageNote : number(advantage)],
        ['Answer', verdict.answer ?? 'none was read'],
        ['Not dispatched', plural(verdict.invalidDispatches, 'call')],
        ['Tool errors', String(verdict.toolErrors)],
      ]),
    ),
    h('h3', null, 'Reward parts'),
    h('ul', { class: 'parts' }, parts),
  );
}

/** The audit's findings; `show` goes to a token. */
export function findingsCard({ findings, scope }: OpenedRollout, show: (token: number) => void): HTMLElement {
  const items = findings.map(({ code, index, message }) => {
    const text = [h('b', null, code), ` ${message}`];
    if (index === null) return h('li', null, text);
    return h(
      'li',
      null,
      h('button', { type: 'button', class: 'link', onclick: () => show(index) }, `token ${index}`),
      ' ',
      text,
    );
  });
  return h(
    'section',
    { class: `card ${findings.length > 0 ? 'bad' : ''}` },
    h('h2', null, findings.length === 0 ? 'Audit: no finding' : `Audit: ${plural(findings.length, 'finding')}`),
    h('ul', { class: 'plain findings' }, items),
    h('p', { class: 'hint' }, scope),
  );
}

/** Where the rollout stands: task, policy, temperature. */
export function recordCard({ episode, textNote }: OpenedRollout): HTMLElement {
  const { taskId, step, group, member, seed, policy, temperature, ids, promptLength, mask, capped } = episode;
  const sampled = mask.reduce((sum: number, bit) => sum + bit, 0);
  return h(
    'section',
    { class: 'card' },
    h('h2', null, 'Record'),
    h(
      'dl',
      { class: 'pairs' },
      rows([
        ['Task', taskId],
        ['Place', `step ${step}, group ${group}, member ${member}`],
        ['Seed', String(seed)],
        ['Policy', shortHash(policy)],
        ['Temperature', String(temperature)],
        ['Tokens', `${ids.length}: ${promptLength} prompt, ${sampled} sampled`],
        ['Capped', capped ? 'yes' : 'no'],
        ['Text', textNote],
      ]),
    ),
  );
}

/** The card of the token under the pointer or the cursor. */
export function tokenCard(): {
  element: HTMLElement;
  show: (opened: OpenedRollout, replay: ReplayValues | null, i: number | null) => void;
} {
  const list = h('dl', { class: 'pairs' });
  const notes = h('ul', { class: 'plain findings' });
  const element = h(
    'section',
    { class: 'card token-card', 'aria-live': 'polite' },
    h('h2', null, 'Token'),
    list,
    notes,
  );
  return {
    element,
    show(opened, replay, i) {
      if (i === null) {
        fill(list);
        const hint = 'Point at a token, or move through the stream with the arrow keys.';
        fill(notes, h('li', { class: 'hint' }, hint));
        return;
      }
      fill(list, rows(tokenFacts(opened, replay, i)));
      const own = opened.findings.filter(({ index }) => index === i);
      fill(
        notes,
        own.map(({ code, message }) => h('li', { class: 'bad-text' }, h('b', null, code), ` ${message}`)),
      );
    },
  };
}
