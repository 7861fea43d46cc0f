// What a run is made of: versions of the programs and digests of every shader, for the journal.
import { readdirSync, readFileSync } from 'node:fs';
import type { Gpu } from '../src/gpu/device.ts';
import { canonicalBytes } from '../src/lib/canonical-json.ts';
import { sha256Hex } from '../src/lib/sha256-node.ts';

const shaderFolder = new URL('../shaders/', import.meta.url);

/** SHA-256 of every .wgsl file by name. */
export function shaderDigests(): Record<string, string> {
  const names = readdirSync(shaderFolder)
    .filter((name) => name.endsWith('.wgsl'))
    .sort();
  return Object.fromEntries(names.map((name) => [name, sha256Hex(readFileSync(new URL(name, shaderFolder)))]));
}

/** SHA-256 of the canonical JSON of the shaders' digests: one value for "the same shaders". */
export const shadersSha256 = (): string => sha256Hex(canonicalBytes(shaderDigests()));

/** Program or package -> version. */
export function runVersions(gpu: Gpu): Record<string, string> {
  const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
    version: string;
  };
  return { shaderl: version, node: process.versions.node, v8: process.versions.v8, dawn: gpu.identity.dawn };
}
