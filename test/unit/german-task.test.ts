// The generators of German tasks: determinism, coverage of the operand pairs, disjoint splits, nothing of the table told.
import { describe, expect, it } from 'vitest';
import {
  germanTools,
  INSTRUCTIONS,
  OPERAND_PAIRS,
  OPERATIONS,
  TEMPLATE_COUNT,
} from '../../src/environments/german-data.ts';
import {
  devTasks,
  finalTasks,
  type GermanPayload,
  promptOf,
  readPayload,
  splitOf,
  trainTasks,
} from '../../src/environments/german-task.ts';
import type { Task } from '../../src/environments/port.ts';

const instanceOf = (task: Task): string => {
  const { pair, left, right, table } = readPayload(task);
  return `${pair}:${table[left]}:${table[right]}`;
};

describe('the operand pairs', () => {
  it('are 80 different ordered pairs of different goods', () => {
    expect(OPERAND_PAIRS).toHaveLength(80);
    expect(new Set(OPERAND_PAIRS.map((pair) => pair.join())).size).toBe(80);
    expect(OPERAND_PAIRS.every(([left, right]) => left !== right)).toBe(true);
  });

  it('have four templates per operation that name both goods', () => {
    for (const operation of OPERATIONS) {
      expect(new Set(INSTRUCTIONS[operation]).size).toBe(TEMPLATE_COUNT);
      for (const text of INSTRUCTIONS[operation]) expect(text.split('{a}').length + text.split('{b}').length).toBe(4);
    }
  });
});

describe('the generators', () => {
  it('give the same tasks for the same seed and other tasks for another one', () => {
    expect(trainTasks(20261020, 20)).toEqual(trainTasks(20261020, 20));
    expect(trainTasks(20261021, 20).map(instanceOf)).not.toEqual(trainTasks(20261020, 20).map(instanceOf));
  });

  it('give a prefix when asked for fewer', () => {
    expect(devTasks(42, 100).slice(0, 64)).toEqual(devTasks(42, 64));
  });

  it('keep their first task for ever, because plans and fixtures depend on it', () => {
    expect(trainTasks(20261020, 1)[0]).toMatchInlineSnapshot(`
      {
        "id": "german-train-20261020-000000",
        "payload": {
          "left": "Brot",
          "operation": "*",
          "pair": 11,
          "right": "Käse",
          "schema": "shaderl.german/1",
          "split": "train",
          "table": {
            "Apfel": 66,
            "Brot": 58,
            "Butter": 3,
            "Honig": 70,
            "Kaffee": 41,
            "Käse": 83,
            "Mehl": 66,
            "Milch": 49,
            "Salz": 31,
            "Zucker": 16,
          },
          "template": 0,
        },
      }
    `);
  });

  it('visit every operand pair once in each block of 80', () => {
    const pairs = trainTasks(1, 240).map((task) => readPayload(task).pair);
    for (let block = 0; block < 3; block++) expect(new Set(pairs.slice(block * 80, block * 80 + 80)).size).toBe(80);
    expect(pairs.slice(0, 80)).not.toEqual(pairs.slice(80, 160));
  });

  it('use every operation, template and value', () => {
    const payloads = trainTasks(2, 3000).map(readPayload);
    expect(new Set(payloads.map((p) => p.operation)).size).toBe(3);
    expect(new Set(payloads.map((p) => p.template)).size).toBe(TEMPLATE_COUNT);
    const values = payloads.flatMap((p) => Object.values(p.table));
    expect([Math.min(...values), Math.max(...values), new Set(values).size]).toEqual([2, 99, 98]);
  });

  it('share no pair with its values and no id between splits, whatever the seeds', () => {
    const seeds = [0, 42, 1729, 20261020, 2 ** 32 - 1];
    const of = (make: typeof trainTasks) => seeds.flatMap((seed) => make(seed, 1500));
    const all = [of(trainTasks), of(devTasks), of(finalTasks)];
    for (const what of [instanceOf, (task: Task) => task.id]) {
      const sets = all.map((tasks) => new Set(tasks.map(what)));
      const union = new Set(sets.flatMap((set) => [...set]));
      expect(union.size).toBe(sets.reduce((sum, set) => sum + set.size, 0));
    }
  });

  it('repeat no pair with its values within one call', () => {
    const tasks = devTasks(9, 6000);
    expect(new Set(tasks.map(instanceOf)).size).toBe(6000);
  });

  it('give about 5/8, 1/8 and 2/8 of all values to TRAIN, DEV and final', () => {
    const counts = { train: 0, dev: 0, final: 0 };
    for (let pair = 0; pair < 80; pair++) {
      for (let a = 2; a < 100; a += 3) for (let b = 2; b < 100; b += 3) counts[splitOf(pair, a, b)]++;
    }
    const total = 80 * 33 * 33;
    expect(Math.abs(counts.train / total - 5 / 8)).toBeLessThan(0.01);
    expect(Math.abs(counts.dev / total - 1 / 8)).toBeLessThan(0.01);
  });

  it('refuse a seed or a count that they cannot honour', () => {
    expect(() => trainTasks(-1, 1)).toThrowErrorMatchingInlineSnapshot(
      `[PlanError: generating train tasks: seed is -1; use an integer in [0, 2^32).]`,
    );
    expect(() => trainTasks(1, 50_001)).toThrowErrorMatchingInlineSnapshot(
      `[PlanError: generating train tasks: count is 50001; use an integer in 0..50000.]`,
    );
    expect(() => devTasks(1.5, 1)).toThrow('1.5');
    expect(() => finalTasks(1, Number.NaN)).toThrow('NaN');
  });
});

describe('the prompt', () => {
  it('names both goods and holds no digit, so no value of the table', () => {
    for (const task of trainTasks(4, 500)) {
      const payload = readPayload(task);
      const text = promptOf(payload)
        .map((message) => message.content)
        .join('\n');
      expect(text).toContain(payload.left);
      expect(text).toContain(payload.right);
      expect(/[0-9]/.test(text)).toBe(false);
    }
    expect(/[0-9]/.test(JSON.stringify(germanTools()))).toBe(false);
  });

  it('puts the operands of a subtraction the right way round', () => {
    const payload: GermanPayload = {
      ...readPayload(trainTasks(1, 1)[0]!),
      operation: '-',
      left: 'Brot',
      right: 'Salz',
    };
    const texts = [0, 1, 2, 3].map((template) => promptOf({ ...payload, template })[1]!.content);
    expect(texts).toMatchInlineSnapshot(`
      [
        "Wie viel ist Brot minus Salz? Letzte Zeile: Antwort: <Zahl>",
        "Berechne Brot - Salz. Letzte Zeile: Antwort: <Zahl>",
        "Ziehe Salz von Brot ab. Letzte Zeile: Antwort: <Zahl>",
        "Bilde die Differenz aus Brot und Salz. Letzte Zeile: Antwort: <Zahl>",
      ]
    `);
  });
});

describe('readPayload', () => {
  const task = trainTasks(1, 1)[0]!;
  it('refuses a payload with a wrong, missing or extra field, naming it', () => {
    const broken = (change: Record<string, unknown>) => () =>
      readPayload({ id: 't', payload: { ...task.payload, ...change } });
    expect(broken({ operation: '/' })).toThrow(/reading task t: payload.operation/);
    expect(broken({ table: { Apfel: 3 } })).toThrow(/payload.table/);
    expect(broken({ extra: 1 })).toThrow(/extra/);
    expect(broken({ pair: (readPayload(task).pair + 1) % 80 })).toThrow(/they must agree/);
  });
});
