// The view of one rollout: its token stream by turns, each token's facts, calls, verdict and findings.
// Not the group (group-view.ts). Invariant: the address names the rollout and the chosen token.
import type { ToolCallRecord } from '../src/rollout/episode.ts';
import { clipLegend } from './clip-display.ts';
import { checkbox, fill, h, labelled, select } from './dom.ts';
import { groupLines, type OpenedRollout, openRollout } from './open-rollout.ts';
import { runOf, type View } from './page.ts';
import { replayFor } from './replay-store.ts';
import { findingsCard, recordCard, tokenCard, verdictCard } from './rollout-side.ts';
import { note, placeUrl } from './router.ts';
import { fileTitle } from './run-source.ts';
import { type Scale, scales, sources, tokenRange } from './token-stream.ts';

export function callLine(call: ToolCallRecord): HTMLElement {
  const state = call.dropped
    ? 'dropped: over budget'
    : call.status !== 'ok'
      ? `not dispatched: ${call.status.replaceAll('_', ' ')}`
      : call.environmentError
        ? 'the environment reported an error'
        : 'ok';
  const bad = state !== 'ok';
  return h(
    'li',
    { class: bad ? 'call bad-call' : 'call' },
    h('span', { class: 'status' }, bad ? `✗ ${state}` : '✓ ok'),
    h('code', null, `${call.name ?? '(no name)'} ${call.argumentsJson ?? ''}`),
    call.observation === null ? null : h('span', null, '→ ', h('code', null, call.observation)),
  );
}

interface TurnBlock {
  title: string;
  from: number;
  to: number;
  calls: readonly ToolCallRecord[];
}

/** The prompt and the turns, each with what follows it up to the next. */
function blocks({ episode }: OpenedRollout): TurnBlock[] {
  const { promptLength, turns, ids } = episode;
  const ends = { stop: 'ended its turn', end: 'ended the episode', length: 'cut at the token budget' };
  return [
    {
      title: `Prompt, ${promptLength} tokens`,
      from: 0,
      to: Math.min(promptLength, turns[0]?.span[0] ?? ids.length),
      calls: [],
    },
    ...turns.map((turn, i) => {
      const from = i === 0 ? Math.min(promptLength, turn.span[0]) : turn.span[0];
      const to = turns[i + 1]?.span[0] ?? ids.length;
      return {
        title: `Turn ${i + 1}: ${turn.span[1] - turn.span[0]} sampled tokens, ${ends[turn.stop]}`,
        from,
        to,
        calls: turn.calls,
      };
    }),
  ];
}

/** The question in a prompt, for when the prompt itself is folded away; null where none is found. */
export function questionOf({ pieces, episode }: OpenedRollout): string | null {
  const text = pieces.slice(0, episode.promptLength).map((piece) => piece.text);
  const from = text.lastIndexOf('user');
  const to = text.indexOf('<|im_end|>', from);
  return from < 0 || to < 0
    ? null
    : text
        .slice(from + 1, to)
        .join('')
        .trim();
}

function promptSummary(opened: OpenedRollout, title: string): HTMLElement {
  const question = questionOf(opened);
  return h('summary', null, h('b', null, title), question === null ? null : h('span', { class: 'question' }, question));
}

/** Choices that hold from one rollout to the next. */
const kept = { scale: 'none' as Scale, mask: true, whitespace: true };

