// The products of many rows are what their template writes: a change by hand would be lost.
import { expect, test } from 'vitest';
import { loadWgsl } from '../../src/gpu/wgsl-node.ts';
import { manyShaders } from '../../tools/matrix-many/template.ts';

test.each([...manyShaders])('%s is written by the template', (name, text) => {
  expect(loadWgsl(`${name}.wgsl`)).toBe(text);
});
