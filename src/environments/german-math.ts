// German arithmetic word problems for the DEV math score.
// Not tool episodes: no table, no tools; names, things and sentences are disjoint from the lookup task.
// Invariant: each answer is a non-negative integer that follows from the text alone; questions of one call are distinct.
import { PlanError } from '../lib/errors.ts';
import { streamWords } from '../lib/rng.ts';

export interface MathProblem {
  id: string;
  question: string;
  answer: number;
}

/** Stream of the draws; index = problem * 2^16 + attempt * 2 + block ('M' in the top byte). */
const MATH_STREAM = 0x4d000000;
const MAX_PROBLEMS = 20_000;

const NAMES = [
  'Lena',
  'Jonas',
  'Mia',
  'Emil',
  'Frieda',
  'Anton',
  'Greta',
  'Oskar',
  'Ida',
  'Karl',
  'Nele',
  'Theo',
] as const;
const THINGS = [
  'Murmeln',
  'Aufkleber',
  'Briefmarken',
  'Bleistifte',
  'Muscheln',
  'Postkarten',
  'Knöpfe',
  'Perlen',
] as const;

/** Draws an integer in [low, high]. */
type Draw = (low: number, high: number) => number;
type Template = (name: string, other: string, things: string, draw: Draw) => { question: string; answer: number };

/** One- and two-step problems. Numbers are drawn so that differences stay positive and divisions come out even. */
const TEMPLATES: readonly Template[] = [
  (name, other, things, draw) => {
    const [a, b] = [draw(5, 60), draw(3, 40)];
    return {
      question: `${name} hat ${a} ${things}. ${other} schenkt ${name} noch ${b} dazu. Wie viele ${things} hat ${name} jetzt?`,
      answer: a + b,
    };
  },
  (name, other, things, draw) => {
    const b = draw(3, 40);
    const a = b + draw(2, 50);
    return {
      question: `In einer Kiste liegen ${a} ${things}. ${name} und ${other} nehmen zusammen ${b} heraus. Wie viele ${things} bleiben in der Kiste?`,
      answer: a - b,
    };
  },
  (name, _other, things, draw) => {
    const [a, b] = [draw(3, 12), draw(4, 25)];
    return {
      question: `${name} füllt ${a} Dosen. In jede kommen ${b} ${things}. Wie viele ${things} sind das insgesamt?`,
      answer: a * b,
    };
  },
  (name, _other, things, draw) => {
    const [a, b] = [draw(3, 12), draw(4, 25)];
    return {
      question: `${name} verteilt ${a * b} ${things} gleichmäßig auf ${a} Kinder. Wie viele ${things} bekommt jedes Kind?`,
      answer: b,
    };
  },
  (name, other, things, draw) => {
    const [a, b] = [draw(4, 40), draw(2, 6)];
    return {
      question: `${name} sammelt ${a} ${things}, ${other} sammelt ${b}-mal so viele. Wie viele ${things} haben beide zusammen?`,
      answer: a + a * b,
    };
  },
  (name, other, things, draw) => {
    const b = draw(2, 20);
    const a = b + draw(5, 50);
    return {
      question: `${name} besitzt ${a} ${things}. Das sind ${b} mehr, als ${other} besitzt. Wie viele ${things} besitzen sie zusammen?`,
      answer: a + a - b,
    };
  },
  (name, _other, _things, draw) => {
    const [a, b] = [draw(2, 9), draw(3, 18)];
    const paid = a * b + draw(1, 30);
    return {
      question: `${name} kauft ${a} Kinokarten zu je ${b} Euro und bezahlt mit ${paid} Euro. Wie viel Euro Rückgeld gibt es?`,
      answer: paid - a * b,
    };
  },
  (name, _other, _things, draw) => {
    const [a, b, c] = [draw(20, 90), draw(2, 9), draw(3, 12)];
    return {
      question: `${name} hat ${a} Seiten gelesen und liest nun an ${b} Tagen je ${c} Seiten. Wie viele Seiten sind es am Ende?`,
      answer: a + b * c,
    };
  },
  (name, other, _things, draw) => {
    const [a, b, c] = [draw(2, 15), draw(2, 15), draw(2, 6)];
    return {
      question: `${name} läuft ${a} Runden und ${other} läuft ${b} Runden um den See. Eine Runde ist ${c} Kilometer lang. Wie viele Kilometer laufen sie zusammen?`,
      answer: (a + b) * c,
    };
  },
  (name, _other, _things, draw) => {
    const [a, b] = [draw(6, 40), draw(2, 9)];
    const taken = draw(1, 5) * b;
    return {
      question: `In einem Bus sitzen ${a + taken} Fahrgäste. An ${taken / b} Haltestellen steigen je ${b} aus, danach steigt auch ${name} aus. Wie viele Fahrgäste sitzen noch im Bus?`,
      answer: a - 1,
    };
  },
];

/**
 * `count` problems of `seed` (u32); a shorter call gives a prefix of a longer one. Throws PlanError on a bad seed or
 * count.
 */
export function mathProblems(seed: number, count: number): MathProblem[] {
  if (!(Number.isInteger(seed) && seed >= 0 && seed < 2 ** 32)) {
    throw new PlanError('bad-seed', `generating math problems: seed is ${seed}; use an integer in [0, 2^32).`);
  }
  if (!(Number.isInteger(count) && count >= 0 && count <= MAX_PROBLEMS)) {
    throw new PlanError(
      'bad-count',
      `generating math problems: count is ${count}; it must be an integer in 0..${MAX_PROBLEMS}. Ask for fewer.`,
    );
  }
  const seen = new Set<string>();
  return Array.from({ length: count }, (_, index) => drawProblem(seed, index, seen));
}

function drawProblem(seed: number, index: number, seen: Set<string>): MathProblem {
  const template = TEMPLATES[index % TEMPLATES.length]!;
  for (let attempt = 0; attempt < 2 ** 15; attempt++) {
    const words = [0, 1].flatMap((block) => streamWords(seed, MATH_STREAM, index * 2 ** 16 + attempt * 2 + block));
    let used = 0;
    const draw: Draw = (low, high) => low + (words[used++]! % (high - low + 1));
    const first = draw(0, NAMES.length - 1);
    // The second person is another one: an offset of 1 to 11 places.
    const second = (first + draw(1, NAMES.length - 1)) % NAMES.length;
    const things = THINGS[draw(0, THINGS.length - 1)]!;
    const { question, answer } = template(NAMES[first]!, NAMES[second]!, things, draw);
    if (seen.has(question)) continue;
    seen.add(question);
    return { id: `german-math-${seed}-${String(index).padStart(5, '0')}`, question, answer };
  }
  throw new PlanError(
    'problems-exhausted',
    `generating math problem ${index} (seed ${seed}): no new one found. Ask for fewer.`,
  );
}
