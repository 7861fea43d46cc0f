// How the states of clip and trust region look: a sign and a name for each, a count of them, and where they come from.
// Not their computing (src/inspect/clip-states.ts). Invariant: every state that takes a token out has a sign of its own,
// so that none depends on colour.
import { boundsText, type ClipState, type ClipToken, clipStates } from '../src/inspect/clip-states.ts';
import { h } from './dom.ts';
import type { OpenedRollout } from './open-rollout.ts';
import type { ReplayValues } from './token-stream.ts';

export const clipNames: readonly (readonly [ClipState, sign: string, name: string])[] = [
  ['open', '', 'open'],
  ['low', '▾', 'clipped low'],
  ['high', '▴', 'clipped high'],
  ['capped', '⊓', 'capped'],
  ['blocked', '⊘', 'outside the trust region'],
  ['flat', '', 'no advantage'],
  ['out', '∅', 'left out: cut off'],
];

const kept = new WeakMap<OpenedRollout, WeakMap<object, (ClipToken | null)[]>>();
const noReplay = {};

/** The states of a rollout's tokens; empty where the loss or the advantage is not known. */
export function clipsOf(opened: OpenedRollout, replay: ReplayValues | null): readonly (ClipToken | null)[] {
  const { episode, advantage, loss } = opened;
  if (advantage === null || loss === null) return [];
  const own = kept.get(opened) ?? new WeakMap<object, (ClipToken | null)[]>();
  kept.set(opened, own);
  const key = replay ?? noReplay;
  const found = own.get(key) ?? clipStates(episode, replay?.logprobs ?? null, advantage, loss);
  own.set(key, found);
  return found;
}

/** Where ratio and state come from, as a sentence. */
export function clipSource({ loss, advantage, advantageNote }: OpenedRollout, replay: ReplayValues | null): string {
  if (loss === null) return 'Not known: the run has no run-config.json that names its loss.';
  if (advantage === null) return `Not known: no advantage, ${advantageNote}.`;
  if (replay) return `Computed, not recorded: log-probs of a replay with ${replay.policy} against the recorded ones.`;
  return (
    'Computed, not recorded: on the first use of a batch the policy is the sampler, whose log-probs are recorded; ' +
    'so every ratio is 1. For a later policy, replay the rollout with a later checkpoint.'
  );
}

/** Names and values for the token's card. */
export function clipFacts(opened: OpenedRollout, replay: ReplayValues | null, i: number): [string, string][] {
  const clip = clipsOf(opened, replay)[i];
  if (!clip || !opened.loss) return [];
  const [, sign, name] = clipNames.find(([state]) => state === clip.state)!;
  const facts: [string, string][] = [
    ['Ratio', String(Number(clip.ratio.toPrecision(7)))],
    ['Clip', `${sign} ${name}`.trim()],
  ];
  if (clip.divergence !== null) facts.push(['Divergence', String(Number(clip.divergence.toPrecision(5)))]);
  facts.push(['Bounds', boundsText(opened.loss)]);
  return facts;
}

/** Counts of all states with their signs, and where they come from. */
export function clipLegend(opened: OpenedRollout, replay: ReplayValues | null): HTMLElement {
  const clips = clipsOf(opened, replay);
  const items = clipNames.flatMap(([state, , name]) => {
    const count = clips.filter((clip) => clip?.state === state).length;
    if (count === 0) return [];
    return [h('span', { 'data-clip': state }, h('span', { class: `tok clip clip-${state}` }, name), `: ${count}`)];
  });
  return h(
    'div',
    { class: 'clip-legend', 'data-result': 'clip' },
    h('div', { class: 'legend' }, items),
    h('p', { class: 'hint' }, clipSource(opened, replay)),
  );
}
