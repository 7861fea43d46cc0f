// Opens safetensors files and reads tensors, whole or in ranges, from any FileSource.
// Not a converter: bytes come as stored, and the read helpers widen but never round silently. Offsets are safe
// integers.
// Invariant: a file opens only if its header passes every check of safetensors-header.ts and its size is 8 + header +
// data.
import { decodeToF32 } from '../lib/half.ts';
import { fileFault } from './file-fault.ts';
import { type FileSource, missingFile } from './file-source.ts';
import { dtypeBytes, headerLength, parseHeader, type TensorDtype } from './safetensors-header.ts';

/** Where one tensor lies. */
export interface TensorRef {
  name: string;
  file: string;
  dtype: TensorDtype;
  shape: number[];
  /** Bytes from the start of the file (not of the data section). */
  offsetBytes: number;
  lengthBytes: number;
}

export interface SafetensorsFile {
  file: string;
  sizeBytes: number;
  metadata: Record<string, string>;
  /** In the order of their bytes. */
  tensors: Map<string, TensorRef>;
}

/**
 * Reads and checks the header of `file`. Throws ModelFileError naming the file and, where one is at fault, the tensor.
 */
export async function openSafetensors(source: FileSource, file: string): Promise<SafetensorsFile> {
  const path = `${source.label}/${file}`;
  const sizeBytes = await source.size(file);
  if (sizeBytes === null) throw missingFile(source.label, file, await source.list());
  if (sizeBytes < 8) {
    throw fileFault('truncated-file', {
      doing: `reading ${path}`,
      found: `${sizeBytes} bytes`,
      wanted: 'at least the 8 bytes of a header length',
      remedy: 'The file is incomplete; copy or download it again.',
    });
  }
  const length = headerLength(await source.read(file, 0, 8), sizeBytes, path);
  const header = parseHeader(await source.read(file, 8, length), sizeBytes - 8 - length, path);
  const tensors = new Map<string, TensorRef>();
  for (const { name, dtype, shape, begin, end } of header.tensors) {
    const ref = { name, file, dtype, shape, offsetBytes: 8 + length + begin, lengthBytes: end - begin };
    tensors.set(name, ref);
  }
  return { file, sizeBytes, metadata: header.metadata, tensors };
}

/** All bytes of a tensor, little-endian, row-major. */
export function readTensor(source: FileSource, ref: TensorRef): Promise<Uint8Array<ArrayBuffer>> {
  return source.read(ref.file, ref.offsetBytes, ref.lengthBytes);
}

/** Bytes [offsetBytes, offsetBytes + lengthBytes) of a tensor, counted from its own start. */
export async function readTensorRange(
  source: FileSource,
  ref: TensorRef,
  offsetBytes: number,
  lengthBytes: number,
): Promise<Uint8Array<ArrayBuffer>> {
  if (!(offsetBytes >= 0 && lengthBytes >= 0 && offsetBytes + lengthBytes <= ref.lengthBytes)) {
    throw fileFault('read-past-tensor', {
      doing: `reading ${source.label}/${ref.file}, tensor ${ref.name}`,
      found: `a request for bytes [${offsetBytes}, ${offsetBytes + lengthBytes})`,
      wanted: `a range inside its ${ref.lengthBytes} bytes`,
      remedy: 'This is a fault of the caller; report it.',
    });
  }
  return source.read(ref.file, ref.offsetBytes + offsetBytes, lengthBytes);
}

/** Elements of a tensor: the product of its shape. */
export function elementCount(ref: { shape: readonly number[] }): number {
  return ref.shape.reduce((product, extent) => product * extent, 1);
}

/** A BF16, F16 or F32 tensor as f32, exactly; F64 is refused, because it would be rounded: use `readF64`. */
export async function readF32(source: FileSource, ref: TensorRef): Promise<Float32Array<ArrayBuffer>> {
  if (ref.dtype !== 'BF16' && ref.dtype !== 'F16' && ref.dtype !== 'F32')
    throw wrongDtype(source, ref, 'BF16, F16 or F32');
  return decodeToF32(await readTensor(source, ref), ref.dtype);
}

/** A float tensor as f64, exactly. */
export async function readF64(source: FileSource, ref: TensorRef): Promise<Float64Array<ArrayBuffer>> {
  if (ref.dtype === 'F64') return new Float64Array((await readTensor(source, ref)).buffer);
  if (ref.dtype !== 'BF16' && ref.dtype !== 'F16' && ref.dtype !== 'F32')
    throw wrongDtype(source, ref, 'a float dtype');
  return Float64Array.from(await readF32(source, ref));
}

/** An integer or boolean tensor as numbers. Throws if a value is no safe integer. */
export async function readI64(source: FileSource, ref: TensorRef): Promise<number[]> {
  const bytes = await readTensor(source, ref);
  const view = new DataView(bytes.buffer);
  const at = integerReader(view, ref.dtype);
  if (!at) throw wrongDtype(source, ref, 'an integer dtype');
  const width = dtypeBytes[ref.dtype];
  return Array.from({ length: elementCount(ref) }, (_, i) => {
    const value = Number(at(i * width));
    if (Number.isSafeInteger(value)) return value;
    throw wrongDtype(source, ref, `integers up to 2^53 (element ${i} is ${at(i * width)})`);
  });
}

function integerReader(view: DataView, dtype: TensorDtype): ((offset: number) => number | bigint) | null {
  switch (dtype) {
    case 'BOOL':
    case 'U8':
      return (o) => view.getUint8(o);
    case 'I8':
      return (o) => view.getInt8(o);
    case 'I16':
      return (o) => view.getInt16(o, true);
    case 'U16':
      return (o) => view.getUint16(o, true);
    case 'I32':
      return (o) => view.getInt32(o, true);
    case 'U32':
      return (o) => view.getUint32(o, true);
    case 'I64':
      return (o) => view.getBigInt64(o, true);
    case 'U64':
      return (o) => view.getBigUint64(o, true);
    default:
      return null;
  }
}

function wrongDtype(source: FileSource, ref: TensorRef, wanted: string) {
  return fileFault('wrong-dtype', {
    doing: `reading ${source.label}/${ref.file}, tensor ${ref.name}`,
    found: `dtype ${ref.dtype}`,
    wanted,
    remedy: 'Read it with the function for its dtype, or convert the file.',
  });
}
