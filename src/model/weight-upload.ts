// Brings the matrices of a checkpoint to the device: files are read straight into mapped staging buffers, several at a
// time, and copied from there; what must be widened or padded on the way goes through host memory instead.
// Not a layout: weights.ts says where a tensor goes. Invariant: every element arrives exactly, and the bytes on the device
// do not depend on the order in which reads end.
import { upload, type View } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import { padded } from '../gpu/kernel.ts';
import { decodeToF32 } from '../lib/half.ts';
import type { ModelFiles } from './model-files.ts';
import type { TensorRef } from './safetensors.ts';
import { type DirectSource, isDirect, weightStorage } from './weight-chunks.ts';
import type { GpuMatrix } from './weights.ts';

/** A tensor, and the row of a matrix where its first row goes. */
export interface Placement {
  ref: TensorRef;
  matrix: GpuMatrix;
  atRow: number;
}

/** Bytes of a file that go unchanged to a view. */
interface Piece {
  file: string;
  from: number;
  bytes: number;
  view: View;
  to: number;
}

const chunkBytes = 64 * 2 ** 20;
/** One staging buffer, and how many are read into at a time: enough that readers and the bus both stay busy. */
const stagingBytes = 32 * 2 ** 20;
const lanes = 6;

/** Whether the device holds a tensor as the file does: in the same storage, rows without padding. */
function isVerbatim({ ref, matrix }: Placement): boolean {
  const same = matrix.bf16 ? weightStorage(ref) === 'bf16' : ref.dtype === 'F32';
  return same && padded(matrix.columns) === matrix.columns;
}

/** The pieces of a verbatim tensor, none larger than a staging buffer. */
function piecesOf({ ref, matrix, atRow }: Placement): Piece[] {
  const rowBytes = matrix.columns * (matrix.bf16 ? 2 : 4);
  const begin = atRow * rowBytes;
  const pieces: Piece[] = [];
  for (const part of matrix.parts) {
    const first = part.firstRow * rowBytes;
    const end = Math.min(begin + ref.lengthBytes, first + part.rows * rowBytes);
    for (let at = Math.max(begin, first); at < end; at += stagingBytes) {
      const bytes = Math.min(stagingBytes, end - at);
      pieces.push({ file: ref.file, from: ref.offsetBytes + at - begin, bytes, view: part.view, to: at - first });
    }
  }
  return pieces;
}

/** Waits until all have ended, whatever their end, because they use memory that is freed next; then throws the first failure. */
export async function allSettled(works: readonly Promise<void>[]): Promise<void> {
  const failure = (await Promise.allSettled(works)).find((end) => end.status === 'rejected');
  if (failure) throw failure.reason;
}

/** Consecutive pieces that fit one staging buffer together. */
function batchesOf(pieces: readonly Piece[]): Piece[][] {
  const batches: Piece[][] = [];
  let room = 0;
  for (const piece of pieces) {
    if (piece.bytes > room) {
      batches.push([]);
      room = stagingBytes;
    }
    batches.at(-1)!.push(piece);
    room -= piece.bytes;
  }
  return batches;
}

async function stream(
  gpu: Gpu,
  source: DirectSource,
  batches: readonly Piece[][],
  onBytes: (bytes: number) => void,
): Promise<void> {
  const { device } = gpu;
  const largest = batches.reduce((most, batch) => Math.max(most, sum(batch)), 0);
  let next = 0;
  let failed = false;
  async function lane(): Promise<void> {
    const staging = device.createBuffer({
      label: 'weights on their way',
      size: largest,
      usage: GPUBufferUsage.MAP_WRITE | GPUBufferUsage.COPY_SRC,
      mappedAtCreation: true,
    });
    try {
      for (let mapped = true; next < batches.length && !failed; mapped = false) {
        const batch = batches[next++]!;
        if (!mapped) await gpu.wait('uploading weights', staging.mapAsync(GPUMapMode.WRITE));
        const memory = new Uint8Array(staging.getMappedRange());
        const starts = startsOf(batch);
        const reads = batch.map(({ file, from, bytes }, i) =>
          source.readInto(file, from, memory.subarray(starts[i], starts[i]! + bytes)),
        );
        await allSettled(reads);
        staging.unmap();
        const encoder = device.createCommandEncoder();
        for (const [i, { view, to, bytes }] of batch.entries())
          encoder.copyBufferToBuffer(staging, starts[i]!, view.buffer, view.offset + to, bytes);
        device.queue.submit([encoder.finish()]);
        gpu.check();
        onBytes(sum(batch));
      }
    } catch (error) {
      failed = true;
      throw error;
    } finally {
      staging.destroy();
    }
  }
  await allSettled(Array.from({ length: Math.min(lanes, batches.length) }, lane));
}

