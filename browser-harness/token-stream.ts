// A token stream as text: one element a token, told apart by its source without colour, coloured by a scale on request.
// Not an editor. Invariant: each token is one element with its index, whatever its bytes; no text is joined or cut.

import { byteMark, type TokenPiece } from '../src/inspect/token-text.ts';
import type { TokenSource } from '../src/rollout/episode.ts';
import { clipFacts, clipNames, clipsOf } from './clip-display.ts';
import { h } from './dom.ts';
import { number } from './format.ts';
import type { OpenedRollout } from './open-rollout.ts';

export type Scale = 'none' | 'logprob' | 'truncated' | 'advantage' | 'ratio' | 'clip' | 'entropy' | 'difference';

export const scales: readonly (readonly [Scale, string])[] = [
  ['none', 'nothing'],
  ['logprob', 'log-prob'],
  ['truncated', 'truncated log-prob'],
  ['advantage', 'advantage'],
  ['ratio', 'ratio'],
  ['clip', 'clip and trust region'],
  ['entropy', 'entropy'],
  ['difference', 'log-prob difference (after a replay)'],
];

/** Values of a replay on this device, by token; null where none was sampled. */
export interface ReplayValues {
  logprobs: (number | null)[];
  entropies: (number | null)[];
  /** The weights that they are of, in words. */
  policy: string;
}

export const sources: readonly (readonly [TokenSource, string])[] = [
  ['prompt', 'prompt: plain'],
  ['sampled', 'sampled: solid underline'],
  ['template', 'template: italic, dotted underline'],
  ['observation', 'observation: boxed'],
  ['forced', 'forced: double underline'],
];

/** The value of a scale at a token, and how strongly it is coloured in [-1, 1]; null where there is none. */
export function scaleAt(
  opened: OpenedRollout,
  replay: ReplayValues | null,
  scale: Scale,
  i: number,
): { value: number; weight: number } | null {
  const { episode, advantage } = opened;
  const weigh = (value: number | null | undefined, weight: (value: number) => number) =>
    value === null || value === undefined ? null : { value, weight: Math.max(-1, Math.min(1, weight(value))) };
  if (scale === 'logprob') return weigh(episode.logprobs[i], (v) => -v / 4);
  if (scale === 'truncated') return weigh(episode.truncatedLogprobs[i], (v) => -v / 4);
  if (scale === 'advantage') return episode.mask[i] === 1 ? weigh(advantage, (v) => v / 2) : null;
  // A ratio of e, or of 1/e, has the full colour.
  if (scale === 'ratio') return weigh(clipsOf(opened, replay)[i]?.ratio, (v) => Math.log(v));
  if (scale === 'entropy') return weigh(episode.entropies?.[i] ?? replay?.entropies[i], (v) => v / 2);
  if (scale === 'difference') {
    const own = replay?.logprobs[i];
    const recorded = episode.logprobs[i];
    if (own === null || own === undefined || recorded === null || recorded === undefined) return null;
    const difference = own - recorded;
    // Any difference is visible; the rest grows with its order of magnitude.
    return {
      value: difference,
      weight: difference === 0 ? 0 : Math.min(1, 0.3 + (Math.log10(Math.abs(difference)) + 8) / 10),
    };
  }
  return null;
}

function textNodes(piece: TokenPiece): (Node | string)[] {
  const out: (Node | string)[] = [];
  const symbol = (shown: string, real: string) => out.push(h('span', { class: 'ws', 'data-ws': shown }, real));
  let plain = '';
  const flush = () => {
    if (plain !== '') out.push(plain);
    plain = '';
  };
  for (const character of piece.text) {
    const shown = character === '\n' ? '⏎' : character === '\t' ? '→' : character === ' ' ? '·' : null;
    const hidden = shown === null && /[\p{C}\p{Zl}\p{Zp}\p{Zs}]/u.test(character);
    if (shown === null && !hidden) {
      plain += character;
      continue;
    }
    flush();
    if (shown !== null) symbol(shown, character);
    else
      out.push(
        h(
          'span',
          { class: 'hidden-char' },
          `U+${character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0')}`,
        ),
      );
  }
  flush();
  if (piece.opens.length > 0) out.push(h('span', { class: 'bytes' }, piece.opens.map(byteMark).join('')));
  if (piece.invalid.length > 0) out.push(h('span', { class: 'bytes invalid' }, piece.invalid.map(byteMark).join('')));
  return out;
}

