// How many rows the vocabulary head takes at a time.
// Not a numeric choice: a row's logits and gradient do not depend on its chunk. Invariant: on GPUs a chunk is a whole
// number of the products' tiles, as large as its logits' bytes allow, so that a chunk fills the device.
import type { Gpu } from '../gpu/device.ts';
import { ceilDiv } from '../gpu/kernel.ts';
import { tallTile } from '../kernels/matrix-tiles.ts';

/** Bytes of logits a chunk by default: on GPUs 512 rows of 151,936 ids; software adapters gain nothing from more rows. */
const logitBytes = { software: 64 * 2 ** 20, gpu: 320 * 2 ** 20 };
const softwareRows = 256;

/** Rows of a chunk of logits of `stride` f32, at least one and at most `capacity`. */
export function headRows(gpu: Gpu, stride: number, capacity: number, bytes?: number): number {
  const { software, limits } = gpu.identity;
  const room = Math.min(bytes ?? logitBytes[software ? 'software' : 'gpu'], limits.maxStorageBufferBindingSize);
  const rows = Math.floor(room / (stride * 4));
  if (software) return Math.max(1, Math.min(capacity, softwareRows, rows));
  const whole = rows > tallTile ? rows - (rows % tallTile) : rows;
  return Math.max(1, Math.min(capacity, whole));
}

/** `count` rows in chunks of at most `most`, of nearly the same size, in whole tiles where there are several. */
export function evenChunks(count: number, most: number): { first: number; rows: number }[] {
  const chunks = ceilDiv(count, most);
  const size = Math.min(most, ceilDiv(ceilDiv(count, Math.max(1, chunks)), tallTile) * tallTile);
  return Array.from({ length: ceilDiv(count, size) }, (_, i) => ({
    first: i * size,
    rows: Math.min(size, count - i * size),
  }));
}
