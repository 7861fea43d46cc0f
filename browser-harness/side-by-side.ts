// Rollouts in columns with their turns aligned, and a cursor over the places where they part.
// Not a diff of texts. Invariant: each row holds the same turn of all; the mark stands at the first token that differs.
import { type AlignedRow, alignTurns } from '../src/inspect/align.ts';
import { button, h } from './dom.ts';
import { mark, number } from './format.ts';
import type { OpenedRollout } from './open-rollout.ts';
import { callLine, questionOf } from './rollout-view.ts';
import { tokenRange } from './token-stream.ts';

export interface Column {
  opened: OpenedRollout;
  title: string;
  href: string;
}

/** Pixels of the narrowest column in which a call can be read; more columns than fit are scrolled sideways. */
const narrowest = 240;

function cell({ opened }: Column, row: AlignedRow, c: number, turn: number): HTMLElement {
  const segment = row.segments[c];
  if (!segment) return h('td', { class: 'absent' }, 'no such turn');
  const differsAt = row.differsAt === null ? null : Math.min(segment[0] + row.differsAt, segment[1] - 1);
  const calls = turn === 0 ? [] : (opened.episode.turns[turn - 1]?.calls ?? []);
  return h(
    'td',
    null,
    tokenRange(opened, segment[0], segment[1], { scale: 'none', replay: null, differsAt }),
    calls.length > 0 ? h('ul', { class: 'calls' }, calls.map(callLine)) : null,
  );
}

/** The prompt that all have, once and folded. */
function commonPrompt(columns: readonly Column[]): HTMLElement {
  const { opened } = columns[0]!;
  const { promptLength } = opened.episode;
  const tokens = tokenRange(opened, 0, promptLength, { scale: 'none', replay: null });
  const summary = h(
    'summary',
    null,
    `${promptLength} tokens, equal in all`,
    h('span', { class: 'question' }, questionOf(opened) ?? ''),
  );
  return h(
    'tr',
    null,
    h('th', { scope: 'row' }, 'Prompt'),
    h('td', { colspan: columns.length }, h('details', null, summary, tokens)),
  );
}

/** The table with its buttons; `n` and `p` go to the next and the previous difference. */
export function sideBySide(columns: readonly Column[]): HTMLElement {
  const rows = alignTurns(columns.map(({ opened }) => opened.episode));
  const body = rows.map((row, turn) => {
    if (turn === 0 && row.differsAt === null) return commonPrompt(columns);
    return h(
      'tr',
      { class: row.differsAt === null ? '' : 'parts-here' },
      h(
        'th',
        { scope: 'row' },
        row.label,
        h('small', null, row.differsAt === null ? 'equal' : `differs from token ${row.differsAt + 1} on`),
      ),
      columns.map((column, c) => cell(column, row, c, turn)),
    );
  });
  const head = columns.map(({ opened, title, href }) => {
    const { verdict } = opened.episode;
    const result = verdict ? `strict ${mark(verdict.strict)}, reward ${number(verdict.reward, 2)}` : 'no verdict';
    const advantage = opened.advantage === null ? '' : `, advantage ${number(opened.advantage, 2)}`;
    return h('th', { scope: 'col' }, h('a', { href }, title), h('small', null, result + advantage));
  });
  const status = h('span', { class: 'hint', role: 'status' });
  const different = body.filter((_, i) => rows[i]!.differsAt !== null);
  let at = -1;
  function move(by: number): void {
    if (different.length === 0) {
      status.textContent = 'The rollouts are equal.';
      return;
    }
    at = (at + by + different.length) % different.length;
    const row = different[at]!;
    for (const other of different) other.classList.toggle('here', other === row);
    row.querySelector('.differs')?.scrollIntoView({ block: 'center' });
    status.textContent = `Difference ${at + 1} of ${different.length}: ${rows[body.indexOf(row)]!.label}`;
  }
  const element = h(
    'div',
    {
      class: 'beside',
      tabindex: 0,
      role: 'region',
      'aria-label': 'Rollouts side by side; n and p move between differences',
    },
    h(
      'div',
      { class: 'bar-line' },
      button('Next difference (n)', () => move(1)),
      button('Previous (p)', () => move(at < 0 ? 0 : -1)),
      status,
    ),
    h(
      'div',
      { class: 'scroll-x', tabindex: 0, role: 'group', 'aria-label': 'Columns' },
      h(
        'table',
        { class: 'aligned show-ws', style: `min-width:calc(6.5rem + ${columns.length * narrowest}px)` },
        h('thead', null, h('tr', null, h('td', null), head)),
        h('tbody', null, body),
      ),
    ),
  );
  element.addEventListener('keydown', (event) => {
    if (event.key === 'n') move(1);
    else if (event.key === 'p') move(at < 0 ? 0 : -1);
  });
  return element;
}
