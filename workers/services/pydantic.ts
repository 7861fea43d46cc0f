// Validation as pydantic does it in lax mode: defaults, coercion, and its error entries with type, loc, msg, input,
// ctx. Not pydantic: only the kinds that the two protocols need. Invariant: the same input gives the same errors in
// the same order as the recorded servers (fields in order, then forbidden extras in the order of the input).
import { toWire, type WireMap, type WireValue } from '../../src/environments/service/wire-json.ts';
import { pythonRepr, pythonType } from './python-repr.ts';

export type Loc = (string | number)[];

export interface Issue {
  type: string;
  loc: Loc;
  msg: string;
  input: WireValue;
  ctx?: Record<string, unknown>;
}

/** Input that does not validate. `title` is the model's. */
export class ValidationError extends Error {
  readonly issues: readonly Issue[];
  readonly title: string;
  constructor(title: string, issues: readonly Issue[]) {
    super(`${issues.length} validation errors for ${title}`);
    this.name = 'ValidationError';
    this.title = title;
    this.issues = issues;
  }
}

/** A custom validator that raised ValueError: the upstream servers cannot write such an error down. */
export class RaisedInValidator extends Error {}

/** A type: turns an input into a value, or adds issues and gives undefined. */
export type Check = (input: WireValue, loc: Loc, issues: Issue[]) => WireValue | undefined;

export interface Field {
  check: Check;
  /** Absent: the field is required. Not validated. */
  fallback?: () => WireValue;
}

export interface Model {
  title: string;
  fields: Readonly<Record<string, Field>>;
  extra: 'forbid' | 'ignore' | 'allow';
  /** A validator of the whole model; may throw RaisedInValidator. */
  after?: (value: WireMap) => void;
}

const issue = (
  issues: Issue[],
  type: string,
  loc: Loc,
  msg: string,
  input: WireValue,
  ctx?: Record<string, unknown>,
) => {
  issues.push(ctx === undefined ? { type, loc, msg, input } : { type, loc, msg, input, ctx });
  return undefined;
};

const quoteList = (names: readonly string[]): string => {
  const quoted = names.map((name) => `'${name}'`);
  return quoted.length === 1 ? quoted[0]! : `${quoted.slice(0, -1).join(', ')} or ${quoted.at(-1)!}`;
};

export const anything: Check = (input) => input;

export const text =
  (options: { maxLength?: number } = {}): Check =>
  (input, loc, issues) => {
    if (typeof input !== 'string') return issue(issues, 'string_type', loc, 'Input should be a valid string', input);
    const { maxLength } = options;
    if (maxLength !== undefined && Array.from(input).length > maxLength) {
      const msg = `String should have at most ${maxLength} characters`;
      return issue(issues, 'string_too_long', loc, msg, input, { max_length: maxLength });
    }
    return input;
  };

function asInt(input: WireValue, loc: Loc, issues: Issue[]): bigint | undefined {
  if (typeof input === 'bigint') return input;
  if (typeof input === 'boolean') return input ? 1n : 0n;
  if (typeof input === 'number') {
    if (!Number.isFinite(input)) {
      return issue(issues, 'finite_number', loc, 'Input should be a finite number', input);
    }
    if (Number.isInteger(input)) return BigInt(input);
    const msg = 'Input should be a valid integer, got a number with a fractional part';
    return issue(issues, 'int_from_float', loc, msg, input);
  }
  if (typeof input === 'string') {
    const match = /^\s*([+-]?\d+)(?:\.0*)?\s*$/.exec(input);
    if (match) return BigInt(match[1]!.replace(/^\+/, ''));
    const msg = 'Input should be a valid integer, unable to parse string as an integer';
    return issue(issues, 'int_parsing', loc, msg, input);
  }
  return issue(issues, 'int_type', loc, 'Input should be a valid integer', input);
}

export const int =
  (range: { ge?: number; le?: number } = {}): Check =>
  (input, loc, issues) => {
    const value = asInt(input, loc, issues);
    if (value === undefined) return undefined;
    const { ge, le } = range;
    if (ge !== undefined && value < BigInt(ge)) {
      return issue(issues, 'greater_than_equal', loc, `Input should be greater than or equal to ${ge}`, input, { ge });
    }
    if (le !== undefined && value > BigInt(le)) {
      return issue(issues, 'less_than_equal', loc, `Input should be less than or equal to ${le}`, input, { le });
    }
    return value;
  };

export const float =
  (range: { gt?: number } = {}): Check =>
  (input, loc, issues) => {
    let value: number;
    if (typeof input === 'number') value = input;
    else if (typeof input === 'bigint' || typeof input === 'boolean') value = Number(input);
    else if (typeof input === 'string' && input.trim() !== '' && !Number.isNaN(Number(input))) value = Number(input);
    else if (typeof input === 'string') {
      const msg = 'Input should be a valid number, unable to parse string as a number';
      return issue(issues, 'float_parsing', loc, msg, input);
    } else return issue(issues, 'float_type', loc, 'Input should be a valid number', input);
    const { gt } = range;
    if (gt !== undefined && !(value > gt)) {
      return issue(issues, 'greater_than', loc, `Input should be greater than ${gt}`, input, { gt: { float: gt } });
    }
    return value;
  };

