// Files that a person picked, as a checkpoint's files. Read in ranges; nothing is copied or sent.
// Invariant: files are named by their last part: a picked folder's own name does not count, nor do folders inside it.
import { checkRange, type FileSource, missingFile } from '../src/model/file-source.ts';

export function pickedSource(label: string, files: readonly File[]): FileSource {
  const depth = (file: File) => file.webkitRelativePath.split('/').length;
  const top = Math.min(...files.map(depth));
  const byName = new Map(files.filter((file) => depth(file) === top).map((file) => [file.name, file]));
  const names = [...byName.keys()].sort();
  return {
    label,
    list: async () => names,
    size: async (name) => byName.get(name)?.size ?? null,
    async read(name, offset, length) {
      const file = byName.get(name);
      if (!file) throw missingFile(label, name, names);
      checkRange(label, name, file.size, offset, length);
      return new Uint8Array(await file.slice(offset, offset + length).arrayBuffer());
    },
  };
}