export const rolloutView: View = (page, params, main) => {
  const { source, index } = runOf(page, params);
  const file = params['file'] ?? '';
  const line = Number(params['line'] ?? 1);
  if (!source) return () => {};
  fill(main, h('p', { class: 'hint' }, 'Reading the rollout …'));
  let gone = false;

  function draw(opened: OpenedRollout): void {
    const { episode } = opened;
    const replay = replayFor(opened);
    let chosen: number | null = params['token'] === undefined ? null : Number(params['token']);
    const card = tokenCard();
    const stream = h('div', {
      class: 'turns',
      role: 'application',
      tabindex: 0,
      'aria-label': 'Token stream: arrow keys move from token to token',
    });

    const clipNote = h('div', null);
    function paint(): void {
      fill(clipNote, kept.scale === 'clip' || kept.scale === 'ratio' ? clipLegend(opened, replay) : null);
      const options = { scale: kept.scale, replay };
      stream.classList.toggle('show-mask', kept.mask);
      stream.classList.toggle('show-ws', kept.whitespace);
      fill(
        stream,
        blocks(opened).map(({ title, from, to, calls }, n) => {
          const tokens = tokenRange(opened, from, to, options);
          if (n === 0) {
            const inside = chosen !== null && chosen < to;
            return h('details', { class: 'turn', open: inside }, promptSummary(opened, title), tokens);
          }
          const list = h('ul', { class: 'calls', 'aria-label': 'Tool calls' }, calls.map(callLine));
          return h('section', { class: 'turn' }, h('h2', null, title), tokens, calls.length > 0 ? list : null);
        }),
      );
      if (chosen !== null) choose(chosen, false);
    }
    function choose(i: number, scroll: boolean): void {
      if (!(i >= 0 && i < episode.ids.length)) return;
      stream.querySelector('.tok.chosen')?.classList.remove('chosen');
      chosen = i;
      const element = stream.querySelector<HTMLElement>(`[data-i="${i}"]`);
      const closed = element?.closest('details');
      if (closed) closed.open = true;
      element?.classList.add('chosen');
      if (scroll) element?.scrollIntoView({ block: 'center' });
      card.show(opened, replay, i);
      note('rollout', { run: index || null, file, line, token: i });
    }
    const tokenAt = (event: Event) => {
      const element = (event.target as Element).closest<HTMLElement>('.tok');
      return element ? Number(element.dataset['i']) : null;
    };
    stream.addEventListener('mouseover', (event) => {
      const i = tokenAt(event);
      if (i !== null) card.show(opened, replay, i);
    });
    stream.addEventListener('mouseleave', () => card.show(opened, replay, chosen));
    stream.addEventListener('click', (event) => {
      const i = tokenAt(event);
      if (i !== null) choose(i, false);
    });
    stream.addEventListener('keydown', (event) => {
      const at = chosen ?? -1;
      const turn = (by: number) => {
        const starts = blocks(opened).map(({ from }) => from);
        return by > 0 ? (starts.find((start) => start > at) ?? at) : (starts.findLast((start) => start < at) ?? 0);
      };
      const moves: Record<string, number> = {
        ArrowRight: at + 1,
        ArrowLeft: at - 1,
        ArrowDown: turn(1),
        ArrowUp: turn(-1),
        Home: 0,
        End: episode.ids.length - 1,
      };
      const to = moves[event.key];
      if (to === undefined) return;
      event.preventDefault();
      choose(to, true);
    });

    const group = groupLines(source!, file, episode.group);
    const at = group.findIndex((row) => row.line === line);
    const rows = source!.files.get(file) ?? [];
    const neighbour = (by: number) => rows[rows.findIndex((row) => row.line === line) + by];
    const step = (by: number, label: string) => {
      const row = neighbour(by);
      return row
        ? h('a', { href: placeUrl('rollout', { run: index || null, file, line: row.line }) }, label)
        : h('span', { class: 'off' }, label);
    };
    const replayLink = placeUrl('device', { tab: 'replay', run: index || null, file, line });
    fill(
      main,
      h('h1', null, `${fileTitle(file)}, ${episode.taskId}, member ${episode.member}`),
      h(
        'nav',
        { class: 'bar-line', 'aria-label': 'Rollouts nearby' },
        step(-1, '← previous'),
        step(1, 'next →'),
        group.length > 1
          ? h(
              'a',
              { href: placeUrl('group', { run: index || null, file, group: episode.group }) },
              `side by side with its group of ${group.length} (this is ${at + 1})`,
            )
          : null,
        h('a', { href: replayLink }, 'replay on this device'),
      ),
      h(
        'div',
        { class: 'bar-line controls' },
        labelled(
          'Colour by',
          select(scales, kept.scale, (scale) => {
            kept.scale = scale;
            paint();
          }),
        ),
        checkbox('loss mask (bar above)', kept.mask, (mask) => {
          kept.mask = mask;
          paint();
        }),
        checkbox('whitespace', kept.whitespace, (whitespace) => {
          kept.whitespace = whitespace;
          paint();
        }),
        h(
          'span',
          { class: 'legend' },
          sources.map(([name, label]) => h('span', { class: `tok src-${name}` }, label)),
        ),
      ),
      clipNote,
      h(
        'div',
        { class: 'split' },
        stream,
        h(
          'aside',
          { class: 'side', tabindex: 0, 'aria-label': 'Facts' },
          card.element,
          findingsCard(opened, (i) => choose(i, true)),
          verdictCard(opened),
          recordCard(opened),
        ),
      ),
    );
    card.show(opened, replay, chosen);
    paint();
    if (chosen !== null) choose(chosen, true);
  }

  openRollout(source, file, line).then(
    (opened) => {
      if (!gone) draw(opened);
    },
    (error: unknown) => {
      fill(
        main,
        h('h1', null, `${fileTitle(file)}, line ${line}`),
        h('p', { class: 'hint' }, 'This rollout cannot be shown.'),
      );
      page.report(error);
    },
  );
  return () => {
    gone = true;
  };
};
