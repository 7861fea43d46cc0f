// Which safetensors files of a checkpoint hold which tensors: model.safetensors, or the shards that the index names.
// Not a check of the tensor list itself (model-files.ts). Invariant: index and shards agree on every tensor; a file
// that the index does not name is never read.
import { z } from 'zod';
import { fileFault, sampleNames } from './file-fault.ts';
import type { FileSource } from './file-source.ts';
import { checkShape, readJson } from './json-file.ts';
import { openSafetensors, type TensorRef } from './safetensors.ts';

const INDEX = 'model.safetensors.index.json';
const SINGLE = 'model.safetensors';

const indexSchema = z.looseObject({
  metadata: z.looseObject({ total_size: z.number().optional() }).optional(),
  weight_map: z.record(z.string(), z.string()),
});

/** Every tensor of the checkpoint by name, with notes on files that were passed over. */
export async function locateTensors(source: FileSource): Promise<{ tensors: Map<string, TensorRef>; notes: string[] }> {
  if ((await source.size(INDEX)) !== null) return readShards(source);
  if ((await source.size(SINGLE)) !== null) {
    return { tensors: (await openSafetensors(source, SINGLE)).tensors, notes: [] };
  }
  const names = await source.list();
  const pickled = names.find((name) => name.endsWith('.bin') || name.endsWith('.pth') || name.endsWith('.gguf'));
  throw fileFault('missing-file', {
    doing: `opening the checkpoint ${source.label}`,
    found: names.length === 0 ? 'an empty folder' : `neither among ${sampleNames(names, 6)}`,
    wanted: `${SINGLE} or ${INDEX}`,
    remedy: pickled ? `Convert ${pickled} to safetensors first.` : 'Give the folder of a Hugging Face checkpoint.',
  });
}

async function readShards(source: FileSource): Promise<{ tensors: Map<string, TensorRef>; notes: string[] }> {
  const indexPath = `${source.label}/${INDEX}`;
  const index = checkShape(indexSchema, await readJson(source, INDEX), `reading ${indexPath}`);
  const wantedIn = new Map<string, string[]>();
  for (const [tensor, file] of Object.entries(index.weight_map)) {
    const names = wantedIn.get(file);
    if (names) names.push(tensor);
    else wantedIn.set(file, [tensor]);
  }
  const files = [...wantedIn.keys()].sort();
  const tensors = new Map<string, TensorRef>();
  for (const file of files) {
    if (file.includes('/') || file.includes('\\') || (await source.size(file)) === null) {
      const names = wantedIn.get(file)!;
      throw fileFault('missing-shard', {
        doing: `reading ${indexPath}`,
        found: `no file ${file}, which should hold ${names.length} tensors (${sampleNames(names)})`,
        wanted: `all ${files.length} shards in the folder`,
        remedy: 'Download the missing shard.',
      });
    }
    for (const ref of (await openSafetensors(source, file)).tensors.values()) {
      checkListed(ref, index.weight_map, tensors.get(ref.name), source.label);
      tensors.set(ref.name, ref);
    }
    const absent = wantedIn.get(file)!.filter((name) => tensors.get(name)?.file !== file);
    if (absent.length > 0) {
      throw fileFault('contradictory-index', {
        doing: `reading ${source.label}/${file}`,
        found: `no tensor ${sampleNames(absent)}`,
        wanted: `the ${wantedIn.get(file)!.length} tensors that ${INDEX} places there`,
        remedy: 'Index and shard are from different releases; download both again.',
      });
    }
  }
  return { tensors, notes: await indexNotes(source, files, tensors, index.metadata?.total_size) };
}

function checkListed(
  ref: TensorRef,
  weightMap: Record<string, string>,
  earlier: TensorRef | undefined,
  label: string,
): void {
  const listed = Object.hasOwn(weightMap, ref.name) ? weightMap[ref.name] : undefined;
  if (listed === ref.file && !earlier) return;
  const elsewhere = earlier?.file ?? listed;
  throw fileFault(elsewhere === undefined ? 'contradictory-index' : 'duplicate-tensor', {
    doing: `reading ${label}/${ref.file}, tensor ${ref.name}`,
    found: elsewhere === undefined ? 'a tensor that the index does not list' : `${INDEX} places it in ${elsewhere}`,
    wanted: 'each tensor in the one shard that the index names',
    remedy: 'Index and shard are from different releases; download both again.',
  });
}

async function indexNotes(
  source: FileSource,
  files: readonly string[],
  tensors: ReadonlyMap<string, TensorRef>,
  totalSize: number | undefined,
): Promise<string[]> {
  const others = (await source.list()).filter((name) => name.endsWith('.safetensors') && !files.includes(name));
  const notes = others.map((name) => `${source.label}/${name} is not named by ${INDEX} and was not read`);
  const sum = [...tensors.values()].reduce((total, ref) => total + ref.lengthBytes, 0);
  if (totalSize !== undefined && totalSize !== sum) {
    notes.push(`${source.label}/${INDEX} says total_size ${totalSize}, its shards hold ${sum} bytes of tensors`);
  }
  return notes;
}
