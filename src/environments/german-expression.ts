// The calculator of the German task: integers, + - * / and parentheses, by recursive descent into a tree.
// Not JavaScript's eval, no floats: division must come out even. Invariant: the length, every literal and every
// intermediate value are bounded, so evaluation is exact in doubles and always ends.
//
//   sum := product (('+' | '-') product)*    product := signed (('*' | '/') signed)*
//   signed := '-'? primary                   primary := digit+ | '(' sum ')'        spaces (U+0020) anywhere between

/** UTF-16 units; a longer expression is refused unread. */
export const MAX_EXPRESSION_LENGTH = 64;
/** Bound on the magnitude of literals, intermediate values and the result. */
export const MAX_MAGNITUDE = 9_999_999;

export type Expression =
  | { kind: 'literal'; value: number }
  | { kind: 'negation'; operand: Expression }
  | { kind: 'binary'; operator: '+' | '-' | '*' | '/'; left: Expression; right: Expression };

export type ExpressionFault = 'too-long' | 'syntax' | 'division-by-zero' | 'inexact-division' | 'too-large';

export type Evaluation =
  | { value: number; expression: Expression; fault?: never }
  | { fault: ExpressionFault; value?: never; expression?: never };

/** Parses the whole text; null if it does not follow the grammar. */
export function parseExpression(text: string): Expression | null {
  let at = 0;
  const peek = (): string => {
    while (text[at] === ' ') at++;
    return text[at] ?? '';
  };
  const primary = (): Expression | null => {
    if (peek() === '(') {
      at++;
      const inner = sum();
      if (inner === null || peek() !== ')') return null;
      at++;
      return inner;
    }
    const start = at;
    while (at < text.length && text[at]! >= '0' && text[at]! <= '9') at++;
    return at === start ? null : { kind: 'literal', value: Number(text.slice(start, at)) };
  };
  const signed = (): Expression | null => {
    if (peek() !== '-') return primary();
    at++;
    const operand = primary();
    return operand && { kind: 'negation', operand };
  };
  const chain = (next: () => Expression | null, operators: string): Expression | null => {
    let left = next();
    while (left !== null) {
      const operator = peek();
      if (operator === '' || !operators.includes(operator)) return left;
      at++;
      const right = next();
      if (right === null) return null;
      left = { kind: 'binary', operator: operator as '+' | '-' | '*' | '/', left, right };
    }
    return null;
  };
  const product = (): Expression | null => chain(signed, '*/');
  const sum = (): Expression | null => chain(product, '+-');
  const tree = sum();
  return tree !== null && peek() === '' ? tree : null;
}

/** Value of a tree, operands before operators and left before right: the first fault in that order is the one reported. */
function evaluateNode(node: Expression): number | ExpressionFault {
  if (node.kind === 'literal') return bounded(node.value);
  if (node.kind === 'negation') {
    const operand = evaluateNode(node.operand);
    return typeof operand === 'number' ? 0 - operand : operand;
  }
  const left = evaluateNode(node.left);
  if (typeof left !== 'number') return left;
  const right = evaluateNode(node.right);
  if (typeof right !== 'number') return right;
  if (node.operator === '+') return bounded(left + right);
  if (node.operator === '-') return bounded(left - right);
  if (node.operator === '*') return bounded(left * right);
  if (right === 0) return 'division-by-zero';
  return left % right === 0 ? bounded(left / right) : 'inexact-division';
}

function bounded(value: number): number | ExpressionFault {
  // `+ 0` turns -0 into 0. Literals of many digits arrive as large doubles or Infinity and are refused here.
  return Math.abs(value) <= MAX_MAGNITUDE ? value + 0 : 'too-large';
}

/** Evaluates an expression of at most 64 characters; a fault is data, because the environment reports it to the policy. */
export function evaluateExpression(text: string): Evaluation {
  if (text.length > MAX_EXPRESSION_LENGTH) return { fault: 'too-long' };
  const expression = parseExpression(text);
  if (expression === null) return { fault: 'syntax' };
  const value = evaluateNode(expression);
  return typeof value === 'number' ? { value, expression } : { fault: value };
}
