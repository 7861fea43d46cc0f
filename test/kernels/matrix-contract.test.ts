// Each shader of the matrix family against its Kernel object: bindings, access, scalars and constants.
// The parser knows neither the directives nor the matrix types, so it is given what stands before the functions without
// them.
import { describe, expect, test } from 'vitest';
import { WgslReflect } from 'wgsl_reflect/wgsl_reflect.module.js';
import { loadWgsl } from '../../src/gpu/wgsl-node.ts';
import { matrixKernels } from '../../src/kernels/matrix-index.ts';

interface Reflected {
  storage: { name: string; binding: number; access: string }[];
  uniforms: { binding: number; members: { name: string; offset: number; type: { name: string } }[] }[];
  overrides: { name: string }[];
}

describe.each(matrixKernels.map((kernel) => [kernel.name, kernel] as const))('shaders/%s.wgsl', (name, kernel) => {
  const text = loadWgsl(`${name}.wgsl`);
  const declarations = text
    .slice(0, text.search(/^(fn |@compute)/m))
    .replace(/^(enable|diagnostic|alias|var<workgroup>).*$/gm, '');
  const reflected = new WgslReflect(declarations) as unknown as Reflected;

  test('declares the bindings of its kernel, in order and with the same access', () => {
    const storage = [...reflected.storage].sort((a, b) => a.binding - b.binding);
    expect(storage.map(({ binding }) => binding)).toEqual(kernel.bindings.map((_, i) => i + 1));
    expect(storage.map(({ name: own, access }) => [own.replace(/_$/, ''), access || 'read'])).toEqual(
      kernel.bindings.map((binding) => [binding.name, binding.access]),
    );
  });

  test('declares the scalars and the constants of its kernel, and main as its entry point', () => {
    const members = reflected.uniforms[0]?.members ?? [];
    expect(members.map((member) => [member.name, member.type.name, member.offset])).toEqual(
      kernel.params.map(([own, type], i) => [own, type, i * 4]),
    );
    // Overrides without a type follow from the others.
    const given = Array.from(text.matchAll(/^override (\w+): /gm), (match) => match[1]!);
    expect(reflected.overrides.map((o) => o.name)).toEqual(expect.arrayContaining(given));
    expect(given.sort()).toEqual(Object.keys(kernel.constants ?? {}).sort());
    expect(text).toMatch(/@compute @workgroup_size\(\w+(, \d+)?\)\nfn main\(/);
  });
});