export interface StreamOptions {
  scale: Scale;
  replay: ReplayValues | null;
  /** Index of a token that is marked as the first difference. */
  differsAt?: number | null;
}

/** The element of one token. */
export function tokenElement(opened: OpenedRollout, i: number, options: StreamOptions): HTMLElement {
  const { episode, pieces, findings } = opened;
  const piece = pieces[i]!;
  const at = scaleAt(opened, options.replay, options.scale, i);
  const clip = options.scale === 'clip' ? clipsOf(opened, options.replay)[i] : null;
  const found = findings.some(({ index }) => index === i);
  const classes = [
    'tok',
    `src-${episode.sources[i] ?? 'none'}`,
    episode.mask[i] === 1 ? 'masked' : '',
    piece.control ? 'control' : '',
    piece.closes === null ? '' : 'joined',
    found ? 'found' : '',
    options.differsAt === i ? 'differs' : '',
    clip ? `clip clip-${clip.state}` : '',
    at && options.scale !== 'none' ? (at.weight < 0 ? 'scaled negative' : 'scaled') : '',
  ];
  const element = h('span', { class: classes.filter((name) => name !== '').join(' '), 'data-i': i }, textNodes(piece));
  // The state in words too, for those who neither see the sign nor the colour.
  if (clip && clip.state !== 'open') element.setAttribute('title', clipNames.find(([name]) => name === clip.state)![2]);
  if (at) element.style.setProperty('--w', `${Math.round(Math.abs(at.weight) * 55)}%`);
  return element;
}

/** Tokens [from, to) as one block of text. */
export function tokenRange(opened: OpenedRollout, from: number, to: number, options: StreamOptions): HTMLElement {
  const block = h('div', { class: 'stream', lang: 'de' });
  for (let i = from; i < to; i++) block.append(tokenElement(opened, i, options));
  return block;
}

/** Everything that is known of a token, as names and values. */
export function tokenFacts(opened: OpenedRollout, replay: ReplayValues | null, i: number): [string, string][] {
  const { episode, pieces, advantage, advantageNote, text } = opened;
  const piece = pieces[i]!;
  const bytes = text && text.vocabularySize > episode.ids[i]! ? [...text.bytesOf(episode.ids[i]!)] : [];
  const logprob = episode.logprobs[i] ?? null;
  const facts: [string, string][] = [
    ['Token', `${i} of ${episode.ids.length}`],
    ['Id', String(episode.ids[i])],
    ['Text', JSON.stringify(piece.text)],
  ];
  if (bytes.length > 0)
    facts.push(['Bytes', bytes.map((byte) => byte.toString(16).toUpperCase().padStart(2, '0')).join(' ')]);
  if (piece.closes !== null) facts.push(['Character', `completes ${piece.closes}, begun in an earlier token`]);
  if (piece.opens.length > 0) facts.push(['Character', 'its last character goes on in the next token']);
  facts.push(['Source', episode.sources[i] ?? 'none'], ['Loss mask', String(episode.mask[i])]);
  if (logprob !== null) {
    facts.push(
      ['Log-prob', `${logprob} nats`],
      ['Probability', `${number(100 * Math.exp(logprob), 2)} %`],
      ['Truncated', `${number(episode.truncatedLogprobs[i], 6)} nats`],
    );
  }
  const entropy = episode.entropies?.[i] ?? replay?.entropies[i] ?? null;
  if (entropy !== null) facts.push(['Entropy', `${number(entropy)} nats`]);
  else if (episode.mask[i] === 1)
    facts.push(['Entropy', 'not in this older record; replay the rollout on this device']);
  if (episode.mask[i] === 1)
    facts.push(['Advantage', advantage === null ? advantageNote : `${number(advantage)}, ${advantageNote}`]);
  facts.push(...clipFacts(opened, replay, i));
  const own = replay?.logprobs[i];
  if (own !== null && own !== undefined) {
    const difference = logprob === null ? null : own - logprob;
    facts.push(
      ['Replayed', `${own} nats`],
      ['Difference', difference === 0 ? '0: equal bits' : `${difference?.toExponential(3)}`],
    );
  }
  return facts;
}