export const bool: Check = (input, loc, issues) => {
  if (typeof input === 'boolean') return input;
  if (input === 0n || input === 1n) return input === 1n;
  return issue(issues, 'bool_type', loc, 'Input should be a valid boolean', input);
};

/** One of some strings. */
export const oneOf =
  (...values: string[]): Check =>
  (input, loc, issues) => {
    if (typeof input === 'string' && values.includes(input)) return input;
    const expected = quoteList(values);
    return issue(issues, 'literal_error', loc, `Input should be ${expected}`, input, { expected });
  };

/** `Literal[False]` and the like, by Python's text of the value. */
export const exactly =
  (value: boolean): Check =>
  (input, loc, issues) => {
    if (input === value) return input;
    const expected = value ? 'True' : 'False';
    return issue(issues, 'literal_error', loc, `Input should be ${expected}`, input, { expected });
  };

export const dict =
  (member: Check = anything): Check =>
  (input, loc, issues) => {
    if (!(input instanceof Map)) {
      return issue(issues, 'dict_type', loc, 'Input should be a valid dictionary', input);
    }
    const before = issues.length;
    const value: WireMap = new Map();
    for (const [key, entry] of input) {
      const checked = member(entry, [...loc, key], issues);
      if (checked !== undefined) value.set(key, checked);
    }
    return issues.length > before ? undefined : value;
  };

export const list =
  (member: Check = anything): Check =>
  (input, loc, issues) => {
    if (!Array.isArray(input)) return issue(issues, 'list_type', loc, 'Input should be a valid list', input);
    const before = issues.length;
    const value = input.map((entry, i) => member(entry, [...loc, i], issues));
    return issues.length > before ? undefined : (value as WireValue[]);
  };

export const nullable =
  (inner: Check): Check =>
  (input, loc, issues) =>
    input === null ? null : inner(input, loc, issues);

/** A string, or `other`. */
export const textOr =
  (other: Check): Check =>
  (input, loc, issues) =>
    typeof input === 'string' ? input : other(input, loc, issues);

/** A nested model. */
export const nested = (model: Model): Check => {
  const fields = Object.entries(model.fields);
  return (input, loc, issues) => {
    if (!(input instanceof Map)) {
      const msg = 'Input should be a valid dictionary or object to extract fields from';
      return issue(issues, 'model_attributes_type', loc, msg, input);
    }
    const before = issues.length;
    const value: WireMap = new Map();
    for (const [name, { check, fallback }] of fields) {
      if (input.has(name)) {
        const checked = check(input.get(name)!, [...loc, name], issues);
        if (checked !== undefined) value.set(name, checked);
      } else if (fallback) value.set(name, fallback());
      else issue(issues, 'missing', [...loc, name], 'Field required', input);
    }
    for (const [key, extra] of model.extra === 'ignore' ? [] : input) {
      if (Object.hasOwn(model.fields, key)) continue;
      if (model.extra === 'allow') value.set(key, extra);
      if (model.extra === 'forbid') {
        issue(issues, 'extra_forbidden', [...loc, key], 'Extra inputs are not permitted', extra);
      }
    }
    if (issues.length > before) return undefined;
    model.after?.(value);
    return value;
  };
};

/** Validates a model. Throws ValidationError, or RaisedInValidator. */
export function validate(model: Model, input: WireValue, loc: Loc = []): WireMap {
  const issues: Issue[] = [];
  const value = nested(model)(input, loc, issues);
  if (issues.length > 0) throw new ValidationError(model.title, issues);
  return value as WireMap;
}

const URL_BASE = 'https://errors.pydantic.dev/2.13/v/';

/** Numbers of ctx are ints unless written `{float: x}`. */
const context = (ctx: Record<string, unknown>): WireMap =>
  new Map(
    Object.entries(ctx).map(([key, value]) => {
      const asFloat = (value as { float?: number } | null)?.float;
      return [key, asFloat === undefined ? toWire(value) : asFloat];
    }),
  );

/** The issues as a JSON list, with `url` as pydantic's own `errors()` has it, or without as FastAPI's. */
export function issueList(issues: readonly Issue[], withUrl: boolean): WireValue[] {
  return issues.map(({ type, loc, msg, input, ctx }) => {
    const entry: WireMap = new Map<string, WireValue>([
      ['type', type],
      ['loc', loc.map((part) => (typeof part === 'number' ? BigInt(part) : part))],
      ['msg', msg],
      ['input', input],
    ]);
    if (ctx) entry.set('ctx', context(ctx));
    if (withUrl) entry.set('url', `${URL_BASE}${type}`);
    return entry;
  });
}

/** The text of `str(ValidationError)`. */
export function validationText(title: string, issues: readonly Issue[]): string {
  const count = `${issues.length} validation error${issues.length === 1 ? '' : 's'} for ${title}`;
  const lines = issues.map(({ type, loc, msg, input }) => {
    const repr = pythonRepr(input);
    const shown = repr.length > 50 ? `${repr.slice(0, 25)}...${repr.slice(-24)}` : repr;
    const detail = `[type=${type}, input_value=${shown}, input_type=${pythonType(input)}]`;
    return `${loc.join('.')}\n  ${msg} ${detail}\n    For further information visit ${URL_BASE}${type}`;
  });
  return [count, ...lines].join('\n');
}
