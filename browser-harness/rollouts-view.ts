// The list of a run's rollouts: filters, search in their text, one row a rollout.
// Not a rollout: a row opens it. Invariant: the address holds the filters, so a list can be linked to.
import { filterDefaults, passesFilter, type RolloutFilter } from '../src/inspect/filter-rollouts.ts';
import type { RolloutRow } from '../src/inspect/skim.ts';
import { button, checkbox, fill, h, labelled, select } from './dom.ts';
import { mark, number, plural } from './format.ts';
import { countFindings } from './open-rollout.ts';
import { runOf, type View } from './page.ts';
import { go, note } from './router.ts';
import { fileTitle } from './run-source.ts';
import { type BarCell, createVirtualList } from './virtual-list.ts';

interface Shown {
  file: string;
  row: RolloutRow;
  /** Token of a text match. */
  token: number | null;
  findings: number | null;
}

function readFilter(params: Record<string, string>): RolloutFilter {
  const { strict, step, min, max } = params;
  return {
    step: step === undefined ? null : Number(step),
    capped: params['capped'] === '1',
    malformed: params['malformed'] === '1',
    failed: params['failed'] === '1',
    findings: false,
    strict: strict === 'yes' || strict === 'no' ? strict : 'any',
    minReward: min === undefined ? 0 : Number(min),
    maxReward: max === undefined ? 1 : Number(max),
    task: params['task'] ?? '',
  };
}

const writeFilter = (filter: RolloutFilter) => ({
  step: filter.step,
  capped: filter.capped ? 1 : null,
  malformed: filter.malformed ? 1 : null,
  failed: filter.failed ? 1 : null,
  strict: filter.strict === 'any' ? null : filter.strict,
  min: filter.minReward === 0 ? null : filter.minReward,
  max: filter.maxReward === 1 ? null : filter.maxReward,
  task: filter.task,
});

function cells({ file, row, findings }: Shown): (string | BarCell)[] {
  if (row.kind === 'broken') return [fileTitle(file), `line ${row.line}`, '', '', '', '', '', row.fault];
  const flags = [
    findings !== null && findings > 0 ? plural(findings, 'audit finding') : '',
    row.capped ? 'capped' : '',
    row.malformed ? 'malformed call' : '',
    row.failedCalls > 0 && !row.malformed ? 'tool error' : '',
    row.infrastructure === null ? '' : `infrastructure: ${row.infrastructure}`,
  ].filter((flag) => flag !== '');
  return [
    fileTitle(file),
    row.taskId,
    String(row.member),
    { share: row.reward ?? 0, text: number(row.reward, 2) },
    mark(row.strict),
    String(row.sampledTokens),
    `${row.turns} / ${row.calls}`,
    flags.length === 0 ? (row.answer === null ? 'no answer' : `answer ${row.answer}`) : flags.join(', '),
  ];
}

