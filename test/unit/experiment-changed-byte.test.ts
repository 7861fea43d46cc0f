// Where a frozen file changed: by the copies and digests that `prepare` keeps, and without them.
import { cpSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadPlan, planDifferences } from '../../src/experiment/freeze-node.ts';
import { BLOCK_BYTES, BLOCKS_FILE, COPIES_FILE } from '../../src/experiment/keep-node.ts';
import { openKept } from '../../src/experiment/kept-node.ts';
import { firstDifference, placeText } from '../../src/experiment/place.ts';
import { planBytes, planHashLine } from '../../src/experiment/plan.ts';
import { requireUnchanged } from '../../src/experiment/plan-changes.ts';
import { sha256Hex } from '../../src/lib/sha256-node.ts';
import { type Inputs, preparedPlan, writeInputs } from '../support/experiment-fixture.ts';

const base = mkdtempSync(join(tmpdir(), 'shaderl-changed-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));

/** Larger than what is kept whole, and no whole number of blocks. */
const largeBytes = 17 * 2 ** 20 + 1000;
let inputs: Inputs;
let large: string;
beforeAll(() => {
  inputs = writeInputs(base);
  large = join(inputs.baseline, 'optimizer.bin');
  writeFileSync(
    large,
    Uint8Array.from({ length: largeBytes }, (_, i) => (i * 31) ^ (i >> 8)),
  );
});

/** What changed of the inputs and of the plan's folder; the program may be worked on while this runs. */
async function changes(plan: Awaited<ReturnType<typeof preparedPlan>>) {
  const differences = await planDifferences(plan.plan, plan.folder);
  return differences.filter(({ file }) => file.startsWith(base));
}

/** Changes a file for the time of `look`. */
async function changed<T>(file: string, change: (bytes: Buffer) => Uint8Array, look: () => Promise<T>): Promise<T> {
  const good = readFileSync(file);
  writeFileSync(file, change(Buffer.from(good)));
  try {
    return await look();
  } finally {
    writeFileSync(file, good);
  }
}

const flip = (at: number) => (bytes: Buffer) => {
  bytes[at]! ^= 1;
  return bytes;
};

describe('the first byte that differs', () => {
  const bytes = (text: string) => new TextEncoder().encode(text);
  test.each([
    ['a\nbc', 'a\nbd', 'the first byte that differs is at offset 3 (line 2): found 0x64, wanted 0x63'],
    ['a\0bc', 'a\0bd', 'the first byte that differs is at offset 3: found 0x64, wanted 0x63'],
    ['abc', 'ab', 'it was cut at offset 2: found 2 bytes, wanted 3'],
    ['abc', 'abcd', 'it goes on after offset 3: found 4 bytes, wanted 3'],
  ])('of %j as %j', (frozen, found, text) => {
    expect(placeText(firstDifference(bytes(frozen), bytes(found))!)).toBe(text);
  });
  test('is none where both are equal', () => {
    expect(firstDifference(bytes('abc'), bytes('abc'))).toBeNull();
  });
});

describe('a file that was kept whole', () => {
  test('a source is named to the byte, though the program has another one by now', async () => {
    const plan = await preparedPlan(base, inputs);
    const frozen = plan.plan.program.files.find(({ path }) => path === 'shaders/adamw.wgsl')!;
    const line = gunzipSync(readFileSync(join(plan.folder, COPIES_FILE)))
      .toString('utf8')
      .split('\n')
      .map((one) => (one === '' ? null : JSON.parse(one)))
      .find((one) => one?.path === frozen.path);
    const good = Buffer.from(line.text);
    expect(sha256Hex(good)).toBe(frozen.sha256);
    const at = join(base, 'adamw.wgsl');
    writeFileSync(at, flip(777)(Buffer.from(good)));
    expect(await openKept(plan.plan, plan.folder)(frozen, at)).toMatchObject({ kind: 'byte', offset: 777 });
  });

  test.each([
    [
      'cut',
      (good: Buffer) => good.subarray(0, 40),
      (size: number) => ({ offset: 40, frozenBytes: size, foundBytes: 40 }),
    ],
    [
      'longer',
      (good: Buffer) => Buffer.concat([good, Buffer.from('{}')]),
      (size: number) => ({ offset: size, frozenBytes: size, foundBytes: size + 2 }),
    ],
  ])('an input that is %s ends at the byte that is named', async (_name, change, place) => {
    const plan = await preparedPlan(base, inputs);
    const size = readFileSync(inputs.mathDev).length;
    const found = await changed(inputs.mathDev, change, () => changes(plan));
    expect(found).toMatchObject([{ file: inputs.mathDev, place: { kind: 'end', ...place(size) } }]);
  });

  test('a copy with other bytes than the frozen ones is not believed', async () => {
    const plan = await preparedPlan(base, inputs);
    const file = join(plan.folder, COPIES_FILE);
    const lines = gunzipSync(readFileSync(file)).toString('utf8');
    const forged = lines.replace(/("path":"[^"]*dev\.jsonl".*"text":")(.)/, '$1X');
    expect(forged).not.toBe(lines);
    writeFileSync(file, gzipSync(forged));
    const found = await changed(inputs.mathDev, flip(20), () => changes(plan));
    expect(found).toMatchObject([{ file: inputs.mathDev, place: { kind: 'unknown' } }]);
  });

  test.each([
    ['are not there, as in an older plan', (file: string) => rmSync(file)],
    ['are damaged', (file: string) => truncateSync(file, 1000)],
  ])('is still verified where the copies %s', async (_name, spoil) => {
    const plan = await preparedPlan(base, inputs);
    spoil(join(plan.folder, COPIES_FILE));
    expect(await changes(plan)).toEqual([]);
    const found = await changed(
      inputs.mathDev,
      (good) => good.subarray(0, 40),
      () => changes(plan),
    );
    expect(() => requireUnchanged(found, plan.folder)).toThrow(
      /; which byte differs cannot be told, no copy of the file was kept \(found 40 bytes, wanted \d+\)\. Restore/,
    );
  });
});

describe('a file that is too large for a copy', () => {
  const block = (index: number) => ({
    kind: 'block',
    from: index * BLOCK_BYTES,
    to: Math.min((index + 1) * BLOCK_BYTES, largeBytes),
  });
  const last = Math.floor(largeBytes / BLOCK_BYTES);

  test.each([
    ['a byte in the middle', flip(150 * BLOCK_BYTES + 17), block(150)],
    [
      'the first byte of a block, and later ones',
      (b: Buffer) => flip(9 * BLOCK_BYTES)(flip(largeBytes - 1)(b)),
      block(9),
    ],
    ['the last byte', flip(largeBytes - 1), block(last)],
    ['a cut inside a block', (b: Buffer) => b.subarray(0, 20 * BLOCK_BYTES + 5), block(20)],
    [
      'a cut between blocks',
      (b: Buffer) => b.subarray(0, 20 * BLOCK_BYTES),
      { kind: 'end', offset: 20 * BLOCK_BYTES, foundBytes: 20 * BLOCK_BYTES },
    ],
    [
      'bytes that were added',
      (b: Buffer) => Buffer.concat([b, b.subarray(0, 3 * BLOCK_BYTES)]),
      { kind: 'end', offset: largeBytes, foundBytes: largeBytes + 3 * BLOCK_BYTES },
    ],
    ['bytes that were added after a change', (b: Buffer) => Buffer.concat([flip(largeBytes - 2)(b), b]), block(last)],
  ])('%s: the block or the end is named', async (_name, change, place) => {
    const plan = await preparedPlan(base, inputs);
    const found = await changed(large, change, () => changes(plan));
    expect(found).toMatchObject([{ file: large, place }]);
    expect(found[0]!.place).toMatchObject({ frozenBytes: largeBytes });
  });

  test('the digests are sealed by the plan: changed ones are named and not used', async () => {
    const plan = await preparedPlan(base, inputs);
    const file = join(plan.folder, BLOCKS_FILE);
    const { bytes } = plan.plan.blocks!;
    const other = (text: Buffer) => flip(bytes - 3)(text);
    const found = await changed(file, other, () => changed(large, flip(5), () => changes(plan)));
    expect(found).toMatchObject([
      { file: large, place: { kind: 'unknown' } },
      { file, place: { kind: 'byte', offset: bytes - 3 } },
    ]);
  });

  test('a plan without digests is verified as before', async () => {
    const plan = await preparedPlan(base, inputs);
    const { blocks: _blocks, ...old } = plan.plan;
    const text = planBytes(old);
    writeFileSync(join(plan.folder, 'plan.json'), text);
    writeFileSync(join(plan.folder, 'plan.sha256'), planHashLine(sha256Hex(text)));
    const loaded = { ...(await loadPlan(join(plan.folder, 'plan.json'), plan.folder)), folder: plan.folder };
    expect(await changes(loaded)).toEqual([]);
    expect(await changed(large, flip(5), () => changes(loaded))).toMatchObject([{ place: { kind: 'unknown' } }]);
  });
});

describe('plan.json itself', () => {
  async function copyOfPlan(withCopies: boolean) {
    const plan = await preparedPlan(base, inputs);
    const folder = mkdtempSync(join(base, 'edited-'));
    cpSync(plan.folder, folder, { recursive: true });
    if (!withCopies) rmSync(join(folder, COPIES_FILE));
    return { file: join(folder, 'plan.json'), folder, sha256: plan.sha256 };
  }

  test('one changed digit is named by its offset', async () => {
    const { file, folder, sha256 } = await copyOfPlan(true);
    const offset = readFileSync(file, 'utf8').indexOf('"episodes":6') + 11;
    const load = () => loadPlan(file, folder);
    await expect(changed(file, flip(offset), load)).rejects.toThrow(
      `wanted ${sha256}, as plan.sha256 beside it says; the first byte that differs is at offset ${offset} (line 1): ` +
        'found 0x37, wanted 0x36. A plan cannot be changed',
    );
    await expect(changed(file, (good) => good.subarray(0, 900), load)).rejects.toThrow(
      /it was cut at offset 900: found/,
    );
  });

  test.each([true, false])('a changed plan.sha256 is told from a changed plan, copy kept: %s', async (kept) => {
    const { file, folder } = await copyOfPlan(kept);
    const hashFile = join(folder, 'plan.sha256');
    const load = () => loadPlan(file, folder);
    const wanted = 'plan.json is as it was written, plan.sha256 is not: the first byte that differs is at offset';
    await expect(changed(hashFile, flip(70), load)).rejects.toThrow(`${wanted} 70 (line 1)`);
    if (kept) await expect(changed(hashFile, flip(4), load)).rejects.toThrow(`${wanted} 4 (line 1)`);
  });

  test('without a copy, it is told where the text stops being canonical, if it does', async () => {
    const { file, folder } = await copyOfPlan(false);
    const load = () => loadPlan(file, folder);
    const lost = 'which byte changed cannot be told, no copy of the plan was kept';
    const spaced = (good: Buffer) => Buffer.from(good.toString('utf8').replace('"data":', '"data": '));
    const offset = readFileSync(file, 'utf8').indexOf('"data":') + 7;
    await expect(changed(file, spaced, load)).rejects.toThrow(
      `${lost}, but it is no longer canonical: the first byte that differs is at offset ${offset} (line 1): found 0x20`,
    );
    const edited = (good: Buffer) => Buffer.from(good.toString('utf8').replace('"episodes":6', '"episodes":7'));
    await expect(changed(file, edited, load)).rejects.toThrow(`${lost}, and it is still canonical. A plan`);
    await expect(changed(file, (good) => good.subarray(0, 900), load)).rejects.toThrow(
      `${lost}, but it is no longer canonical: `,
    );
  });
});
