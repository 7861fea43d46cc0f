// Two runs or two evaluations, item by item: wins, losses, and the same prompt's rollouts side by side.
// Not a test of significance: `shaderl compare` gives that. Invariant: the address names both sides and the item.

import { parseEvaluation } from '../src/evaluation/results.ts';
import {
  countOutcomes,
  evaluationSides,
  type ItemPair,
  type Outcome,
  pairSides,
  rolloutSides,
  type Side,
} from '../src/inspect/compare-items.ts';
import { fill, h, labelled, select } from './dom.ts';
import { mark, number } from './format.ts';
import { openRollout } from './open-rollout.ts';
import type { Page, View } from './page.ts';
import { go, note, placeUrl } from './router.ts';
import type { RunSource } from './run-source.ts';
import { sideBySide } from './side-by-side.ts';
import { createVirtualList } from './virtual-list.ts';

const words: Record<Outcome, string> = {
  win: 'B wins',
  loss: 'B loses',
  both: 'both succeed',
  neither: 'neither',
  'only-a': 'only A has it',
  'only-b': 'only B has it',
  unscored: 'not scored',
};

/** What can be compared: `0:` is run 0's training rollouts, `0:evaluations/after.json` an evaluation of it. */
function choices(page: Page): [string, string][] {
  return page.runs.flatMap((run, index) => [
    ...run.evaluations.map((path): [string, string] => [
      `${index}:${path}`,
      `${run.name}: ${path.replace(/^evaluations\/|\.json$/g, '')}`,
    ]),
    [`${index}:`, `${run.name}: training rollouts`] as [string, string],
  ]);
}

interface Chosen {
  source: RunSource;
  index: number;
  path: string;
}

function chosen(page: Page, key: string): Chosen | null {
  const [index = '', ...path] = key.split(':');
  const source = page.runs[Number(index)];
  return source ? { source, index: Number(index), path: path.join(':') } : null;
}

const rolloutsOf = (path: string) => path.replace(/\.json$/, '.rollouts.jsonl');

async function sidesOf({ source, path }: Chosen): Promise<Map<string, Side>> {
  if (path === '') {
    const files = [...source.files].filter(([file]) => !file.startsWith('evaluations/'));
    return rolloutSides(files.flatMap(([, rows]) => rows.filter((row) => row.kind === 'episode')));
  }
  const sides = evaluationSides(parseEvaluation(await source.readEvaluation(path), path));
  for (const row of source.files.get(rolloutsOf(path)) ?? []) {
    if (row.kind !== 'episode') continue;
    const side = sides.get(`${row.taskId}, seed ${row.seed}`);
    if (side) side.rollout = row;
  }
  return sides;
}

/** The file of a side's rollout. */
function fileOf({ source, path }: Chosen, side: Side): string | null {
  const { rollout } = side;
  if (!rollout) return null;
  if (path !== '') return rolloutsOf(path);
  return [...source.files].find(([, rows]) => rows.includes(rollout))?.[0] ?? null;
}

const sideCells = (side: Side | null) =>
  side ? [`${mark(side.success)} ${number(side.reward, 2)}`, side.answer ?? 'no answer'] : ['–', ''];

