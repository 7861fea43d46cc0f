// Opens a policy on disk: a checkpoint folder, its tokenizer, and an adapter to go with it.
// Not an upload: no weight is read but the adapter's. Invariant: what is returned belongs together; a folder that does
// not fit the other is refused by file and tensor.
import { type LoadedAdapter, loadAdapter } from './adapter-files.ts';
import { fileFault } from './file-fault.ts';
import { folderSource } from './file-source-node.ts';
import { type ModelFiles, openModelFiles } from './model-files.ts';
import { loadText, type Text } from './text.ts';
import { treeEntries } from './tree-hash.ts';
import { newSha256, treeSha256 } from './tree-hash-node.ts';

/** The bytes that an evaluation or a plan is bound to. */
interface PolicyIdentity {
  /** Tree hash (tree-hash.ts) of every file of the model's folder. */
  modelTreeSha256: string;
  /** SHA-256 of adapter_model.safetensors, or null for the base model. */
  adapterSha256: string | null;
}

export interface Policy {
  files: ModelFiles;
  /** Null where the folder has no tokenizer.json: such a model takes token ids only. */
  text: Text | null;
  adapter: LoadedAdapter | null;
  /** Hashes what the policy consists of. Reads every byte of the folders, once. */
  identity(): Promise<PolicyIdentity>;
}

/** Opens a model folder and, unless null, an adapter folder for it. Throws ModelFileError naming file and value. */
export async function openPolicy(modelDir: string, adapterDir: string | null): Promise<Policy> {
  const source = folderSource(modelDir);
  const files = await openModelFiles(source);
  const text = (await source.size('tokenizer.json')) === null ? null : await loadText(source);
  const adapterSource = adapterDir === null ? null : folderSource(adapterDir);
  const adapter = adapterSource && (await loadAdapter(adapterSource, files.architecture));
  let identity: Promise<PolicyIdentity> | null = null;
  async function hash(): Promise<PolicyIdentity> {
    const entries = adapterSource && (await treeEntries(adapterSource, newSha256, ['adapter_model.safetensors']));
    return { modelTreeSha256: await treeSha256(source), adapterSha256: entries?.[0]?.[2] ?? null };
  }
  return { files, text, adapter, identity: () => (identity ??= hash()) };
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
