// Writes safetensors files, whole or as a stream, with the bytes that the Python library (safetensors 0.4 and later)
// makes: tensors by dtype (widest alignment first), then by UTF-8 name; compact JSON header, padded with spaces to 8
// bytes.
// Not a file writer: it yields bytes. Invariant: every tensor gets exactly shape x dtype bytes, or the write fails.
import { compareUtf8 } from '../lib/utf8-order.ts';
import { fileFault } from './file-fault.ts';
import { dtypeBytes, type TensorDtype } from './safetensors-header.ts';

export interface TensorSpec {
  name: string;
  dtype: TensorDtype;
  shape: readonly number[];
}

/** A tensor in memory; `bytes` little-endian, row-major. */
export interface TensorBytes extends TensorSpec {
  bytes: Uint8Array;
}

/** A file's tensors, in any order, and its metadata. */
export interface FileTensors {
  tensors: readonly TensorBytes[];
  metadata: Record<string, string> | null;
}

/** A tensor whose bytes are made when it is their turn. */
export interface TensorStream extends TensorSpec {
  chunks: () => AsyncIterable<Uint8Array>;
}

/** The tensors in file order and the file's first bytes: header length and padded header. Null metadata is left out. */
export function layoutSafetensors<T extends TensorSpec>(
  tensors: readonly T[],
  metadata: Record<string, string> | null,
): { head: Uint8Array<ArrayBuffer>; ordered: T[]; totalBytes: number } {
  const rank = Object.keys(dtypeBytes);
  const ordered = [...tensors].sort(
    (a, b) => rank.indexOf(b.dtype) - rank.indexOf(a.dtype) || compareUtf8(a.name, b.name),
  );
  const entries: string[] = [];
  if (metadata) {
    // The Python library writes several keys in no fixed order; here they are sorted.
    const keys = Object.keys(metadata).sort(compareUtf8);
    const pairs = keys.map((key) => `${JSON.stringify(key)}:${JSON.stringify(metadata[key])}`);
    entries.push(`"__metadata__":{${pairs.join(',')}}`);
  }
  let offset = 0;
  for (const [i, { name, dtype, shape }] of ordered.entries()) {
    if (name === '__metadata__' || name === ordered[i - 1]?.name) {
      throw writeFault(name, 'a name that is taken', 'each tensor name once, and not __metadata__');
    }
    const end = offset + tensorBytes({ dtype, shape });
    const fields = JSON.stringify({ dtype, shape, data_offsets: [offset, end] });
    entries.push(`${JSON.stringify(name)}:${fields}`);
    offset = end;
  }
  const json = new TextEncoder().encode(`{${entries.join(',')}}`);
  const padded = Math.ceil(json.length / 8) * 8;
  const head = new Uint8Array(8 + padded).fill(0x20);
  new DataView(head.buffer).setBigUint64(0, BigInt(padded), true);
  head.set(json, 8);
  return { head, ordered, totalBytes: head.length + offset };
}

/** A whole file in memory. Throws ModelFileError if a tensor's bytes do not match its shape, or a name comes twice. */
export function encodeSafetensors(
  tensors: readonly TensorBytes[],
  metadata: Record<string, string> | null,
): Uint8Array<ArrayBuffer> {
  const { head, ordered, totalBytes } = layoutSafetensors(tensors, metadata);
  const file = new Uint8Array(totalBytes);
  file.set(head, 0);
  let offset = head.length;
  for (const tensor of ordered) {
    checkLength(tensor, tensor.bytes.length);
    file.set(tensor.bytes, offset);
    offset += tensor.bytes.length;
  }
  return file;
}

/** The same file piece by piece: only one chunk is held at a time, so a merged checkpoint may be larger than memory. */
export async function* streamSafetensors(
  tensors: readonly TensorStream[],
  metadata: Record<string, string> | null,
): AsyncGenerator<Uint8Array> {
  const { head, ordered } = layoutSafetensors(tensors, metadata);
  yield head;
  for (const tensor of ordered) {
    let written = 0;
    for await (const chunk of tensor.chunks()) {
      written += chunk.length;
      yield chunk;
    }
    checkLength(tensor, written);
  }
}

/** Little-endian bytes of a typed array, without a copy. */
export function bytesOf(values: ArrayBufferView): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}

function tensorBytes({ dtype, shape }: Pick<TensorSpec, 'dtype' | 'shape'>): number {
  return shape.reduce((product, extent) => product * extent, dtypeBytes[dtype]);
}

function checkLength(tensor: TensorSpec, bytes: number): void {
  const wanted = tensorBytes(tensor);
  if (bytes !== wanted)
    throw writeFault(tensor.name, `${bytes} bytes`, `${wanted} for ${tensor.dtype} [${tensor.shape}]`);
}

function writeFault(name: string, found: string, wanted: string) {
  return fileFault('bad-tensor', {
    doing: `writing tensor ${name} to a safetensors file`,
    found,
    wanted,
    remedy: 'This is a fault of the caller; report it.',
  });
}
