// LoRA's backward pass of the matrix family against f64, on every adapter: the base product runs in its plain twin.
import { describe, expect, test } from 'vitest';
import { allocate, readF32, release, upload, type View } from '../../src/gpu/buffers.ts';
import { createRecorder } from '../../src/gpu/recorder.ts';
import { packBf16, roundBf16, testValues } from '../../src/kernels/case-data.ts';
import { testWeightScale } from '../../src/kernels/matrix-cases.ts';
import { packReference } from '../../src/kernels/matrix-pack.ts';
import { packedWidth } from '../../src/kernels/matrix-tiles.ts';
import type { AdapterLayout } from '../../src/model/adapter-gpu.ts';
import { recordInputGradient, recordSlicedInputGradient, slicedElements } from '../../src/model/input-gradient.ts';
import { type LoraPlace, loraPartialElements, recordLoraBackward } from '../../src/model/lora-backward.ts';
import type { MatrixOperand } from '../../src/model/matrix-weights.ts';
import { useGpu } from '../support/gpu.ts';

const gpu = useGpu();
const rows = 150;
const rank = 4;
const scale = 2;
const inWidth = 64;

/** Three targets next to each other; with an odd width their tensors leave gaps in the flat buffer. */
function placeOf(widths: readonly number[]): LoraPlace {
  let start = 0;
  let offset = 64;
  const take = (elements: number) => {
    const at = offset;
    offset = Math.ceil((offset + elements) / 64) * 64;
    return at;
  };
  const aOffset = take(widths.length * rank * inWidth);
  const bOffsets = widths.map((width) => take(width * rank));
  const targets = widths.map((width) => ({ start: (start += width) - width, width }));
  return { targets, inWidth, outWidth: start, aOffset, bOffsets };
}

function relativeError(found: Float32Array, wanted: Float64Array): number {
  let error = 0;
  let size = 0;
  for (let i = 0; i < wanted.length; i++) {
    error += (found[i]! - wanted[i]!) ** 2;
    size += wanted[i]! ** 2;
  }
  return Math.sqrt(error / size);
}

/** out[i, j] = factor * sum_k left(i, k) * right(k, j). */
function product(
  sizes: readonly [number, number, number],
  left: (i: number, k: number) => number,
  right: (k: number, j: number) => number,
  factor = 1,
): Float64Array {
  const [is, js, ks] = sizes;
  const out = new Float64Array(is * js);
  for (let i = 0; i < is; i++)
    for (let j = 0; j < js; j++) {
      let sum = 0;
      for (let k = 0; k < ks; k++) sum += left(i, k) * right(k, j);
      out[i * js + j] = factor * sum;
    }
  return out;
}

