// The reference's parameters through the product's loaders against the independent golden reader, and what is refused.
import { describe, expect, it } from 'vitest';
import { loadAdapter } from '../../src/model/adapter-files.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import {
  loadReferenceModel,
  type ReferenceModel,
  referenceAdapter,
  referenceModel,
} from '../../src/model/reference/weights.ts';
import { goldenPath, maxDifference } from '../support/golden.ts';
import { goldenAdapter, goldenLora, goldenModel } from '../support/golden-model.ts';

describe.each(['tiny-qwen3-tied', 'tiny-qwen3-untied', 'tiny-llama-tied'])('the checkpoint %s', (folder) => {
  it('has the same f64 weights by the product’s loader and by the golden reader', async () => {
    const loaded = await loadReferenceModel(await openModelFiles(folderSource(goldenPath(folder))));
    const golden = goldenModel(folder);
    const flat = ({ embedding, head, finalNorm, inverseFrequencies, layers }: ReferenceModel) => [
      ...[embedding, head, finalNorm, inverseFrequencies],
      ...layers.flatMap(({ linear, inputNorm, postNorm, qNorm, kNorm }) => [
        ...[inputNorm, postNorm, qNorm ?? inputNorm, kNorm ?? inputNorm],
        ...Object.values(linear),
      ]),
    ];
    const expected = flat(golden);
    expect(flat(loaded).length).toBe(expected.length);
    flat(loaded).forEach((values, i) => {
      expect(maxDifference(values, expected[i]!)).toBe(0);
    });
    expect(loaded.architecture).toEqual(golden.architecture);
    expect(loaded.head === loaded.embedding).toBe(folder !== 'tiny-qwen3-untied');
  });
});

describe('the reference adapter', () => {
  const model = goldenModel('tiny-qwen3-tied');

  it('is the PEFT adapter as the product loads it', async () => {
    const loaded = await loadAdapter(folderSource(goldenPath('tiny-qwen3-tied-lora')), model.architecture);
    expect(referenceAdapter(model.architecture, loaded)).toEqual(goldenAdapter(model));
    expect(goldenAdapter(model).scale).toBe(2);
  });

  it('refuses a tensor that is missing, misshapen or none of its own', () => {
    const { tensors } = goldenAdapter(model);
    const build = (change: (copy: Map<string, Float64Array>) => void) => {
      const copy = new Map(tensors);
      change(copy);
      return () => referenceAdapter(model.architecture, { config: goldenLora, tensors: copy });
    };
    const name = 'layers.1.mlp.up_proj.lora_A';
    expect(build((copy) => copy.delete(name))).toThrowErrorMatchingInlineSnapshot(
      `[ModelFileError: building the f64 reference: layers.1.mlp.up_proj.lora_A has no values, shape [4, 64] needs 256. Pass an adapter of this architecture and rank.]`,
    );
    expect(build((copy) => copy.set(name, new Float64Array(5)))).toThrow(/has 5 values, shape \[4, 64\] needs 256/);
    expect(build((copy) => copy.set('layers.9.x', new Float64Array(5)))).toThrow(/found adapter tensor layers\.9\.x/);
  });
});

it('a model without one of its tensors is refused by the tensor’s name', () => {
  const { architecture } = goldenModel('tiny-qwen3-untied');
  expect(() => referenceModel(architecture, new Map())).toThrowErrorMatchingInlineSnapshot(
    `[ModelFileError: building the f64 reference: model.embed_tokens.weight has no values, shape [320, 64] needs 20480. Pass the tensors of a checkpoint of this architecture.]`,
  );
});
