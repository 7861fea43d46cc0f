// Public bug case D2 on the device: an adapter that was not applied, applied twice, or put on another base model is
// caught after loading by the logits that were sealed with it.
import { beforeAll, describe, expect, test } from 'vitest';
import { sha256Hex } from '../../src/lib/sha256-node.ts';
import { loadAdapter } from '../../src/model/adapter-files.ts';
import { loadGpuAdapter } from '../../src/model/adapter-gpu.ts';
import { type Canary, type CanarySetting, canarySequences, encodeCanary } from '../../src/model/canary.ts';
import { canarySettingOf, checkLoadedAdapter, makeCanary } from '../../src/model/canary-measure.ts';
import { memorySource } from '../../src/model/file-source.ts';
import type { Adapter } from '../../src/model/lora.ts';
import { type ModelFiles, openModelFiles } from '../../src/model/model-files.ts';
import { type GpuModel, loadWeights } from '../../src/model/weights.ts';
import { editTensors, faultOf, goldenFiles } from '../support/checkpoint-files.ts';
import { useGpu } from '../support/gpu.ts';

const gpu = useGpu();
const lora = goldenFiles('tiny-qwen3-tied-lora');
const weights = 'adapter_model.safetensors';
const shaders = sha256Hex('shaders');
let files: ModelFiles;
let model: GpuModel;
let canary: Canary;
let setting: CanarySetting;
let vocabulary = 0;

const sealed = (extra: Record<string, Uint8Array> = { 'canary.json': encodeCanary(canary) }) =>
  loadAdapter(memorySource('step-000002', { ...lora, ...extra }), files.architecture);

/** The adapter with every value of its B times a factor: what a fault of loading would leave on the device. */
const withB = (adapter: Adapter, factor: number): Adapter => ({
  ...adapter,
  tensors: new Map(
    [...adapter.tensors].map(([name, values]) => [
      name,
      name.endsWith('lora_B') ? values.map((value) => value * factor) : values,
    ]),
  ),
});

async function check(factor: number, on: GpuModel = model, at: CanarySetting = setting) {
  const subject = await sealed();
  const onDevice = loadGpuAdapter(gpu(), on.architecture, withB(subject, factor));
  return checkLoadedAdapter(gpu(), on, subject, onDevice, vocabulary, at);
}

beforeAll(async () => {
  files = await openModelFiles(memorySource('base', goldenFiles('tiny-qwen3-tied')));
  model = await loadWeights(gpu(), files, { positions: 32 });
  vocabulary = files.architecture.vocabSize;
  setting = canarySettingOf(gpu(), 'portable', shaders);
  const adapter = await loadAdapter(memorySource('lora', lora), files.architecture);
  const onDevice = loadGpuAdapter(gpu(), files.architecture, adapter);
  canary = await makeCanary(gpu(), model, onDevice, vocabulary, sha256Hex(lora[weights]!), setting);
});

