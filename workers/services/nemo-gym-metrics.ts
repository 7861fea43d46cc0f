// /aggregate_metrics of a NeMo Gym server: statistics of numeric fields by task and over all. Not our own report.
// Invariant: fields in order of appearance; booleans count as 0 and 1; text and objects are left out.
import { toWire, type WireMap, type WireValue } from '../../src/environments/service/wire-json.ts';
import { PythonError } from './python-errors.ts';

type Numbers = Map<string, number[]>;

const numeric = (value: WireValue): number | bigint | null => {
  if (typeof value === 'boolean') return value ? 1n : 0n;
  return typeof value === 'bigint' || typeof value === 'number' ? value : null;
};

/** Numeric fields of a rollout: the reward, then usage and the others in the order that is asked for. */
function fieldsOf(rollout: WireMap, usageFirst: boolean): [string, number | bigint][] {
  const fields: [string, number | bigint][] = [];
  const take = (name: string, value: WireValue): void => {
    const number = numeric(value);
    if (number !== null) fields.push([name, number]);
  };
  if (rollout.has('reward')) take('reward', rollout.get('reward')!);
  const response = rollout.get('response');
  const usage = response instanceof Map ? response.get('usage') : null;
  const counted = usage instanceof Map ? [...usage] : [];
  const others = [...rollout].filter(([name]) => name !== 'reward' && name !== 'response' && !name.startsWith('_ng_'));
  for (const [name, value] of usageFirst ? [...counted, ...others] : [...others, ...counted]) take(name, value);
  return fields;
}

function collect(rollouts: readonly WireMap[]): Numbers {
  const numbers: Numbers = new Map();
  for (const rollout of rollouts) {
    for (const [name, value] of fieldsOf(rollout, false)) {
      const column = numbers.get(name) ?? [];
      column.push(Number(value));
      numbers.set(name, column);
    }
  }
  return numbers;
}

const mean = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0) / values.length;

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** Sample deviation; 0 for one value. */
function deviation(values: readonly number[]): number {
  if (values.length < 2) return 0;
  const centre = mean(values);
  return Math.sqrt(values.reduce((sum, value) => sum + (value - centre) ** 2, 0) / (values.length - 1));
}

const STATISTICS: readonly (readonly [string, (values: readonly number[]) => number])[] = [
  ['mean', mean],
  ['max', (values) => Math.max(...values)],
  ['min', (values) => Math.min(...values)],
  ['median', median],
  ['std', deviation],
];

function statistics(numbers: Numbers): WireMap {
  const out: WireMap = new Map();
  for (const [statistic, of] of STATISTICS) {
    for (const [name, values] of numbers) out.set(`${statistic}/${name}`, of(values));
  }
  return out;
}

function groupEntry(task: WireValue, rollouts: readonly WireMap[]): WireMap {
  const entry: WireMap = new Map([['_ng_task_index', task]]);
  for (const [name, value] of statistics(collect(rollouts))) entry.set(name, value);
  entry.set('sample', toWire({ agent_ref: { name: 'agent' } }));
  const count = BigInt(rollouts.length);
  entry.set('num_rollouts', count).set('expected_num_rollouts', count).set('missing_num_rollouts', 0n);
  entry.set('reward_profile_completion_pct', 100);
  const infos = rollouts.map((rollout) => {
    const index = rollout.get('_ng_rollout_index') ?? null;
    const info: WireMap = new Map<string, WireValue>([
      ['rollout_id', `${String(task)}:${String(index)}`],
      ['_ng_task_index', task],
      ['_ng_rollout_index', index],
    ]);
    for (const [name, value] of fieldsOf(rollout, true)) info.set(name, value);
    return info;
  });
  return entry.set('rollout_infos', infos);
}

/** The reply's value. Throws KeyError, as upstream, where a rollout has no task index. */
export function aggregateMetrics(rollouts: readonly WireValue[]): WireMap {
  const groups = new Map<string, { task: WireValue; members: WireMap[] }>();
  const all: WireMap[] = [];
  for (const rollout of rollouts) {
    const map = rollout instanceof Map ? rollout : new Map<string, WireValue>();
    const task = map.get('_ng_task_index');
    if (task === undefined) throw new PythonError('KeyError', '_ng_task_index', "'_ng_task_index'");
    const group = groups.get(String(task)) ?? { task, members: [] };
    group.members.push(map);
    groups.set(String(task), group);
    all.push(map);
  }
  const agent = all.length === 0 ? new Map<string, WireValue>() : statistics(collect(all));
  const key: WireMap = new Map([...agent].filter(([name]) => name.startsWith('mean/')));
  return new Map<string, WireValue>([
    ['group_level_metrics', [...groups.values()].map(({ task, members }) => groupEntry(task, members))],
    ['agent_metrics', agent],
    ['key_metrics', key],
  ]);
}
