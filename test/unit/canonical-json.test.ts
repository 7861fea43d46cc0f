// Canonical JSON against the vectors of RFC 8785, and what it refuses.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { canonicalBytes, canonicalJson } from '../../src/lib/canonical-json.ts';
import { sha256HexAsync } from '../../src/lib/sha256.ts';
import { sha256Hex } from '../../src/lib/sha256-node.ts';

/** The f64 with these big-endian bits. */
function f64(hex: string): number {
  const view = new DataView(new ArrayBuffer(8));
  view.setBigUint64(0, BigInt(`0x${hex}`));
  return view.getFloat64(0);
}

describe('RFC 8785 vectors', () => {
  test('section 3.2.2: literals, numbers and escapes', () => {
    const input = String.raw`{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
      "literals": [null, true, false]
    }`;
    const want = [
      '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],',
      String.raw`"string":"€$\u000f\nA'B\"\\\\\"/"}`,
    ];
    expect(canonicalJson(JSON.parse(input))).toBe(want.join(''));
  });

  test('section 3.2.4: the UTF-8 bytes of the same data', () => {
    const value = { string: '€$\u000f\nA\'B"\\\\"/' };
    const hex = Buffer.from(canonicalBytes(value)).toString('hex');
    expect(hex).toBe('7b22737472696e67223a22e282ac245c75303030665c6e4127425c225c5c5c5c5c222f227d');
  });

  test('section 3.2.3: keys are sorted by UTF-16 code units', () => {
    const input = {
      '\u20ac': 'Euro Sign',
      '\r': 'Carriage Return',
      '\ufb33': 'Hebrew Letter Dalet With Dagesh',
      '1': 'One',
      '\ud83d\ude00': 'Emoji: Grinning Face',
      '\u0080': 'Control',
      '\u00f6': 'Latin Small Letter O With Diaeresis',
    };
    const values = Object.values(JSON.parse(canonicalJson(input)) as Record<string, string>);
    const text = canonicalJson(input);
    const positions = [
      'Carriage Return',
      'One',
      'Control',
      'Latin Small Letter O With Diaeresis',
      'Euro Sign',
      'Emoji: Grinning Face',
      'Hebrew Letter Dalet With Dagesh',
    ].map((value) => text.indexOf(value));
    expect(values.length).toBe(7);
    expect(positions).toEqual([...positions].sort((a, b) => a - b));
    expect(positions[0]).toBeGreaterThan(0);
  });

  // Appendix B: IEEE 754 bits and their text.
  test.each([
    ['0000000000000000', '0'],
    ['8000000000000000', '0'],
    ['0000000000000001', '5e-324'],
    ['8000000000000001', '-5e-324'],
    ['7fefffffffffffff', '1.7976931348623157e+308'],
    ['ffefffffffffffff', '-1.7976931348623157e+308'],
    ['4340000000000000', '9007199254740992'],
    ['c340000000000000', '-9007199254740992'],
    ['4430000000000000', '295147905179352830000'],
    ['44b52d02c7e14af5', '9.999999999999997e+22'],
    ['44b52d02c7e14af6', '1e+23'],
    ['44b52d02c7e14af7', '1.0000000000000001e+23'],
    ['444b1ae4d6e2ef4e', '999999999999999700000'],
    ['444b1ae4d6e2ef4f', '999999999999999900000'],
    ['444b1ae4d6e2ef50', '1e+21'],
    ['3eb0c6f7a0b5ed8c', '9.999999999999997e-7'],
    ['3eb0c6f7a0b5ed8d', '0.000001'],
    ['41b3de4355555553', '333333333.3333332'],
    ['41b3de4355555554', '333333333.33333325'],
    ['41b3de4355555555', '333333333.3333333'],
    ['41b3de4355555556', '333333333.3333334'],
    ['41b3de4355555557', '333333333.33333343'],
    ['becbf647612f3696', '-0.0000033333333333333333'],
    ['43143ff3c1cb0959', '1424953923781206.2'],
  ])('appendix B: bits %s are written %s', (bits, text) => {
    expect(canonicalJson(f64(bits))).toBe(text);
  });

  test.each(['7fffffffffffffff', '7ff0000000000000'])('appendix B: bits %s are an error', (bits) => {
    expect(() => canonicalJson({ a: [f64(bits)] })).toThrow(/found (NaN|Infinity) at "a\[0\]"/);
  });
});

describe('what JSON cannot carry', () => {
  test.each([
    ['an undefined member', { a: { b: undefined } }, '"a.b"'],
    ['a hole in an array', { a: new Array(1) }, '"a[0]"'],
    ['a bigint', { a: 1n }, '"a"'],
    ['a typed array', { a: new Uint8Array(2) }, 'Uint8Array at "a"'],
    ['a Map', { a: new Map([[1, 2]]) }, 'Map at "a"'],
    ['a Date', [new Date(0)], 'Date at "[0]"'],
    ['a lone surrogate', { a: '\ud800' }, 'a lone surrogate at "a"'],
    ['a lone surrogate in a key', { '\udc00': 1 }, 'a key with a lone surrogate at the top level'],
    ['undefined itself', undefined, 'undefined at the top level'],
  ])('%s is refused with its place', (_name, value, place) => {
    expect(() => canonicalJson(value)).toThrow(place);
    expect(() => canonicalJson(value)).toThrow(expect.objectContaining({ code: 'not-canonical' }));
  });
});

test('canonical text is a fixed point of parsing, whatever the key order', () => {
  fc.assert(
    fc.property(fc.jsonValue({ stringUnit: 'grapheme' }), (value) => {
      const text = canonicalJson(value);
      expect(canonicalJson(JSON.parse(text))).toBe(text);
    }),
    { seed: 3 },
  );
  expect(canonicalJson({ b: 1, a: 2 })).toBe(canonicalJson({ a: 2, b: 1 }));
});

describe('sha256', () => {
  test.each([
    ['', 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'],
    ['abc', 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'],
  ])('of %j is the published digest, by both implementations', async (text, want) => {
    expect(sha256Hex(text)).toBe(want);
    expect(await sha256HexAsync(text)).toBe(want);
    expect(await sha256HexAsync(new TextEncoder().encode(text))).toBe(want);
  });

  test('hashes a view of a larger buffer as the view', async () => {
    const bytes = new TextEncoder().encode('xabcx').subarray(1, 4);
    expect(await sha256HexAsync(bytes)).toBe(sha256Hex('abc'));
    expect(sha256Hex(bytes)).toBe(sha256Hex('abc'));
  });
});
