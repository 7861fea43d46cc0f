// The rotary-embedding part of config.json, in the spelling of transformers 4 (rope_theta, rope_scaling) and 5
// (rope_parameters). Not the tables: rope.ts has those.
// Invariant: a scaling type that is not implemented exactly is refused by name, never approximated by another.
import { z } from 'zod';
import { type Fault, fileFault, showValue } from './file-fault.ts';
import { checkShape } from './json-file.ts';

/** Base frequency and scaling. `factor` divides frequencies; positions are never scaled. */
export type RopeParameters =
  | { type: 'default'; theta: number }
  | { type: 'linear'; theta: number; factor: number }
  | {
      type: 'llama3';
      theta: number;
      factor: number;
      lowFreqFactor: number;
      highFreqFactor: number;
      /** Positions that the model was first trained on. */
      originalMaxPositions: number;
    };

const positive = z.number().positive();
const scalingSchema = z.looseObject({
  rope_type: z.string().optional(),
  type: z.string().optional(),
  rope_theta: positive.optional(),
  partial_rotary_factor: z.number().nullish(),
  factor: positive.nullish(),
});
const linearSchema = z.looseObject({ factor: positive });
const llama3Schema = z.looseObject({
  factor: positive,
  low_freq_factor: positive,
  high_freq_factor: positive,
  original_max_position_embeddings: z.int().positive(),
});

// What transformers uses when neither spelling gives a base frequency.
const DEFAULT_THETA = 10_000;

/** The rope settings of a parsed config.json. `doing` starts the message of an error. */
export function parseRope(config: Record<string, unknown>, doing: string): RopeParameters {
  const oldTheta = checkShape(positive.nullish(), config['rope_theta'], `${doing}, rope_theta`);
  const oldScaling = checkShape(scalingSchema.nullish(), config['rope_scaling'], `${doing}, rope_scaling`);
  const parameters = checkShape(scalingSchema.nullish(), config['rope_parameters'], `${doing}, rope_parameters`);
  const scaling = parameters ?? oldScaling ?? {};
  const theta = agree('rope_theta', parameters?.rope_theta, oldTheta ?? undefined, doing) ?? oldScaling?.rope_theta;
  if (parameters && oldScaling) agree('rope type', typeOf(parameters), typeOf(oldScaling), doing);
  if (parameters && oldScaling) agree('rope factor', parameters.factor, oldScaling.factor, doing);
  agree('rope type', scaling.rope_type, scaling.type, doing);
  const nested = Object.entries(scaling).find(
    ([, value]) => typeof value === 'object' && value && !Array.isArray(value),
  );
  if (nested) refuse(doing, `rope parameters for a layer type of their own (${nested[0]})`, 'one set for all layers');
  const partial = scaling.partial_rotary_factor ?? config['partial_rotary_factor'] ?? 1;
  if (partial !== 1) refuse(doing, `partial_rotary_factor = ${showValue(partial)}`, '1 (the whole head is rotated)');
  return byType(typeOf(scaling), scaling, theta ?? DEFAULT_THETA, doing);
}

function byType(type: string, scaling: z.infer<typeof scalingSchema>, theta: number, doing: string): RopeParameters {
  switch (type) {
    case 'default':
      if ((scaling.factor ?? 1) !== 1) {
        refuse(doing, `rope type default with factor ${scaling.factor}`, 'no factor, or the type that uses it');
      }
      return { type, theta };
    case 'linear':
      return { type, theta, factor: checkShape(linearSchema, scaling, `${doing}, linear rope`).factor };
    case 'llama3': {
      const fields = checkShape(llama3Schema, scaling, `${doing}, llama3 rope`);
      const { factor, low_freq_factor: lowFreqFactor, high_freq_factor: highFreqFactor } = fields;
      if (!(highFreqFactor > lowFreqFactor)) {
        refuse(doing, `low_freq_factor ${lowFreqFactor}, high_freq_factor ${highFreqFactor}`, 'low below high');
      }
      const originalMaxPositions = fields.original_max_position_embeddings;
      return { type, theta, factor, lowFreqFactor, highFreqFactor, originalMaxPositions };
    }
    default:
      return refuse(doing, `rope type ${showValue(type)}`, 'default, linear or llama3');
  }
}

function typeOf(scaling: z.infer<typeof scalingSchema>): string {
  return scaling.rope_type ?? scaling.type ?? 'default';
}

/** The one of two spellings that is there; both must be equal where both are. */
function agree<T>(what: string, a: T | null | undefined, b: T | null | undefined, doing: string): T | undefined {
  if (a != null && b != null && a !== b) {
    refuse(doing, `${what} both as ${showValue(a)} and as ${showValue(b)}`, 'one value, in one spelling');
  }
  return a ?? b ?? undefined;
}

function refuse(doing: string, found: string, wanted: string): never {
  const fault: Fault = { doing, found, wanted, remedy: 'Use a checkpoint with a supported rope setting.' };
  throw fileFault('unsupported-rope', fault);
}
