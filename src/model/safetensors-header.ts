// The header of a safetensors file, checked: https://github.com/huggingface/safetensors#format
// Not a reader of tensor data. Invariant: the tensors of an accepted header tile the data section exactly, in offset
// order, each with shape x dtype bytes; so no byte belongs to two tensors or to none.
import { z } from 'zod';
import { fileFault, showValue } from './file-fault.ts';
import { checkShape, parseJsonBytes } from './json-file.ts';

/** The dtypes that are read and written, with bytes an element, in the order of the Python library's enum. */
export const dtypeBytes = {
  BOOL: 1,
  U8: 1,
  I8: 1,
  I16: 2,
  U16: 2,
  F16: 2,
  BF16: 2,
  I32: 4,
  U32: 4,
  F32: 4,
  F64: 8,
  I64: 8,
  U64: 8,
} as const;

export type TensorDtype = keyof typeof dtypeBytes;

/** One tensor of a header; `begin` and `end` are bytes from the start of the data section. */
export interface HeaderTensor {
  name: string;
  dtype: TensorDtype;
  shape: number[];
  begin: number;
  end: number;
}

export interface SafetensorsHeader {
  metadata: Record<string, string>;
  /** In the order of their bytes. */
  tensors: HeaderTensor[];
}

// The Python library refuses longer headers too.
export const MAX_HEADER_BYTES = 100_000_000;

const size = z.int().nonnegative();
const entrySchema = z.strictObject({
  dtype: z.string(),
  shape: z.array(size),
  data_offsets: z.tuple([size, size]),
});
const headerSchema = z.looseObject({});
const metadataSchema = z.record(z.string(), z.string());

const again = 'The file is damaged or incomplete; copy or download it again.';

/** The length of the JSON header from a file's first 8 bytes. `path` names the file in errors. */
export function headerLength(prefix: Uint8Array, fileBytes: number, path: string): number {
  const length = new DataView(prefix.buffer, prefix.byteOffset, 8).getBigUint64(0, true);
  const limit = Math.min(fileBytes - 8, MAX_HEADER_BYTES);
  if (length <= BigInt(limit)) return Number(length);
  throw fileFault('bad-header-length', {
    doing: `reading the header of ${path}`,
    found: `a header length of ${length} bytes in a file of ${fileBytes} bytes`,
    wanted: `at most ${limit}`,
    remedy: again,
  });
}

/** Parses and checks a header's JSON bytes against the length of the data section. */
export function parseHeader(json: Uint8Array, dataBytes: number, path: string): SafetensorsHeader {
  const doing = `reading the header of ${path}`;
  const raw = parseJsonBytes(json, doing);
  // Only the check is zod's: its copy would lose a tensor called __proto__.
  checkShape(headerSchema, raw, doing);
  const tensors: HeaderTensor[] = [];
  let metadata: Record<string, string> = {};
  for (const [name, value] of Object.entries(raw as Record<string, unknown>)) {
    if (name === '__metadata__') metadata = checkShape(metadataSchema, value, `${doing}, __metadata__`);
    else tensors.push(parseEntry(name, value, path));
  }
  tensors.sort((a, b) => a.begin - b.begin || a.end - b.end);
  checkTiling(tensors, dataBytes, path);
  return { metadata, tensors };
}

function parseEntry(name: string, value: unknown, path: string): HeaderTensor {
  const doing = `reading the header of ${path}, tensor ${name}`;
  const { dtype, shape, data_offsets } = checkShape(entrySchema, value, doing);
  const [begin, end] = data_offsets;
  if (!Object.hasOwn(dtypeBytes, dtype)) {
    throw fileFault('unsupported-dtype', {
      doing,
      found: `dtype ${dtype}`,
      wanted: `one of ${Object.keys(dtypeBytes).join(', ')}`,
      remedy: 'Quantised and 8-bit float checkpoints are not supported: use the BF16, F16 or F32 release.',
    });
  }
  const known = dtype as TensorDtype;
  const bytes = shape.reduce((product, extent) => product * extent, dtypeBytes[known]);
  if (!Number.isSafeInteger(bytes) || end - begin !== bytes) {
    throw fileFault('bad-offsets', {
      doing,
      found: `data_offsets [${begin}, ${end}] for ${dtype} ${showValue(shape)}`,
      wanted: `${bytes} bytes between them`,
      remedy: again,
    });
  }
  return { name, dtype: known, shape, begin, end };
}

function checkTiling(tensors: readonly HeaderTensor[], dataBytes: number, path: string): void {
  const doing = `reading the header of ${path}`;
  let covered = 0;
  let previous = 'the start of the data';
  for (const { name, begin, end } of tensors) {
    if (begin !== covered) {
      const what = begin < covered ? 'overlaps' : 'leaves a hole after';
      throw fileFault(begin < covered ? 'overlapping-offsets' : 'hole-in-offsets', {
        doing: `${doing}, tensor ${name}`,
        found: `data_offsets [${begin}, ${end}], which ${what} ${previous}`,
        wanted: `a start at ${covered}`,
        remedy: again,
      });
    }
    covered = end;
    previous = name;
  }
  if (covered === dataBytes) return;
  throw fileFault(covered > dataBytes ? 'truncated-file' : 'trailing-bytes', {
    doing: `reading ${path}`,
    found: `${dataBytes} bytes of tensor data`,
    wanted: `${covered}, as the header says (last tensor: ${previous})`,
    remedy: again,
  });
}