export const compareView: View = (page, params, main) => {
  const options = choices(page);
  const keys = options.map(([key]) => key);
  const before = keys.find((key) => /before/.test(key));
  const after = keys.find((key) => /after/.test(key));
  const a = params['a'] ?? before ?? keys[0] ?? '';
  const b = params['b'] ?? after ?? keys.find((key) => key !== a) ?? a;
  const [one, other] = [chosen(page, a), chosen(page, b)];
  if (!one || !other) {
    fill(main, h('h1', null, 'Compare'), h('p', { class: 'hint' }, 'There is nothing to compare: open a run first.'));
    return () => {};
  }
  let pairs: ItemPair[] = [];
  let shown: ItemPair[] = [];
  let filter = (params['show'] ?? '') as Outcome | '';
  let gone = false;
  const counts = h('div', { class: 'bar-line', role: 'group', 'aria-label': 'Outcomes' });
  const detail = h('section', { class: 'detail', 'aria-label': 'The item on both sides' });
  const wide = 'minmax(8rem, 1fr)';
  const list = createVirtualList({
    label: 'Items',
    rowHeight: 30,
    columns: [
      { name: 'Item', width: 'minmax(14rem, 2fr)', cut: true },
      { name: 'A', width: '6rem' },
      { name: 'Answer of A', width: wide, cut: true },
      { name: 'B', width: '6rem' },
      { name: 'Answer of B', width: wide, cut: true },
      { name: 'B against A', width: '8rem' },
    ],
    cells: (i) => {
      const { key, a: left, b: right, outcome } = shown[i]!;
      return [key, ...sideCells(left), ...sideCells(right), words[outcome]];
    },
    rowClass: (i) => `outcome-${shown[i]!.outcome}`,
    open: (i) => void show(shown[i]!).catch(page.report),
  });

  function draw(): void {
    const totals = countOutcomes(pairs);
    const all = Object.entries(words) as [Outcome, string][];
    const choose = (outcome: Outcome | '') => () => {
      filter = outcome;
      note('compare', { a, b, show: filter });
      draw();
    };
    fill(
      counts,
      h(
        'button',
        { type: 'button', 'aria-pressed': String(filter === ''), onclick: choose('') },
        `all ${pairs.length}`,
      ),
      all
        .filter(([outcome]) => totals[outcome] > 0)
        .map(([outcome, label]) =>
          h(
            'button',
            { type: 'button', 'aria-pressed': String(filter === outcome), onclick: choose(outcome) },
            `${label}: ${totals[outcome]}`,
          ),
        ),
    );
    shown = filter === '' ? pairs : pairs.filter(({ outcome }) => outcome === filter);
    list.update(shown.length);
  }

  async function show({ key, a: left, b: right }: ItemPair): Promise<void> {
    note('compare', { a, b, show: filter, item: key });
    const sides = [
      [one!, left, 'A'],
      [other!, right, 'B'],
    ] as const;
    const places = sides.map(([side, item]) => (item ? fileOf(side, item) : null));
    const heading = h('h2', null, key);
    if (left?.rollout && right?.rollout && places[0] && places[1]) {
      const columns = await Promise.all(
        sides.map(async ([side, item, name], i) => {
          const opened = await openRollout(side.source, places[i]!, item!.rollout!.line);
          const href = placeUrl('rollout', { run: side.index || null, file: opened.file, line: opened.line });
          return { opened, title: `${name}: ${side.source.name} ${side.path}`, href };
        }),
      );
      if (!gone) fill(detail, heading, sideBySide(columns));
      return;
    }
    const text = ([side, item, name]: (typeof sides)[number]) =>
      h(
        'div',
        { class: 'card' },
        h('h3', null, `${name}: ${side.source.name} ${side.path}`),
        h('pre', null, item?.text ?? 'not on this side, or without a text'),
      );
    fill(detail, heading, h('div', { class: 'two' }, sides.map(text)));
  }

  async function load(): Promise<void> {
    const [left, right] = [await sidesOf(one!), await sidesOf(other!)];
    if (gone) return;
    pairs = pairSides(left, right);
    draw();
    const wanted = pairs.find(({ key }) => key === params['item']);
    if (wanted && detail.childElementCount === 0) await show(wanted);
  }
  const choice = (value: string, change: (key: string) => void) => select(options, value, change);
  fill(
    main,
    h('h1', null, 'Compare'),
    h(
      'div',
      { class: 'filters' },
      labelled(
        'A',
        choice(a, (key) => go('compare', { a: key, b })),
      ),
      labelled(
        'B',
        choice(b, (key) => go('compare', { a, b: key })),
      ),
    ),
    counts,
    h('section', { class: 'card' }, list.element),
    detail,
  );
  const again = () => void load().catch(page.report);
  again();
  const offs = [...new Set([one.source, other.source])].map((source) => source.changed.on(again));
  return () => {
    gone = true;
    for (const off of offs) off();
  };
};