async function runBackward(widths: readonly number[]) {
  const place = placeOf(widths);
  const { outWidth, targets } = place;
  const width = targets.length * rank;
  const last = place.bOffsets.at(-1)! + widths.at(-1)! * rank;
  const dOut = testValues(rows * outWidth, 1);
  const x = testValues(rows * inWidth, 2);
  const z = testValues(rows * width, 3);
  const a = testValues(width * inWidth, 4, 0.2);
  const b = testValues(rank * outWidth, 5, 0.2);
  const w = roundBf16(testValues(outWidth * inWidth, 6, 0.05));
  const { packed, scales, values } = packReference(dOut, rows, outWidth, packedWidth(outWidth));
  const views: View[] = [];
  const put = (data: ArrayBufferView<ArrayBuffer>) => {
    const view = allocate(gpu(), 'test', data.byteLength);
    upload(gpu(), view, data);
    views.push(view);
    return view;
  };
  const filled = (elements: number) => put(new Float32Array(elements).fill(7));
  const operand: MatrixOperand = {
    scale: testWeightScale(w),
    emulated: true,
    scratch: () => {
      throw new Error('not used');
    },
  };
  const weight = {
    rows: outWidth,
    columns: inWidth,
    bf16: true,
    parts: [{ firstRow: 0, rows: outWidth, view: put(packBf16(w)) }],
  };
  const gradient = filled(last + 64);
  const dz = { view: filled(rows * width), stride: width };
  const dx = { view: filled(rows * inWidth), stride: inWidth };
  const sliced = { view: filled(rows * inWidth), stride: inWidth };
  const r = createRecorder(gpu());
  const packedRows = { packed: put(packed), scales: put(scales) };
  recordLoraBackward(r, filled(loraPartialElements(place, rank, rows, width)), { rank, scale } as AdapterLayout, {
    rows,
    place,
    dOut: { view: put(dOut), stride: outWidth },
    x: { view: put(x), stride: inWidth },
    z: { view: put(z), stride: width },
    dz,
    b: { view: put(b), stride4: outWidth / 4, offset4: 0 },
    gradient,
  });
  recordInputGradient(r, operand, weight, packedRows, rows, dx, { dz, a: put(a), width });
  const partial = filled(slicedElements(weight, rows, inWidth));
  recordSlicedInputGradient(r, operand, weight, packedRows, rows, sliced, partial);
  r.submit();
  const found = {
    gradient: await readF32(gpu(), gradient, last + 64),
    dz: await readF32(gpu(), dz.view, rows * width),
    dx: await readF32(gpu(), dx.view, rows * inWidth),
    sliced: await readF32(gpu(), sliced.view, rows * inWidth),
  };
  for (const view of views) release(gpu(), view);

  const wantedDz = new Float64Array(rows * width);
  for (const [t, target] of targets.entries()) {
    const part = product(
      [rows, rank, target.width],
      (m, n) => dOut[m * outWidth + target.start + n]!,
      (n, q) => b[q * outWidth + target.start + n]!,
      scale,
    );
    for (let m = 0; m < rows; m++) wantedDz.set(part.subarray(m * rank, (m + 1) * rank), m * width + t * rank);
  }
  const dB = targets.map((target, t) =>
    product(
      [target.width, rank, rows],
      (n, m) => dOut[m * outWidth + target.start + n]!,
      (m, q) => z[m * width + t * rank + q]!,
      scale,
    ),
  );
  const dA = product(
    [width, inWidth, rows],
    (q, m) => wantedDz[m * width + q]!,
    (m, k) => x[m * inWidth + k]!,
  );
  const base = product(
    [rows, inWidth, outWidth],
    (m, n) => values[m * outWidth + n]!,
    (n, k) => w[n * inWidth + k]!,
  );
  const lora = product(
    [rows, inWidth, width],
    (m, q) => wantedDz[m * width + q]!,
    (q, k) => a[q * inWidth + k]!,
  );
  return { place, found, wantedDz, dA, dB, base, dx: base.map((value, i) => value + lora[i]!) };
}

describe('the backward pass of a fused layer with LoRA', () => {
  test.each([
    ['one target', [128]],
    ['three targets whose tensors leave gaps', [100, 36, 56]],
  ])('has the gradients of f64 for %s, and leaves the elements beside them alone', async (_name, widths) => {
    const { place, found, wantedDz, dA, dB, base, dx } = await runBackward(widths);
    expect(relativeError(found.dz, wantedDz)).toBeLessThan(1e-6);
    expect(relativeError(found.gradient.subarray(place.aOffset), dA)).toBeLessThan(1e-6);
    for (const [t, wanted] of dB.entries()) {
      expect(relativeError(found.gradient.subarray(place.bOffsets[t]!), wanted)).toBeLessThan(1e-6);
    }
    expect(relativeError(found.dx, dx)).toBeLessThan(2e-6);
    expect(relativeError(found.sliced, base)).toBeLessThan(2e-6);
    const end = place.bOffsets.at(-1)! + widths.at(-1)! * rank;
    for (const rest of [found.gradient.subarray(0, place.aOffset), found.gradient.subarray(end)]) {
      expect(rest.every((value) => value === 7)).toBe(true);
    }
    // Between the tensors the flat gradient stays zero, as AdamW and the norm need it.
    const bEnds = place.targets.map((target, t) => place.bOffsets[t]! + target.width * rank);
    for (const [t, from] of bEnds.slice(0, -1).entries()) {
      expect(found.gradient.subarray(from, place.bOffsets[t + 1]).every((value) => value === 0)).toBe(true);
    }
  });

  test('gives the same bits twice', async () => {
    const [first, second] = [await runBackward([100, 36, 56]), await runBackward([100, 36, 56])];
    expect(second.found).toEqual(first.found);
  });
});
