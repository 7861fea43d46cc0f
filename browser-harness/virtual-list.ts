// A grid of many rows of one height, of which only the visible ones are in the document.
// Not a table of columns that sort. Invariant: the keyboard reaches every row (arrows, page, home, end; Enter opens),
// the number and index of rows are told to assistive technology, and scrolling makes no node: row i is shown by the
// element i mod (number of elements), whose texts are replaced.
import { h } from './dom.ts';

/** A cell that is a bar: how much of it is filled, in [0, 1], and its text. */
export interface BarCell {
  share: number;
  text: string;
}

export interface ListColumn {
  name: string;
  /** A track of a CSS grid. */
  width: string;
  /** Texts may be wider than the column and are cut; only where that can be, since each cut costs in every frame. */
  cut?: boolean;
}

export interface VirtualListOptions {
  label: string;
  columns: readonly ListColumn[];
  rowHeight: number;
  /** The cells of a row, one a column. */
  cells: (index: number) => (string | BarCell)[];
  /** Called with the row that is clicked or entered. */
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

/** Rows kept ready above and below: as far as a fast wheel goes in two frames. */
const overscan = 6;

interface RowElement {
  element: HTMLElement;
  cells: { element: HTMLElement; text: Text }[];
  /** The row that it shows; null while it is not in the document. */
  index: number | null;
}

/** The narrowest that the columns can be with the row's gaps (10 px) and padding; narrower lists scroll sideways. */
function leastWidth(columns: readonly ListColumn[]): string {
  const least = columns.map(({ width }) => /^minmax\(([^,]+),/.exec(width)?.[1] ?? width);
  return `calc(${least.join(' + ')} + ${10 * (columns.length + 1)}px)`;
}

function createRow(template: string, rowHeight: number, columns: readonly ListColumn[]): RowElement {
  const cells = columns.map(({ cut }) => {
    const text = document.createTextNode('');
    return { element: h('span', { role: 'gridcell', class: cut ? 'cut' : null }, text), text };
  });
  const style = `grid-template-columns:${template};height:${rowHeight}px`;
  const element = h(
    'div',
    { role: 'row', style },
    cells.map((cell) => cell.element),
  );
  return { element, cells, index: null };
}

function writeCell({ element, text }: RowElement['cells'][number], value: string | BarCell): void {
  const [shown, size] =
    typeof value === 'string' ? [value, ''] : [value.text, `${Math.round(100 * value.share)}% 100%`];
  if (text.data !== shown) text.data = shown;
  if (element.style.backgroundSize === size) return;
  element.classList.toggle('meter', size !== '');
  element.style.backgroundSize = size;
}

export function createVirtualList(options: VirtualListOptions): VirtualList {
  const { rowHeight, columns } = options;
  const template = columns.map(({ width }) => width).join(' ');
  const idOf = (index: number) => `${options.label.replace(/\W+/g, '-')}-${index}`;
  const minWidth = `min-width:${leastWidth(columns)}`;
  const spacer = h('div', { class: 'spacer', role: 'rowgroup', style: minWidth });
  const header = h(
    'div',
    { class: 'row header', role: 'row', style: `grid-template-columns:${template}` },
    columns.map(({ name }) => h('span', { role: 'columnheader' }, name)),
  );
  // The grid itself scrolls, so that the element with the focus is the one that moves.
  const element = h(
    'div',
    { class: 'grid', role: 'grid', 'aria-label': options.label, tabindex: 0 },
    h('div', { role: 'rowgroup', class: 'head', style: minWidth }, header),
    spacer,
  );
  let count = 0;
  let current = 0;
  /** Of the part that shows rows; measured when it changes, because a question for it in a frame costs a layout. */
  let visibleHeight = 0;
  let active = '';
  let pool: RowElement[] = [];

  function measure(): void {
    visibleHeight = element.clientHeight - header.offsetHeight;
    const wanted = Math.ceil(visibleHeight / rowHeight) + 1 + 2 * overscan;
    if (wanted <= pool.length) return;
    // Another number of elements gives each row another one.
    for (const row of pool) row.element.remove();
    pool = Array.from({ length: wanted }, () => createRow(template, rowHeight, columns));
  }

  function write(row: RowElement, index: number): void {
    const own = row.element;
    if (row.index === null) spacer.append(own);
    row.index = index;
    own.id = idOf(index);
    own.className = `row ${index === current ? 'current' : ''} ${options.rowClass?.(index) ?? ''}`;
    own.style.top = `${index * rowHeight}px`;
    own.setAttribute('aria-rowindex', String(index + 2));
    own.setAttribute('aria-selected', String(index === current));
    const values = options.cells(index);
    for (const [c, cell] of row.cells.entries()) writeCell(cell, values[c] ?? '');
  }

  function draw(anew: boolean): void {
    const { scrollTop } = element;
    const from = Math.max(0, Math.floor(scrollTop / rowHeight) - overscan);
    const to = Math.min(count, from + pool.length);
    for (let index = from; index < to; index++) {
      const row = pool[index % pool.length]!;
      if (anew || row.index !== index) write(row, index);
    }
    if (to - from < pool.length) {
      for (const row of pool) {
        if (row.index === null || (row.index >= from && row.index < to)) continue;
        row.index = null;
        row.element.remove();
      }
    }
    const now = current >= from && current < to ? idOf(current) : '';
    if (now === active) return;
    active = now;
    if (now !== '') element.setAttribute('aria-activedescendant', now);
    else element.removeAttribute('aria-activedescendant');
  }

  function reveal(index: number): void {
    measure();
    current = Math.max(0, Math.min(count - 1, index));
    const top = current * rowHeight;
    const bottom = top + rowHeight - visibleHeight;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (bottom > element.scrollTop) element.scrollTop = bottom;
    draw(true);
  }

  // Once a frame, before its layout: the browser sends scroll events so.
  element.addEventListener('scroll', () => draw(false), { passive: true });
  new ResizeObserver(() => {
    measure();
    draw(false);
  }).observe(element);
  spacer.addEventListener('click', (event) => {
    const clicked = pool.find((row) => row.element.contains(event.target as Node));
    if (clicked?.index === undefined || clicked.index === null) return;
    current = clicked.index;
    draw(true);
    options.open(current);
  });
  element.addEventListener('keydown', (event) => {
    const page = Math.max(1, Math.floor(visibleHeight / rowHeight) - 1);
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
      measure();
      draw(true);
    },
    reveal,
  };
}
