// Opens a base model folder with everything a run binds to: files, text, and the hashes of both.
// Not an upload. Invariant: the hashes cover every byte that the run reads of the folder.

import { canonicalBytes } from '../lib/canonical-json.ts';
import { sha256Hex } from '../lib/sha256-node.ts';
import type { ModelFiles } from './model-files.ts';
import { openPolicy, requireText, vocabularyOf } from './open-node.ts';
import type { Text } from './text.ts';
import { treeSha256 } from './tree-hash-node.ts';

export interface BaseModel {
  files: ModelFiles;
  text: Text;
  /** Token ids below this exist. */
  vocabulary: number;
  hashes: {
    /** Tree hash of the weights and configuration (config.json, safetensors and their index). */
    baseModel: string;
    tokenizer: string;
    chatTemplate: string;
    /** Of the ids that end a generation, as they were read. */
    generationConfig: string;
  };
}

const noTemplate = '0'.repeat(64);

/** Opens and hashes a checkpoint folder. @throws ModelFileError naming the file at fault. */
export async function openBase(folder: string): Promise<BaseModel> {
  const policy = await openPolicy(folder, null);
  const { files } = policy;
  const { source } = files;
  const text = requireText(policy);
  const names = (await source.list()).filter((name) =>
    /^(config|generation_config)\.json$|\.safetensors$|\.index\.json$/.test(name),
  );
  return {
    files,
    text,
    vocabulary: vocabularyOf(policy),
    hashes: {
      baseModel: await treeSha256(source, names),
      tokenizer: text.tokenizerSha256,
      chatTemplate: text.templateSha256 ?? noTemplate,
      generationConfig: sha256Hex(canonicalBytes(files.architecture.eosTokenIds)),
    },
  };
}
