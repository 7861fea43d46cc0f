// The safetensors reader and writer: against files and a header made by the Python library, and against spoilt headers.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { f32ToF16 } from '../../src/lib/half.ts';
import { memorySource } from '../../src/model/file-source.ts';
import { duplicateKey } from '../../src/model/json-file.ts';
import { openSafetensors, readF32, readF64, readI64, readTensorRange } from '../../src/model/safetensors.ts';
import { bytesOf, encodeSafetensors, streamSafetensors, type TensorBytes } from '../../src/model/safetensors-write.ts';
import { faultOf, rawSafetensors, tensorsOf } from '../support/checkpoint-files.ts';
import { goldenPath, readGolden } from '../support/golden.ts';

const goldens = readdirSync(goldenPath('.'), { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.safetensors'))
  .sort();
const open = (bytes: Uint8Array) => openSafetensors(memorySource('m', { 'x.safetensors': bytes }), 'x.safetensors');
const fault = (bytes: Uint8Array) => faultOf(() => open(bytes));
const tensor = (name: string, ...data_offsets: number[]) =>
  `"${name}":{"dtype":"U8","shape":[${data_offsets[1]! - data_offsets[0]!}],"data_offsets":[${data_offsets}]}`;

describe('safetensors files of the Python library', () => {
  it.each(goldens)('%s reads as the independent reader reads it', async (name) => {
    const source = memorySource('m', { f: new Uint8Array(readFileSync(goldenPath(name))) });
    const { tensors, metadata } = await openSafetensors(source, 'f');
    const theirs = readGolden(name);
    expect([...tensors.keys()].sort()).toEqual([...theirs.tensors.keys()].sort());
    expect(Object.keys(metadata).sort()).toEqual(Object.keys(theirs.metadata).sort());
    for (const [key, ref] of tensors) {
      const expected = theirs.tensors.get(key)!;
      const values = ref.dtype === 'I64' ? await readI64(source, ref) : await readF64(source, ref);
      expect(ref.shape).toEqual(expected.shape);
      if (!values.every((value, i) => Object.is(value, expected.data[i]))) expect.fail(`${key} differs`);
      expect(values).toHaveLength(expected.data.length);
    }
  });

  it.each(goldens)('%s is written back byte for byte', async (name) => {
    const bytes = new Uint8Array(readFileSync(goldenPath(name)));
    const tensors = await tensorsOf({ f: bytes }, 'f');
    const { metadata } = await open(bytes);
    const written = encodeSafetensors(
      [...tensors].reverse(),
      Buffer.from(bytes).includes('__metadata__') ? metadata : null,
    );
    // The Python library writes several metadata keys in no fixed order: compare what follows them.
    const sorted = Object.keys(metadata).length <= 1;
    const from = sorted ? 0 : Buffer.from(bytes).indexOf('},"') + 2;
    const fromWritten = sorted ? 0 : Buffer.from(written).indexOf('},"') + 2;
    expect(Buffer.compare(written.subarray(fromWritten), bytes.subarray(from))).toBe(0);
    expect(written.length).toBe(bytes.length);
  });

  it('writes all dtypes, names beyond ASCII, empty and scalar tensors in the library’s order', async () => {
    // safetensors.numpy.save of the same arrays, safetensors 0.8: its length and SHA-256.
    const range = { BOOL: [0, 1, 1], U8: [0, 1, 2] };
    const arrays: [string, TensorBytes['dtype'], ArrayBufferView][] = [
      ['z', 'BOOL', Uint8Array.from(range.BOOL)],
      ['y', 'U8', Uint8Array.from(range.U8)],
      ['x', 'I8', Int8Array.from(range.U8)],
      ['w', 'I16', Int16Array.from(range.U8)],
      ['v', 'U16', Uint16Array.from(range.U8)],
      ['u', 'F16', Uint16Array.from(range.U8, f32ToF16)],
      ['s', 'I32', Int32Array.from(range.U8)],
      ['r', 'U32', Uint32Array.from(range.U8)],
      ['q', 'F32', Float32Array.from(range.U8)],
      ['p', 'F64', Float64Array.from(range.U8)],
      ['o', 'I64', BigInt64Array.from([0n, 1n, 2n])],
      ['n', 'U64', BigUint64Array.from([0n, 1n, 2n])],
      ['ä', 'F32', Float32Array.from(range.U8)],
      ['b10', 'F32', Float32Array.from(range.U8)],
      ['b9', 'F32', Float32Array.from(range.U8)],
    ];
    const tensors = arrays.map(
      ([name, dtype, values]): TensorBytes => ({ name, dtype, shape: [3], bytes: bytesOf(values) }),
    );
    tensors.push({ name: 'empty', dtype: 'F32', shape: [0, 4], bytes: new Uint8Array(0) });
    tensors.push({ name: 'scalar', dtype: 'F32', shape: [], bytes: bytesOf(Float32Array.of(1.5)) });
    tensors.push({ name: '🦜', dtype: 'F32', shape: [2], bytes: bytesOf(Float32Array.of(0, 1)) });
    tensors.push({ name: '\uffee', dtype: 'F32', shape: [1], bytes: bytesOf(Float32Array.of(0)) });
    const bytes = encodeSafetensors(tensors, { format: 'np' });
    expect(bytes.length).toBe(1315);
    expect(createHash('sha256').update(bytes).digest('hex')).toBe(
      'fc2ff993a1359d56c0f6578a12fd2f54f3c4f2a1ea1d793e1b0e15cdd966d6fe',
    );
    const source = memorySource('m', { f: bytes });
    const file = await openSafetensors(source, 'f');
    for (const name of ['z', 'y', 'x', 'w', 'v', 's', 'r', 'o', 'n']) {
      expect(await readI64(source, file.tensors.get(name)!)).toEqual(name === 'z' ? range.BOOL : range.U8);
    }
    for (const name of ['u', 'q', 'p', 'ä'])
      expect([...(await readF64(source, file.tensors.get(name)!))]).toEqual([0, 1, 2]);
    expect(file.tensors.get('scalar')!.shape).toEqual([]);
  });
});

describe('writing', () => {
  it('streams the same bytes as it encodes, whatever the chunks', async () => {
    const name = fc.string({ minLength: 1, maxLength: 5 }).filter((text) => text !== '__metadata__');
    const item = fc.record({ name, dtype: fc.constantFrom('BF16', 'F32', 'U8', 'I64'), rows: fc.nat({ max: 4 }) });
    await fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(item, { selector: (t) => t.name, maxLength: 6 }),
        fc.integer({ min: 1, max: 9 }),
        async (items, cut) => {
          const width = { BF16: 2, F32: 4, U8: 1, I64: 8 } as const;
          const tensors = items.map(({ name, dtype, rows }, i): TensorBytes => {
            const bytes = new Uint8Array(rows * 3 * width[dtype as 'U8']).fill(i + 1);
            return { name, dtype: dtype as 'U8', shape: [rows, 3], bytes };
          });
          const whole = encodeSafetensors(tensors, { format: 'pt' });
          const streams = tensors.map(({ bytes, ...spec }) => ({
            ...spec,
            async *chunks() {
              for (let at = 0; at < bytes.length; at += cut) yield bytes.subarray(at, at + cut);
            },
          }));
          const parts: Uint8Array[] = [];
          for await (const part of streamSafetensors(streams, { format: 'pt' })) parts.push(part);
          expect(Buffer.compare(Buffer.concat(parts), whole)).toBe(0);
          const back = await tensorsOf({ f: whole }, 'f');
          expect(new Map(back.map((t) => [t.name, t]))).toEqual(new Map(tensors.map((t) => [t.name, t])));
          expect(Number(new DataView(whole.buffer).getBigUint64(0, true)) % 8).toBe(0);
        },
      ),
      { numRuns: 60 },
    );
  });

  it('refuses bytes that do not match the shape, and a name twice', async () => {
    const one: TensorBytes = { name: 'a', dtype: 'F32', shape: [2], bytes: new Uint8Array(4) };
    expect(await faultOf(() => encodeSafetensors([one], {}))).toMatch(
      /tensor a .*found 4 bytes; wanted 8 for F32 \[2\]/,
    );
    const two: TensorBytes = { ...one, bytes: new Uint8Array(8) };
    expect(await faultOf(() => encodeSafetensors([two, two], {}))).toMatch(/a name that is taken/);
  });
});

