// Checks and normalises the components of a tokenizer.json, so that what is not supported is refused by name at load.
// Not a tokenizer: it only rewrites configuration. Invariant: a file that passes is byte-level BPE without drop-out,
// prefix spaces or truncating normalizers, so every encoding decodes to the (normalised) text that went in.
import { fileFault, showValue } from './file-fault.ts';

type Component = Record<string, unknown> & { type?: string };

const GPT2_PATTERN = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const UNICODE_FORMS = ['NFC', 'NFD', 'NFKC', 'NFKD'];

/** Throws ModelFileError that names the component of `doing`'s file which is not supported. */
function refuse(doing: string, found: string, wanted: string): never {
  throw fileFault('unsupported-tokenizer', {
    doing,
    found,
    wanted,
    remedy: 'Use a checkpoint with a byte-level BPE tokenizer (Qwen3, Llama 3, SmolLM2 have one).',
  });
}

/** The components of `part`: those of a Sequence (nested ones too) in order, or the one, or none for null. */
function flatten(part: unknown, listKey: string, doing: string, name: string): Component[] {
  if (part === null || part === undefined) return [];
  if (typeof part !== 'object' || Array.isArray(part))
    refuse(doing, `${name} = ${showValue(part)}`, 'an object or null');
  const component = part as Component;
  if (component.type !== 'Sequence') return [component];
  const list = component[listKey];
  if (!Array.isArray(list)) refuse(doing, `${name} Sequence without ${listKey}`, `a list under ${listKey}`);
  return list.flatMap((item) => flatten(item, listKey, doing, name));
}

/** A Split by a regular expression whose matches and gaps both become pieces. */
const isolate = (regex: string): Component => ({
  type: 'Split',
  pattern: { Regex: regex },
  behavior: 'Isolated',
  invert: false,
});

function preTokenizers(part: unknown, doing: string): Component[] {
  const found = flatten(part, 'pretokenizers', doing, 'pre_tokenizer');
  const result = found.flatMap((component): Component[] => {
    switch (component.type) {
      case 'ByteLevel': {
        if (component['add_prefix_space'] === true) {
          refuse(doing, 'pre_tokenizer ByteLevel with add_prefix_space', 'add_prefix_space false');
        }
        const bytes: Component = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false };
        // JavaScript's \s is not Unicode's White_Space; a Split has its pattern translated, ByteLevel's own has not.
        return component['use_regex'] === false ? [bytes] : [isolate(GPT2_PATTERN), bytes];
      }
      case 'Digits':
        // \d is ASCII in JavaScript; the reference takes every numeric character (Nd, Nl, No).
        return [isolate(component['individual_digits'] === true ? '\\p{N}' : '\\p{N}+')];
      case 'Split': {
        const behavior = String(component['behavior']);
        const inverted = component['invert'] === true;
        if (behavior !== (inverted ? 'Removed' : 'Isolated')) {
          refuse(
            doing,
            `pre_tokenizer Split ${behavior}${inverted ? ' (inverted)' : ''}`,
            'Isolated, or inverted Removed',
          );
        }
        return [component];
      }
      default:
        return refuse(doing, `pre_tokenizer ${showValue(component.type)}`, 'ByteLevel, Digits or Split');
    }
  });
  if (
    result.filter((component) => component.type === 'ByteLevel').length !== 1 ||
    result.at(-1)?.type !== 'ByteLevel'
  ) {
    refuse(doing, 'a pre_tokenizer without ByteLevel at its end', 'one ByteLevel, last');
  }
  return result;
}

function checkModel(model: Component, doing: string): void {
  if (model.type !== undefined && model.type !== 'BPE') refuse(doing, `model ${showValue(model.type)}`, 'model BPE');
  const off: [string, unknown[]][] = [
    ['dropout', [null, undefined, 0]],
    ['byte_fallback', [false, undefined]],
    ['continuing_subword_prefix', [null, undefined, '']],
    ['end_of_word_suffix', [null, undefined, '']],
  ];
  for (const [key, allowed] of off) {
    if (!allowed.includes(model[key])) refuse(doing, `model BPE with ${key} = ${showValue(model[key])}`, `no ${key}`);
  }
}

/**
 * The parsed tokenizer.json `file` with its components checked and rewritten for the JavaScript tokenizer, without
 * added tokens (those are matched apart, see tokenizer.ts). `doing` starts the message of an error.
 */
export function supportedTokenizer(file: Record<string, unknown>, doing: string): Record<string, unknown> {
  const model = file['model'];
  if (model === null || typeof model !== 'object') refuse(doing, `model = ${showValue(model)}`, 'a model');
  checkModel(model as Component, doing);
  const normalizers = flatten(file['normalizer'], 'normalizers', doing, 'normalizer');
  for (const { type } of normalizers) {
    if (!UNICODE_FORMS.includes(String(type))) refuse(doing, `normalizer ${showValue(type)}`, UNICODE_FORMS.join(', '));
  }
  for (const { type } of flatten(file['decoder'], 'decoders', doing, 'decoder')) {
    if (type !== 'ByteLevel') refuse(doing, `decoder ${showValue(type)}`, 'ByteLevel');
  }
  for (const { type } of flatten(file['post_processor'], 'processors', doing, 'post_processor')) {
    if (type !== 'ByteLevel' && type !== 'TemplateProcessing') {
      refuse(doing, `post_processor ${showValue(type)}`, 'ByteLevel or TemplateProcessing');
    }
  }
  const pretokenizers = preTokenizers(file['pre_tokenizer'], doing);
  return {
    model,
    normalizer: normalizers.length === 0 ? null : { type: 'Sequence', normalizers },
    pre_tokenizer: { type: 'Sequence', pretokenizers },
    post_processor: null,
    decoder: null,
    added_tokens: [],
  };
}

/** Ids that the file's post-processor puts before a plain text (a `<|begin_of_text|>`, say). */
export function leadingIds(file: Record<string, unknown>, doing: string): number[] {
  for (const part of flatten(file['post_processor'], 'processors', doing, 'post_processor')) {
    if (part.type !== 'TemplateProcessing') continue;
    const single = part['single'] as Record<string, { id: string }>[];
    const tokens = (part['special_tokens'] ?? {}) as Record<string, { ids: number[] }>;
    const names = single
      .slice(
        0,
        single.findIndex((item) => 'Sequence' in item),
      )
      .map((item) => item['SpecialToken']?.id);
    return names.flatMap((name) => tokens[name ?? '']?.ids ?? []);
  }
  return [];
}