describe('D2: the logit canary', () => {
  test('is the same bytes when it is made again, over fixed sequences, with base and adapter apart', async () => {
    const adapter = await sealed();
    const onDevice = loadGpuAdapter(gpu(), files.architecture, adapter);
    const again = await makeCanary(gpu(), model, onDevice, vocabulary, canary.adapterSha256, setting);
    expect(encodeCanary(again)).toEqual(encodeCanary(canary));
    expect(canary.sequences.map(({ ids }) => ids)).toEqual(canarySequences(vocabulary));
    for (const { base, adapter: adapted } of canary.sequences) expect(base.sha256).not.toBe(adapted.sha256);
  });

  test('passes an adapter that was loaded as it was sealed, bit for bit', async () => {
    expect(await check(1)).toMatch(
      /^canary: logits of base and adapter equal step-000002\/canary\.json bit for bit; adapter and base differ by up to \d/,
    );
  });

  test('catches an adapter that was not applied', async () => {
    expect(await faultOf(() => check(0))).toMatch(
      /^\[adapter-not-applied\] checking the loaded adapter against step-000002\/canary\.json: found the same logits with the adapter as without it; wanted logits that differ by up to [\d.]+, as recorded\. The adapter has no effect/,
    );
  });

  test('catches an adapter that was applied twice, and one with another scale', async () => {
    const twice = await faultOf(() => check(2));
    expect(twice).toMatch(
      /^\[adapter-mismatch\] .*canary\.json: found -?[\d.]+ as the largest logit at position 0 of sequence 0 \(.*\); wanted -?[\d.]+, bit for bit\. Load the adapter once/,
    );
    expect(await faultOf(() => check(1 + 2 ** -20))).toMatch(/\[adapter-mismatch\]/);
  });

  test('says so in words where the recorded effect is small enough to be linear', async () => {
    const small = withB(await sealed(), 2 ** -7);
    const onDevice = loadGpuAdapter(gpu(), files.architecture, small);
    const own = await makeCanary(gpu(), model, onDevice, vocabulary, canary.adapterSha256, setting);
    const subject = { ...(await sealed()), canary: own };
    const loaded = loadGpuAdapter(gpu(), files.architecture, withB(small, 2));
    expect(await faultOf(() => checkLoadedAdapter(gpu(), model, subject, loaded, vocabulary, setting))).toContain(
      "(the adapter's effect is about 2.0 times the recorded one: applied twice, or with another scale)",
    );
  });

  test('catches another base model, also one of another vocabulary', async () => {
    const edited = await editTensors(goldenFiles('tiny-qwen3-tied'), 'model.safetensors', (tensors) =>
      tensors.map((tensor) =>
        tensor.name === 'model.layers.0.mlp.up_proj.weight'
          ? { ...tensor, bytes: tensor.bytes.map((byte, i) => (i === 1 ? byte ^ 0x80 : byte)) }
          : tensor,
      ),
    );
    const other = await openModelFiles(memorySource('other', edited));
    const onOther = await loadWeights(gpu(), other, { positions: 32 });
    expect(await faultOf(() => check(1, onOther))).toMatch(
      /^\[other-base\] .*step-000002\/canary\.json: found .* of the base model without the adapter; wanted .*, bit for bit\. The adapter was trained on another base model/,
    );
    const subject = await sealed();
    const onDevice = loadGpuAdapter(gpu(), files.architecture, subject);
    expect(await faultOf(() => checkLoadedAdapter(gpu(), model, subject, onDevice, vocabulary - 1, setting))).toMatch(
      /\[other-base\] .*found a base model with \d+ token ids; wanted \d+, as when it was sealed/,
    );
  });

  test('allows another device a stated bound, and still catches an adapter without effect or with twice its own', async () => {
    const elsewhere = { ...setting, device: { ...setting.device, description: 'another device' } };
    expect(await check(1, model, elsewhere)).toMatch(
      /^canary: logits of base and adapter within [\d.]+ of .*made elsewhere/,
    );
    expect(await faultOf(() => check(0, model, elsewhere))).toMatch(/\[adapter-not-applied\]/);
    expect(await faultOf(() => check(2, model, elsewhere))).toMatch(/\[adapter-mismatch\].*on this other device/);
  });
});

describe('D2: without a canary', () => {
  const run = async (factor: number, extra: Record<string, Uint8Array> = {}) => {
    const subject = await sealed(extra);
    const onDevice = loadGpuAdapter(gpu(), files.architecture, withB(subject, factor));
    return checkLoadedAdapter(gpu(), model, subject, onDevice, vocabulary, setting);
  };

  test('an older seal and a plain folder are accepted, which is said', async () => {
    expect(await run(1, { 'seal.json': new Uint8Array() })).toMatch(
      /^canary: none \(step-000002 was sealed before canaries were\); the adapter changes a logit by up to \d/,
    );
    expect(await run(1)).toMatch(/^canary: none \(step-000002 is no sealed checkpoint\)/);
  });

  test('an adapter without effect is refused unless its lora_B is zero', async () => {
    expect(await faultOf(() => run(0))).toMatch(
      /\[adapter-not-applied\] .*wanted a difference, as its lora_B is not zero/,
    );
    const zero = { ...(await sealed({})), zero: true };
    const onDevice = loadGpuAdapter(gpu(), files.architecture, withB(zero, 0));
    expect(await checkLoadedAdapter(gpu(), model, zero, onDevice, vocabulary, setting)).toMatch(
      /the adapter changes nothing, as every lora_B is zero/,
    );
  });
});

describe('D2: the canary file', () => {
  test('must be of the adapter that lies beside it', async () => {
    const other = { ...canary, adapterSha256: sha256Hex('another adapter') };
    expect(await faultOf(() => sealed({ 'canary.json': encodeCanary(other) }))).toMatch(
      /^\[other-canary\] matching step-000002\/canary\.json with adapter_model\.safetensors: found an adapter with SHA-256 [0-9a-f]{64}; wanted [0-9a-f]{64}/,
    );
  });

  test('is refused with the member that does not fit', async () => {
    const bytes = (value: unknown) => new TextEncoder().encode(JSON.stringify(value));
    expect(await faultOf(() => sealed({ 'canary.json': bytes({ ...canary, sequences: [] }) }))).toMatch(
      /^\[bad-canary\] reading step-000002\/canary\.json: found "sequences"/,
    );
    expect(await faultOf(() => sealed({ 'canary.json': bytes('no JSON object') }))).toMatch(/\[bad-canary\]/);
    const [first] = canary.sequences;
    const short = { ...first!, base: { ...first!.base, logits: [1] } };
    expect(await faultOf(() => sealed({ 'canary.json': bytes({ ...canary, sequences: [short] }) }))).toMatch(
      /must have two logits an id/,
    );
  });
});
