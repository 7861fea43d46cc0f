// What a device was shown to do: every kernel against its f64 reference, bits that repeat, and the canonical forward.
// Not a promise for another device: a qualification holds for one adapter, driver, Dawn, set of toggles and set of
// shaders. Invariant: `passed` is recomputed from the results whenever a file is read.
import { z } from 'zod';
import { loadWgsl } from '#wgsl';
import type { DeviceIdentity, Gpu, KernelFamily } from './gpu/device.ts';
import { checkShader } from './gpu/pipeline.ts';
import { supports } from './gpu/variant.ts';
import { attentionCanonicalChecks } from './kernels/attention-canonical.ts';
import { runShapes } from './kernels/cached-attention-cases.ts';
import { matrixCanonicalChecks } from './kernels/matrix-canonical.ts';
import { familyKernels } from './kernels/matrix-index.ts';
import { runCase } from './kernels/qualify.ts';
import { DeviceError } from './lib/errors.ts';
import { sha256HexAsync } from './lib/sha256.ts';
import { issuesText } from './lib/zod-issues.ts';
import { canonicalChecks } from './qualification-canonical.ts';

const hash = z.string().regex(/^[0-9a-f]{64}$/, 'wanted 64 lower-case hex digits (SHA-256)');

const deviceSchema = z.strictObject({
  vendor: z.string(),
  architecture: z.string(),
  device: z.string(),
  description: z.string(),
  software: z.boolean(),
  dawn: z.string(),
  toggles: z.array(z.string()),
  features: z.array(z.string()),
  subgroupSize: z.tuple([z.int(), z.int()]),
  limits: z.record(z.string(), z.number()),
});

const caseSchema = z.strictObject({
  case: z.string(),
  /** Worst error over bound; null where there was no comparing (NaN, or an element that was not written). */
  worst: z.number().nullable(),
  /** The worst element: binding, index, value found and wanted. Empty if every element is exact. */
  at: z.string(),
  stable: z.boolean(),
  guarded: z.boolean(),
  passed: z.boolean(),
});

const kernelSchema = z.strictObject({
  name: z.string(),
  shader: z.string(),
  /** Over all cases; null as above. */
  worst: z.number().nullable(),
  /** The bound is more than a hundred times the worst error: it would not show a small fault. */
  slack: z.boolean(),
  passed: z.boolean(),
  cases: z.array(caseSchema).min(1),
});

const qualificationSchema = z.strictObject({
  schema: z.literal('shaderl.qualification/1'),
  family: z.enum(['portable', 'matrix']),
  device: deviceSchema,
  /** Shader file to the SHA-256 of its text. */
  shaders: z.record(z.string(), hash),
  /** Tree hash of the program's own source. */
  sourceSha256: hash,
  repeats: z.int().min(2),
  kernels: z.array(kernelSchema).min(1),
  canonical: z.array(z.strictObject({ name: z.string(), passed: z.boolean(), detail: z.string() })).min(1),
  passed: z.boolean(),
});
export type Qualification = z.infer<typeof qualificationSchema>;

export interface QualifyOptions {
  family: KernelFamily;
  sourceSha256: string;
  /** Runs of each case; all must give the same bits. */
  repeats?: number;
  onProgress?: (doneKernels: number, allKernels: number, kernel: string) => void;
}

const SLACK = 0.01;

/** SHA-256 of the text of the shader of every kernel that a family runs, by file name in order. */
export async function shaderDigests(family: KernelFamily = 'portable'): Promise<Record<string, string>> {
  const files = familyKernels(family)
    .map((kernel) => `${kernel.name}.wgsl`)
    .sort();
  const digests: Record<string, string> = {};
  for (const file of files) digests[file] = await sha256HexAsync(loadWgsl(file));
  return digests;
}

/** Runs every case of every kernel and the canonical checks. Throws KernelError for a shader that does not compile. */
export async function qualify(gpu: Gpu, options: QualifyOptions): Promise<Qualification> {
  const { family, sourceSha256, repeats = 3, onProgress } = options;
  const results: Qualification['kernels'] = [];
  const runnable = familyKernels(family).filter((kernel) => supports(gpu, kernel));
  for (const [index, kernel] of runnable.entries()) {
    onProgress?.(index, runnable.length, kernel.name);
    await checkShader(gpu, kernel);
    const cases: z.infer<typeof caseSchema>[] = [];
    for (const run of kernel.cases()) {
      const result = await runCase(gpu, kernel, run, repeats);
      // JSON has no infinity: it would be written as null all the same, but not on purpose.
      cases.push({ ...result, worst: Number.isFinite(result.worst) ? result.worst : null });
    }
    results.push(summarise(kernel.name, cases));
  }
  onProgress?.(runnable.length, runnable.length, 'canonical forward');
  const canonical = await canonicalChecks(gpu, family);
  if (family === 'matrix') {
    canonical.push(...(await matrixCanonicalChecks(gpu)));
    for (const shape of runShapes.slice(1)) canonical.push(...(await attentionCanonicalChecks(gpu, shape)));
  }
  const { subgroupSize, ...identity } = gpu.identity;
  const device = { ...identity, subgroupSize: [...subgroupSize] as [number, number] };
  return {
    schema: 'shaderl.qualification/1',
    family,
    device,
    shaders: await shaderDigests(family),
    sourceSha256,
    repeats,
    kernels: results,
    canonical,
    passed: isPassed(results, canonical),
  };
}

