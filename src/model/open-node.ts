// Opens a policy on disk: a checkpoint folder, its tokenizer, and an adapter to go with it.
// Not an upload: no weight is read but the adapter's. Invariant: what is returned belongs together; a folder that does
// not fit the other is refused by file and tensor.
import { type LoadedAdapter, loadAdapter } from './adapter-files.ts';
import { fileFault } from './file-fault.ts';
import { folderSource } from './file-source-node.ts';
import { type ModelFiles, openModelFiles } from './model-files.ts';
import { loadText, type Text } from './text.ts';

export interface Policy {
  files: ModelFiles;
  /** Null where the folder has no tokenizer.json: such a model takes token ids only. */
  text: Text | null;
  adapter: LoadedAdapter | null;
}

/** Opens a model folder and, unless null, an adapter folder for it. Throws ModelFileError naming file and value. */
export async function openPolicy(modelDir: string, adapterDir: string | null): Promise<Policy> {
  const source = folderSource(modelDir);
  const files = await openModelFiles(source);
  const text = (await source.size('tokenizer.json')) === null ? null : await loadText(source);
  const adapter = adapterDir === null ? null : await loadAdapter(folderSource(adapterDir), files.architecture);
  return { files, text, adapter };
}

/** The policy's tokenizer, for work that cannot do without. Throws ModelFileError `no-tokenizer`. */
export function requireText(policy: Policy): Text {
  if (policy.text) return policy.text;
  throw fileFault('no-tokenizer', {
    doing: `reading text with ${policy.files.source.label}`,
    found: 'no tokenizer.json in the folder',
    wanted: 'one',
    remedy: 'Copy tokenizer.json and tokenizer_config.json of the checkpoint into it, or give token ids.',
  });
}

/** Token ids below this exist: the rest of the embedding's rows are padding that stands for nothing. */
export function vocabularyOf(policy: Policy): number {
  const { vocabSize } = policy.files.architecture;
  return Math.min(policy.text?.vocabularySize ?? vocabSize, vocabSize);
}
