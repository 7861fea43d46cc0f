// A grid of many rows of one height, of which only the visible ones are in the document.
// Not a table of columns that sort. Invariant: the keyboard reaches every row (arrows, page, home, end; Enter opens),
// and the number and index of rows are told to assistive technology.
import { h } from './dom.ts';

export interface VirtualListOptions {
  label: string;
  columns: readonly { name: string; width: string }[];
  rowHeight: number;
  /** The cells of a row, one a column. */
  cells: (index: number) => (Node | string)[];
  /** The address that a row opens; null where it opens nothing. */
  open: (index: number) => void;
  /** Extra class of a row. */
  rowClass?: (index: number) => string;
}

export interface VirtualList {
  element: HTMLElement;
  /** Draws anew for this many rows. */
  update(count: number): void;
  /** Scrolls to a row and makes it the current one. */
  reveal(index: number): void;
}

const overscan = 6;

export function createVirtualList(options: VirtualListOptions): VirtualList {
  const { rowHeight, columns } = options;
  const template = columns.map(({ width }) => width).join(' ');
  const spacer = h('div', { class: 'spacer', role: 'rowgroup' });
  const header = h(
    'div',
    { class: 'row header', role: 'row', style: `grid-template-columns:${template}` },
    columns.map(({ name }) => h('span', { role: 'columnheader' }, name)),
  );
  // The grid itself scrolls, so that the element with the focus is the one that moves.
  const element = h(
    'div',
    { class: 'grid', role: 'grid', 'aria-label': options.label, tabindex: 0 },
    h('div', { role: 'rowgroup', class: 'head' }, header),
    spacer,
  );
  const visibleHeight = () => element.clientHeight - header.offsetHeight;
  let count = 0;
  let current = 0;
  const drawn = new Map<number, HTMLElement>();

  function drawRow(index: number): HTMLElement {
    const id = `${options.label.replace(/\W+/g, '-')}-${index}`;
    const classes = `row ${index === current ? 'current' : ''} ${options.rowClass?.(index) ?? ''}`;
    const style =
      `grid-template-columns:${template};transform:translateY(${index * rowHeight}px);height:${rowHeight}px` +
      `grid-template-columns:${template};transform:translateY(${index * rowHeight}px);height:${rowHeight}px`;
    const row = h(
      'div',
      {
        class: classes,
        role: 'row',
        id,
        style,
        'aria-rowindex': index + 2,
        'aria-selected': String(index === current),
      },
      options.cells(index).map((cell) => h('span', { role: 'gridcell' }, cell)),
    );
    row.addEventListener('click', () => {
      current = index;
      options.open(index);
    });
    return row;
  }

  function draw(anew: boolean): void {
    if (anew) {
      for (const row of drawn.values()) row.remove();
      drawn.clear();
    }
    const from = Math.max(0, Math.floor(element.scrollTop / rowHeight) - overscan);
    const to = Math.min(count, Math.ceil((element.scrollTop + visibleHeight()) / rowHeight) + overscan);
    for (const [index, row] of drawn) {
      if (index >= from && index < to) continue;
      row.remove();
      drawn.delete(index);
    }
    for (let index = from; index < to; index++) {
      if (drawn.has(index)) continue;
      const row = drawRow(index);
      drawn.set(index, row);
      spacer.append(row);
    }
    const active = drawn.get(current)?.id;
    if (active) element.setAttribute('aria-activedescendant', active);
    else element.removeAttribute('aria-activedescendant');
  }

  function reveal(index: number): void {
    current = Math.max(0, Math.min(count - 1, index));
    const top = current * rowHeight;
    const bottom = top + rowHeight - visibleHeight();
    if (top < element.scrollTop) element.scrollTop = top;
    else if (bottom > element.scrollTop) element.scrollTop = bottom;
    draw(true);
  }

  element.addEventListener('scroll', () => requestAnimationFrame(() => draw(false)));
  new ResizeObserver(() => draw(false)).observe(element);
  element.addEventListener('keydown', (event) => {
    const page = Math.max(1, Math.floor(visibleHeight() / rowHeight) - 1);
    const moves: Record<string, number> = {
      ArrowDown: current + 1,
      ArrowUp: current - 1,
      PageDown: current + page,
      PageUp: current - page,
      Home: 0,
      End: count - 1,
    };
    const to = moves[event.key];
    if (to !== undefined && count > 0) {
      event.preventDefault();
      reveal(to);
    } else if (event.key === 'Enter' && count > 0) options.open(current);
  });

  return {
    element,
    update(rows) {
      count = rows;
      current = Math.max(0, Math.min(current, count - 1));
      spacer.style.height = `${count * rowHeight}px`;
      element.setAttribute('aria-rowcount', String(count + 1));
      draw(true);
    },
    reveal,
  };
}
