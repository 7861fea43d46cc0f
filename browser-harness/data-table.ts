// A table that scrolls sideways on its own and can be reached by keyboard.
// Not a list of many rows (virtual-list.ts). Invariant: every column has a heading, and the region a name.
import { h } from './dom.ts';

/** `label` names the region; `rows` are `tr` elements. */
export function dataTable(
  label: string,
  head: readonly string[],
  rows: readonly HTMLElement[],
  caption: string | null = null,
): HTMLElement {
  const cells = head.map((text) => h('th', { scope: 'col' }, text));
  return h(
    'div',
    { class: 'scroll-x', tabindex: 0, role: 'region', 'aria-label': label },
    h(
      'table',
      { class: 'plain-table' },
      caption === null ? null : h('caption', null, caption),
      h('thead', null, h('tr', null, cells)),
      h('tbody', null, [...rows]),
    ),
  );
}