export const rolloutsView: View = (page, params, main) => {
  const { source, index } = runOf(page, params);
  if (!source) return () => {};
  let filter = readFilter(params);
  let wanted = params['text'] ?? '';
  let matches: Map<string, number> | null = null;
  let searching = 0;
  const audited = new Map<string, number>();
  let gone = false;
  let shown: Shown[] = [];
  const auditStatus = h('span', { class: 'hint', role: 'status' });
  const status = h('p', { class: 'hint', role: 'status' });
  const list = createVirtualList({
    label: 'Rollouts',
    rowHeight: 30,
    columns: [
      { name: 'From', width: '5.5rem', cut: true },
      { name: 'Task', width: 'minmax(10rem, 2fr)', cut: true },
      { name: 'Member', width: '4.5rem' },
      { name: 'Reward', width: '7rem' },
      { name: 'Strict', width: '3.5rem' },
      { name: 'Sampled', width: '5rem' },
      { name: 'Turns / calls', width: '6.5rem' },
      { name: 'Result', width: 'minmax(9rem, 2fr)', cut: true },
    ],
    cells: (i) => cells(shown[i]!),
    rowClass: (i) => (shown[i]!.row.kind === 'broken' ? 'broken' : ''),
    open: (i) => {
      const { file, row, token } = shown[i]!;
      if (row.kind === 'broken') page.report(new Error(`${file} line ${row.line}: ${row.fault}.`));
      else go('rollout', { run: index || null, file, line: row.line, token });
    },
  });

  function update(): void {
    shown = [];
    let all = 0;
    for (const [file, rows] of source!.files) {
      for (const row of rows) {
        all += 1;
        const step = row.kind === 'episode' ? row.step : Number(/step-0*(\d+)/.exec(file)?.[1] ?? Number.NaN);
        const findings = audited.get(`${file}:${row.line}`) ?? null;
        if (!passesFilter(row, step, filter, findings)) continue;
        const token = matches?.get(`${file}:${row.line}`);
        if (matches && token === undefined) continue;
        shown.push({ file, row, token: token ?? null, findings });
      }
    }
    list.update(shown.length);
    const found = matches ? `, ${plural(matches.size, 'text match', 'text matches')}` : '';
    status.textContent =
      `${shown.length} of ` + `${plural(all, 'rollout')}${found}${source!.loading ? ', reading more …' : ''}`;
  }

  function change(part: Partial<RolloutFilter>): void {
    filter = { ...filter, ...part };
    note('rollouts', { run: index || null, ...writeFilter(filter), text: wanted });
    update();
  }

  /** Audits the rollouts that are shown now. */
  async function audit(): Promise<void> {
    const rows = [...shown];
    const began = performance.now();
    let drawn = began;
    for (const { file, row } of rows) {
      if (gone) return;
      audited.set(`${file}:${row.line}`, await countFindings(source!, file, row));
      if (performance.now() - drawn < 500) continue;
      drawn = performance.now();
      auditStatus.textContent = `audited ${audited.size} of ${rows.length}`;
    }
    const bad = [...audited.values()].filter((count) => count > 0).length;
    auditStatus.textContent = `audited ${audited.size}: ${plural(bad, 'rollout')} with findings`;
    update();
  }

  async function search(text: string): Promise<void> {
    wanted = text;
    change({});
    searching += 1;
    const own = searching;
    matches = text === '' ? null : new Map();
    update();
    if (text === '') return;
    for await (const { file, matches: found } of source!.search(text)) {
      if (own !== searching) return;
      for (const { line, token } of found) matches!.set(`${file}:${line}`, token);
      update();
    }
  }

  const numberField = (
    value: number | null,
    attributes: Record<string, string>,
    set: (value: number | null) => void,
  ) => {
    const input = h('input', { type: 'number', ...attributes });
    input.value = value === null ? '' : String(value);
    input.addEventListener('change', () => set(input.value === '' ? null : Number(input.value)));
    return input;
  };
  const textField = (value: string, placeholder: string, set: (value: string) => void) => {
    const input = h('input', { type: 'search', placeholder });
    input.value = value;
    input.addEventListener('change', () => set(input.value.trim()));
    return input;
  };
  const range = { min: '0', max: '1', step: '0.05' };
  fill(
    main,
    h('h1', null, 'Rollouts'),
    h(
      'form',
      { class: 'filters', role: 'search', onsubmit: (event: Event) => event.preventDefault() },
      labelled(
        'Text',
        textField(wanted, 'in the rollout', (value) => void search(value).catch(page.report)),
      ),
      labelled(
        'Step',
        numberField(filter.step, { min: '0', step: '1' }, (step) => change({ step })),
      ),
      labelled(
        'Task',
        textField(filter.task, 'part of the id', (task) => change({ task })),
      ),
      labelled(
        'Strict',
        select(
          [
            ['any', 'any'],
            ['yes', 'success'],
            ['no', 'failure'],
          ],
          filter.strict,
          (strict) => change({ strict }),
        ),
      ),
      labelled(
        'Reward from',
        numberField(filter.minReward, range, (v) => change({ minReward: v ?? filterDefaults.minReward })),
      ),
      labelled(
        'to',
        numberField(filter.maxReward, range, (v) => change({ maxReward: v ?? filterDefaults.maxReward })),
      ),
      checkbox('capped', filter.capped, (capped) => change({ capped })),
      checkbox('malformed call', filter.malformed, (malformed) => change({ malformed })),
      checkbox('failed', filter.failed, (failed) => change({ failed })),
      checkbox('audit findings', filter.findings, (findings) => change({ findings })),
      button('Audit these', () => void audit().catch(page.report)),
      auditStatus,
    ),
    status,
    h('section', { class: 'card fills' }, list.element),
  );
  update();
  if (wanted !== '') void search(wanted).catch(page.report);
  const off = source.changed.on(update);
  return () => {
    gone = true;
    off();
  };
};
