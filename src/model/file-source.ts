// Where the files of a checkpoint or adapter come from: a folder, memory, or (in a browser) picked files.
// Not a cache and not a writer. Invariant: a read returns exactly the bytes asked for or throws ModelFileError.
import { fileFault, sampleNames } from './file-fault.ts';

/** Read access to a flat or nested set of files. Names are relative, with `/` between folders. */
export interface FileSource {
  /** The path shown in errors. */
  label: string;
  /** All names, sorted by code unit. */
  list(): Promise<string[]>;
  /** Bytes of a file, or null if there is none. */
  size(name: string): Promise<number | null>;
  /** Bytes [offsetBytes, offsetBytes + lengthBytes) of a file; offsets are safe integers, past 2 GiB too. */
  read(name: string, offsetBytes: number, lengthBytes: number): Promise<Uint8Array<ArrayBuffer>>;
}

/** A source over bytes in memory. */
export function memorySource(label: string, files: Record<string, Uint8Array>): FileSource {
  const held = new Map(Object.entries(files));
  return {
    label,
    list: async () => [...held.keys()].sort(),
    size: async (name) => held.get(name)?.length ?? null,
    async read(name, offsetBytes, lengthBytes) {
      const bytes = held.get(name);
      if (!bytes) throw missingFile(label, name, [...held.keys()].sort());
      checkRange(label, name, bytes.length, offsetBytes, lengthBytes);
      return new Uint8Array(bytes.subarray(offsetBytes, offsetBytes + lengthBytes));
    },
  };
}

/** The error for a file that is not there. */
export function missingFile(label: string, name: string, present: readonly string[]) {
  return fileFault('missing-file', {
    doing: `reading ${label}/${name}`,
    found: present.length === 0 ? 'an empty folder' : `no such file among ${sampleNames(present, 6)}`,
    wanted: 'the file',
    remedy: 'Check the path, or copy the missing file into the folder.',
  });
}

/** Throws unless [offsetBytes, offsetBytes + lengthBytes) lies inside a file of `sizeBytes`. */
export function checkRange(label: string, name: string, sizeBytes: number, offsetBytes: number, lengthBytes: number) {
  const whole = Number.isSafeInteger(offsetBytes) && Number.isSafeInteger(lengthBytes);
  if (whole && offsetBytes >= 0 && lengthBytes >= 0 && offsetBytes + lengthBytes <= sizeBytes) return;
  throw fileFault('read-past-end', {
    doing: `reading bytes [${offsetBytes}, ${offsetBytes + lengthBytes}) of ${label}/${name}`,
    found: `a file of ${sizeBytes} bytes`,
    wanted: 'a range inside the file',
    remedy: 'The file is truncated or was changed while it was read; copy it again.',
  });
}