const sum = (batch: readonly Piece[]) => batch.reduce((total, { bytes }) => total + bytes, 0);

function startsOf(batch: readonly Piece[]): number[] {
  let at = 0;
  return batch.map(({ bytes }) => (at += bytes) - bytes);
}

/** Writes whole rows, whose values are bf16 bit patterns or f32, at a row of a matrix. */
function writeRows(
  gpu: Gpu,
  matrix: GpuMatrix,
  atRow: number,
  values: Uint16Array<ArrayBuffer> | Float32Array<ArrayBuffer>,
): void {
  const { columns } = matrix;
  const stride = padded(columns);
  const rows = values.length / columns;
  const Store = matrix.bf16 ? Uint16Array : Float32Array;
  let wide: Uint16Array<ArrayBuffer> | Float32Array<ArrayBuffer> = values;
  if (matrix.bf16 !== values instanceof Uint16Array) {
    wide = decodeToF32(
      new Uint8Array(values.buffer, values.byteOffset, values.byteLength),
      'BF16',
    ) as Float32Array<ArrayBuffer>;
  }
  if (stride !== columns) {
    const padding = new Store(rows * stride);
    for (let r = 0; r < rows; r++) padding.set(wide.subarray(r * columns, (r + 1) * columns), r * stride);
    wide = padding;
  }
  const rowBytes = stride * Store.BYTES_PER_ELEMENT;
  for (const part of matrix.parts) {
    const first = Math.max(atRow, part.firstRow);
    const end = Math.min(atRow + rows, part.firstRow + part.rows);
    if (first >= end) continue;
    upload(
      gpu,
      part.view,
      wide.subarray((first - atRow) * stride, (end - atRow) * stride),
      (first - part.firstRow) * rowBytes,
    );
  }
}

async function convert(
  gpu: Gpu,
  files: ModelFiles,
  placements: readonly Placement[],
  onBytes: (bytes: number) => void,
): Promise<void> {
  let queued = 0;
  for (const { ref, matrix, atRow } of placements) {
    for await (const chunk of files.readWeightChunks(ref, Math.max(chunkBytes, matrix.columns * 16))) {
      writeRows(gpu, matrix, atRow + chunk.offsetElements / matrix.columns, chunk.values);
      queued += chunk.values.byteLength;
      // In bytes of the file, in which progress is told.
      onBytes((ref.lengthBytes / ref.shape.reduce((product, extent) => product * extent, 1)) * chunk.values.length);
      if (queued < 4 * chunkBytes) continue;
      // Staging memory of queued writes is bounded by waiting for them now and then.
      queued = 0;
      await gpu.wait('uploading weights', gpu.device.queue.onSubmittedWorkDone());
    }
    gpu.check();
  }
}

/**
 * Fills matrices from a checkpoint. `onBytes` is told of every few megabytes of the files. Ends when the device has all.
 * @throws ModelFileError for files that cannot be read, DeviceError for a device that fails.
 */
export async function uploadMatrices(
  gpu: Gpu,
  files: ModelFiles,
  placements: readonly Placement[],
  onBytes: (bytes: number) => void,
): Promise<void> {
  const { source } = files;
  const straight = placements.filter((placement) => isDirect(source) && isVerbatim(placement));
  if (isDirect(source)) await stream(gpu, source, batchesOf(straight.flatMap(piecesOf)), onBytes);
  await convert(
    gpu,
    files,
    placements.filter((placement) => !straight.includes(placement)),
    onBytes,
  );
  await gpu.wait('uploading weights', gpu.device.queue.onSubmittedWorkDone());
}
