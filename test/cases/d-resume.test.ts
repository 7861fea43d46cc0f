// Cases D3 and D7: a resumed run draws what the uninterrupted one would have drawn, and only on top of the same model.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { requireIdentity } from '../../src/checkpoint-state.ts';
import { takePrompts } from '../../src/lib/data-order.ts';
import { epochOrder } from '../../src/lib/rng.ts';
import { sha256Hex } from '../../src/lib/sha256-node.ts';
import { identity } from '../support/checkpoint-content.ts';
import { drawStep, SEED } from '../support/resume-draws.ts';

const base = mkdtempSync(join(tmpdir(), 'shaderl-d-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));

/** Steps 1 to `last`, uninterrupted. 10 prompts, 3 a step: three steps an epoch, one prompt of each epoch dropped. */
function wholeRun(last: number) {
  let cursor = { epoch: 0, index: 0 };
  return Array.from({ length: last }, (_, i) => {
    const drawn = drawStep(i + 1, cursor);
    cursor = drawn.cursor;
    return drawn.draws;
  });
}

describe('D3: random numbers after a resume', () => {
  test.each([
    ['at the end of an epoch', 3],
    ['in mid-epoch', 4],
  ])('stopped %s, a new process draws the prompts, tokens and environment seeds of the whole run', (name, stop) => {
    const root = join(base, name.replaceAll(' ', '-'));
    const script = new URL('../support/resume-child.ts', import.meta.url).pathname;
    const process_ = (last: number) =>
      JSON.parse(execFileSync(process.execPath, ['--import', 'tsx', script, root, String(last)], { encoding: 'utf8' }));
    const whole = wholeRun(9);
    expect(process_(stop)).toEqual(whole.slice(0, stop));
    expect(process_(9)).toEqual(whole.slice(stop));
  });

  test('stopped in mid-group, the rollouts that are made again are the same ones', () => {
    const first = drawStep(5, { epoch: 1, index: 3 });
    expect(drawStep(5, { epoch: 1, index: 3 })).toEqual(first);
    // Each member has its own numbers, whether or not the members before it were drawn in this process.
    expect(new Set(first.draws.firstTokens).size).toBe(first.draws.firstTokens.length);
  });

  test('no epoch repeats the order of another', () => {
    const orders = [0, 1, 2].map((epoch) => epochOrder(SEED, epoch, 10).join());
    expect(new Set(orders).size).toBe(3);
  });

  test('a step takes prompts of one epoch, each at most once an epoch, and drops an incomplete rest', () => {
    const whole = wholeRun(9);
    for (const epoch of [0, 1, 2]) {
      const taken = whole.slice(3 * epoch, 3 * epoch + 3).flatMap(({ prompts }) => prompts);
      expect(taken).toEqual(epochOrder(SEED, epoch, 10).slice(0, 9));
    }
  });

  test('an epoch that the groups divide is used up before the next begins', () => {
    const second = takePrompts(1, 4, { epoch: 0, index: 2 }, 2);
    expect(second).toEqual({ indices: epochOrder(1, 0, 4).slice(2), cursor: { epoch: 0, index: 4 } });
    expect(takePrompts(1, 4, second.cursor, 2).cursor).toEqual({ epoch: 1, index: 2 });
  });

  test('more groups a step than prompts are refused', () => {
    expect(() => takePrompts(1, 3, { epoch: 0, index: 0 }, 4)).toThrow(/found 3 training items; wanted at least 4/);
  });
});

describe('D7: what an adapter was trained on', () => {
  test('the same surroundings are accepted, whatever the order of the device fields', () => {
    const present = { ...identity, device: { description: 'llvmpipe', vendor: 'mesa' } };
    expect(requireIdentity('checkpoints/step-000064', identity, present)).toEqual([]);
  });

  test.each([
    ['baseModel', { baseModel: sha256Hex('another base') }],
    ['tokenizer', { tokenizer: sha256Hex('tokenizer with enable_thinking false by default') }],
    ['chatTemplate', { chatTemplate: sha256Hex('template 2') }],
    ['generationConfig', { generationConfig: sha256Hex('{"eos_token_id":[151645]}') }],
    ['environment', { environment: 'german/2' }],
    ['kernelFamily', { kernelFamily: 'matrix' as const }],
    ['device', { device: { ...identity.device, description: 'NVIDIA H200' } }],
  ] as const)('another %s stops, naming it, unless it is accepted by name, which is recorded', (item, change) => {
    const present = { ...identity, ...change };
    const open = (accepted: readonly (typeof item)[]) => requireIdentity('step-64', identity, present, accepted);
    expect(() => open([])).toThrow(new RegExp(`^opening step-64: found that ${item} is .*, sealed with `));
    expect(() => open([])).toThrow(expect.objectContaining({ name: 'CheckpointError', code: 'identity-mismatch' }));
    expect(open([item]).map((override) => override.item)).toEqual([item]);
    const other = item === 'device' ? 'tokenizer' : 'device';
    expect(() => requireIdentity('step-64', identity, present, [other])).toThrow(item);
  });

  test('several differences are named together', () => {
    const present = { ...identity, tokenizer: sha256Hex('t2'), generationConfig: sha256Hex('g2') };
    expect(() => requireIdentity('step-64', identity, present)).toThrow(
      /accept tokenizer, generationConfig explicitly/,
    );
  });
});
