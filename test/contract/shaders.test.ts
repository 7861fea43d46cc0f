// Each shader's own declarations against its Kernel object: bindings, access, scalars and constants.
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { WgslReflect } from 'wgsl_reflect/wgsl_reflect.module.js';
import { kernels } from '../../src/kernels/index.ts';

interface Reflected {
  storage: { name: string; binding: number; access: string }[];
  uniforms: { binding: number; members: { name: string; offset: number; type: { name: string } }[] }[];
  overrides: { name: string }[];
}

describe.each(kernels.map((kernel) => [kernel.name, kernel] as const))('shaders/%s.wgsl', (name, kernel) => {
  const text = readFileSync(new URL(`../../shaders/${name}.wgsl`, import.meta.url), 'utf8');
  // Declarations stand before the functions; the parser refuses functions that shadow a builtin, which WGSL allows.
  const reflected = new WgslReflect(text.slice(0, text.search(/^(fn |@compute)/m))) as unknown as Reflected;

  test('declares the bindings of its kernel, in order and with the same access', () => {
    const storage = [...reflected.storage].sort((a, b) => a.binding - b.binding);
    expect(storage.map(({ binding }) => binding)).toEqual(kernel.bindings.map((_, i) => i + 1));
    expect(storage.map(({ access }) => access || 'read')).toEqual(kernel.bindings.map(({ access }) => access));
    expect(storage.map(({ name: own }) => own.replace(/_$/, ''))).toEqual(
      kernel.bindings.map((binding) => binding.name),
    );
    expect(storage.length).toBeLessThanOrEqual(8);
  });

  test('declares the scalars of its kernel, in order, four bytes each', () => {
    const members = reflected.uniforms[0]?.members ?? [];
    expect(members.map((member) => [member.name, member.type.name, member.offset])).toEqual(
      kernel.params.map(([own, type], i) => [own, type, i * 4]),
    );
  });

  test('declares the constants of its kernel, and main as its entry point', () => {
    expect(reflected.overrides.map((o) => o.name).sort()).toEqual(Object.keys(kernel.constants ?? {}).sort());
    expect(text.match(/@compute/g)).toEqual(['@compute']);
    expect(text).toMatch(/@compute @workgroup_size\([\d, ]+\)\nfn main\(/);
  });
});