describe('reading spoilt files', () => {
  const data = new Uint8Array(8);
  it.each<[string, Uint8Array, RegExp]>([
    ['an empty file', new Uint8Array(0), /\[truncated-file\].*m\/x.safetensors: found 0 bytes/],
    [
      'a header longer than the file',
      rawSafetensors('{}', data, 1000),
      /\[bad-header-length\].*1000 bytes in a file of 18/,
    ],
    [
      'a header length past 2^63',
      rawSafetensors('{}', data, 2n ** 64n - 1n),
      /\[bad-header-length\].*18446744073709551615/,
    ],
    ['a header that is no JSON', rawSafetensors('{"a":', data), /\[bad-json\]/],
    ['a header that is no object', rawSafetensors('[1]', data), /\[bad-value\]/],
    [
      'bytes that are no UTF-8',
      (() => {
        const file = rawSafetensors(`{${tensor('a', 0, 8)}}`, data);
        file[10] = 0xff;
        return file;
      })(),
      /\[bad-json\]/,
    ],
    [
      'a key twice',
      rawSafetensors(`{${tensor('a', 0, 8)},${tensor('a', 0, 8)}}`, data),
      /\[duplicate-key\].*"a" twice/,
    ],
    [
      'a key twice, once escaped',
      rawSafetensors(`{${tensor('a', 0, 8)},${tensor('\\u0061', 0, 8)}}`, data),
      /"a" twice/,
    ],
    [
      'a field twice',
      rawSafetensors('{"a":{"dtype":"U8","dtype":"U8","shape":[8],"data_offsets":[0,8]}}', data),
      /"dtype" twice/,
    ],
    [
      'an F8 dtype',
      rawSafetensors('{"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}}', data),
      /tensor a: found dtype F8_E4M3/,
    ],
    [
      'offsets that do not fit the shape',
      rawSafetensors('{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}', data),
      /tensor a: found data_offsets \[0, 8\] for F32 \[3\]; wanted 12/,
    ],
    [
      'offsets the wrong way round',
      rawSafetensors('{"a":{"dtype":"U8","shape":[8],"data_offsets":[8,0]}}', data),
      /\[bad-offsets\]/,
    ],
    [
      'a shape that overflows',
      rawSafetensors('{"a":{"dtype":"U8","shape":[9007199254740991,9],"data_offsets":[0,8]}}', data),
      /\[bad-offsets\]/,
    ],
    [
      'a negative extent',
      rawSafetensors('{"a":{"dtype":"U8","shape":[-8],"data_offsets":[0,8]}}', data),
      /shape.0 = -8/,
    ],
    [
      'a fractional offset',
      rawSafetensors('{"a":{"dtype":"U8","shape":[8],"data_offsets":[0.5,8]}}', data),
      /data_offsets.0 = 0.5/,
    ],
    [
      'an unknown field',
      rawSafetensors('{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"x":1}}', data),
      /tensor a: found/,
    ],
    [
      'overlapping tensors',
      rawSafetensors(`{${tensor('a', 0, 5)},${tensor('b', 4, 8)}}`, data),
      /\[overlapping-offsets\].*tensor b: found data_offsets \[4, 8\], which overlaps a; wanted a start at 5/,
    ],
    ['a hole', rawSafetensors(`{${tensor('a', 0, 3)},${tensor('b', 4, 8)}}`, data), /\[hole-in-offsets\].*tensor b/],
    [
      'a hole at the start',
      rawSafetensors(`{${tensor('a', 1, 8)}}`, data),
      /leaves a hole after the start of the data/,
    ],
    [
      'missing data',
      rawSafetensors(`{${tensor('a', 0, 9)}}`, data),
      /\[truncated-file\].*found 8 bytes of tensor data; wanted 9.*last tensor: a/,
    ],
    ['bytes after the data', rawSafetensors(`{${tensor('a', 0, 7)}}`, data), /\[trailing-bytes\]/],
    [
      'metadata that is no text',
      rawSafetensors(`{"__metadata__":{"a":1},${tensor('a', 0, 8)}}`, data),
      /__metadata__.*a = 1/,
    ],
  ])('refuses %s', async (_name, bytes, text) => {
    const message = await fault(bytes);
    expect(message).toMatch(text);
    expect(message).toMatch(/m\/x.safetensors.*: found .*; wanted .*\. \S/s);
  });

  it('takes tensors whose header order is not their byte order, and names like those of Object', async () => {
    const file = await open(rawSafetensors(`{${tensor('__proto__', 4, 8)},${tensor('constructor', 0, 4)}}  `, data));
    expect([...file.tensors.keys()]).toEqual(['constructor', '__proto__']);
  });

  it('says that a file is missing and what is there instead', async () => {
    const source = memorySource('folder', { 'model.bin': data });
    expect(await faultOf(() => openSafetensors(source, 'model.safetensors'))).toMatchInlineSnapshot(
      `"[missing-file] reading folder/model.safetensors: found no such file among model.bin; wanted the file. Check the path, or copy the missing file into the folder."`,
    );
  });

  it('refuses a range outside the tensor, and a dtype that a reader would round', async () => {
    const source = memorySource('m', {
      f: rawSafetensors('{"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}', data),
    });
    const ref = (await openSafetensors(source, 'f')).tensors.get('a')!;
    expect((await readTensorRange(source, ref, 4, 4)).length).toBe(4);
    for (const [from, length] of [
      [4, 5],
      [-1, 2],
      [Number.NaN, 1],
    ] as const) {
      expect(await faultOf(() => readTensorRange(source, ref, from, length))).toMatch(/\[read-past-tensor\].*tensor a/);
    }
    expect(await faultOf(() => readF32(source, ref))).toMatch(/dtype F64; wanted BF16, F16 or F32/);
    expect(await faultOf(() => readI64(source, ref))).toMatch(/dtype F64; wanted an integer dtype/);
  });
});

describe('duplicateKey', () => {
  it('finds a duplicate at any depth, and none in any JSON that has none', () => {
    expect(duplicateKey('[{"a":1},{"a":{"b":[{"c":1,"c":2}]}}]')).toBe('c');
    expect(duplicateKey('{"a":"b","b":"a","c":["a","a","}{",{"a":"\\"a\\":"}]}')).toBe(null);
    fc.assert(fc.property(fc.jsonValue(), (value) => duplicateKey(JSON.stringify(value, null, 1)) === null));
  });
});