function summarise(name: string, cases: z.infer<typeof caseSchema>[]): Qualification['kernels'][number] {
  const comparable = cases.every(({ worst }) => worst !== null);
  const worst = comparable ? Math.max(...cases.map((c) => c.worst ?? 0)) : null;
  // A kernel that only moves data has no error at all, and no bound that could be slack.
  const slack = worst !== null && worst > 0 && worst < SLACK;
  return { name, shader: `${name}.wgsl`, worst, slack, passed: cases.every((c) => c.passed), cases };
}

function isPassed(results: Qualification['kernels'], canonical: Qualification['canonical']): boolean {
  const cases = results.flatMap((kernel) => kernel.cases);
  const within = cases.every(({ worst, stable, guarded }) => worst !== null && worst <= 1 && stable && guarded);
  return within && canonical.every((check) => check.passed);
}

function refused(label: string, code: string, found: string, wanted: string): DeviceError {
  const remedy = 'Run `shaderl qualify` on this device again.';
  return new DeviceError(code, `reading ${label}: found ${found}; wanted ${wanted}. ${remedy}`);
}

/** The text of a qualification file. The same device and program give the same text. */
export function formatQualification(qualification: Qualification): string {
  return `${JSON.stringify(qualification, null, 2)}\n`;
}

/** Reads a qualification file's text. Throws DeviceError `bad-qualification` naming file and field. */
export function parseQualification(text: string, label: string): Qualification {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw refused(label, 'bad-qualification', (error as Error).message, 'JSON');
  }
  const parsed = qualificationSchema.safeParse(value);
  if (!parsed.success) {
    throw refused(label, 'bad-qualification', issuesText(parsed.error, value), 'a shaderl.qualification/1 file');
  }
  const passed = isPassed(parsed.data.kernels, parsed.data.canonical);
  if (passed !== parsed.data.passed) {
    const found = `passed: ${parsed.data.passed}, though its results say ${passed}`;
    throw refused(label, 'bad-qualification', found, 'a file that nobody edited');
  }
  return parsed.data;
}

/**
 * How the device and shaders of now differ from those of a qualification, each as a phrase with both values; empty if
 * the qualification is theirs. Limits and optional features have no part in it: they change no arithmetic.
 */
export function matchesDevice(
  qualification: Qualification,
  identity: DeviceIdentity,
  digests: Readonly<Record<string, string>>,
): string[] {
  const differences: string[] = [];
  const fields = ['vendor', 'architecture', 'device', 'description', 'dawn', 'toggles', 'subgroupSize'] as const;
  for (const field of fields) {
    const [was, is] = [JSON.stringify(qualification.device[field]), JSON.stringify(identity[field])];
    if (was !== is) differences.push(`${field} was ${was} and is ${is}`);
  }
  for (const file of Object.keys(digests)) {
    const was = qualification.shaders[file];
    if (was === undefined) differences.push(`shaders/${file} was not qualified`);
    else if (was !== digests[file]) {
      differences.push(`shaders/${file} had sha256 ${was.slice(0, 12)}... and has ${digests[file]!.slice(0, 12)}...`);
    }
  }
  return differences;
}

/**
 * Lets training go on only with a qualification of this family, device and these shaders that passed. `label` names its
 * file. Throws DeviceError `not-qualified` naming everything that differs.
 */
export function requireQualified(
  qualification: Qualification,
  family: KernelFamily,
  identity: DeviceIdentity,
  digests: Readonly<Record<string, string>>,
  label: string,
): void {
  const found: string[] = [];
  if (qualification.family !== family) found.push(`family ${qualification.family}, wanted ${family}`);
  if (!qualification.passed) {
    const failed = [
      ...qualification.kernels.filter((kernel) => !kernel.passed).map((kernel) => `kernel ${kernel.name}`),
      ...qualification.canonical.filter((check) => !check.passed).map((check) => check.name),
    ];
    found.push(`failures (${failed.join(', ')})`);
  }
  found.push(...matchesDevice(qualification, identity, digests));
  if (found.length === 0) return;
  const shown = found.slice(0, 4).join('; ') + (found.length > 4 ? `; and ${found.length - 4} more` : '');
  throw new DeviceError(
    'not-qualified',
    `checking the device against ${label}: ${shown}; wanted a qualification that passed, of this family, device and ` +
      `these shaders. Run \`shaderl qualify --family ${family}\`.`,
  );
}
