// What a decoding step must read, and how its time grows with the context, against the growth that the bytes explain.
// Not a model of everything that it reads: activations and adapters are left out. Invariant: bytes are those that the
// buffers hold, so a smaller cache is seen here as fewer bytes and not as a better share.
import type { Gpu } from '../src/gpu/device.ts';
import { runsFused } from '../src/model/matrix-weights.ts';
import type { GpuMatrix, GpuModel } from '../src/model/weights.ts';

/** Bytes of keys and values that one position of one sequence has in all layers, their scales included. */
export function cacheBytes(gpu: Gpu, model: GpuModel): number {
  const { layers, kvHeads, headDim } = model.architecture;
  const headBytes = runsFused(gpu, model) ? 2 * headDim + 4 : 4 * headDim;
  return layers * 2 * kvHeads * headBytes;
}

const matrixBytes = ({ parts }: GpuMatrix) => parts.reduce((sum, { view }) => sum + view.size, 0);

/** Bytes of weights that a step multiplies by: every layer, and the head. */
export function streamedBytes(model: GpuModel): number {
  const layers = model.layers.flatMap(({ groups }) => Object.values(groups).map(({ weight }) => weight));
  return [...layers, model.head].reduce((sum, weight) => sum + matrixBytes(weight), 0);
}

export interface GrowthFigure {
  batch: number;
  /** Contexts that were measured. */
  contexts: number[];
  /** Milliseconds of a decoding step for each further 1,000 tokens of context: least squares. */
  msPerThousand: number;
  /** The same if the cache were read at the copy rate and nothing else grew. */
  expectedMsPerThousand: number;
  /** The fitted time at context 0. */
  msAtZero: number;
}

/** Least-squares line through points. */
export function fitLine(points: readonly (readonly [x: number, y: number])[]): { slope: number; intercept: number } {
  const n = points.length;
  const meanX = points.reduce((sum, [x]) => sum + x, 0) / n;
  const meanY = points.reduce((sum, [, y]) => sum + y, 0) / n;
  const spread = points.reduce((sum, [x]) => sum + (x - meanX) ** 2, 0);
  const slope = points.reduce((sum, [x, y]) => sum + (x - meanX) * (y - meanY), 0) / spread;
  return { slope, intercept: meanY - slope * meanX };
}

/** How decoding grows with the context, for each batch that was measured at two contexts or more. */
export function growthOf(
  decode: readonly { batch: number; context: number; ms: number }[],
  positionBytes: number,
  copyGBs: number,
): GrowthFigure[] {
  const batches = [...new Set(decode.map(({ batch }) => batch))];
  return batches.flatMap((batch) => {
    const own = decode.filter((figure) => figure.batch === batch);
    const contexts = [...new Set(own.map(({ context }) => context))];
    if (contexts.length < 2) return [];
    const { slope, intercept } = fitLine(own.map(({ context, ms }) => [context, ms] as const));
    const expectedMsPerThousand = (1000 * batch * positionBytes) / copyGBs / 1e6;
    return [{ batch, contexts, msPerThousand: slope * 1000, expectedMsPerThousand, msAtZero: intercept }];
  });
}
