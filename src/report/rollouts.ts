// Shows sample rollouts as token streams, each run of tokens marked by its source.
// Not a selection: it shows what it is given.
// Invariant: the source is readable without colour (letter, weight and underline), and all text is escaped.
import type { TokenSource } from '../rollout/episode.ts';
import { escapeHtml, formatNumber } from './format.ts';
import type { SampleRollout } from './schema.ts';

const SOURCES: Record<TokenSource, { mark: string; meaning: string }> = {
  prompt: { mark: 'P', meaning: 'prompt' },
  template: { mark: 'T', meaning: 'chat template' },
  observation: { mark: 'O', meaning: 'tool observation' },
  sampled: { mark: 'S', meaning: 'sampled by the policy (the only tokens trained on)' },
  forced: { mark: 'F', meaning: 'forced' },
};

interface Run {
  source: TokenSource;
  text: string;
  tokens: number;
}

function runsOf(rollout: SampleRollout): Run[] {
  const runs: Run[] = [];
  for (const { text, source } of rollout.tokens) {
    const last = runs.at(-1);
    if (last?.source === source) {
      last.text += text;
      last.tokens += 1;
    } else runs.push({ source, text, tokens: 1 });
  }
  return runs;
}

function runHtml({ source, text }: Run): string {
  const { mark, meaning } = SOURCES[source];
  // A run that begins with a line break gets its mark on the new line, where its first visible token stands.
  const breaks = /^\n*/.exec(text)![0];
  const shown = escapeHtml(text.slice(breaks.length));
  return `${breaks}<span class="run ${source}" data-mark="${mark}" title="${meaning}">${shown}</span>`;
}

function rolloutHtml(rollout: SampleRollout): string {
  const runs = runsOf(rollout);
  const verdict = rollout.strict ? 'strict success' : 'no strict success';
  const reward =
    rollout.reward === null ? 'not scored: the environment failed' : `reward ${formatNumber(rollout.reward)}`;
  const prompt = runs[0]?.source === 'prompt' ? runs.shift() : undefined;
  const folded = prompt
    ? `<details><summary>prompt (${formatNumber(prompt.tokens)} tokens)</summary>` +
      `<p class="stream">${runHtml(prompt)}</p></details>`
    : '';
  return (
    `<article><h3>${rollout.phase === 'before' ? 'Before' : 'After'}: ${escapeHtml(rollout.taskId)}</h3>` +
    `<p class="muted">${verdict}, ${reward}, seed ${rollout.seed}</p>${folded}` +
    `<p class="stream">${runs.map(runHtml).join('')}</p></article>`
  );
}

/** The section of rollouts with its key; before and after of one task come side by side. */
export function rolloutSection(rollouts: readonly SampleRollout[]): string {
  if (rollouts.length === 0) return '<p class="muted">No rollouts were kept for display.</p>';
  const used = new Set(rollouts.flatMap((rollout) => rollout.tokens.map((token) => token.source)));
  const key = (Object.keys(SOURCES) as TokenSource[])
    .filter((source) => used.has(source))
    .map((s) => `<li><span class="run ${s}" data-mark="${SOURCES[s].mark}">${SOURCES[s].meaning}</span></li>`);
  const tasks = [...new Set(rollouts.map((rollout) => rollout.taskId))];
  const ordered = tasks.flatMap((task) =>
    (['before', 'after'] as const).flatMap((phase) => rollouts.filter((r) => r.taskId === task && r.phase === phase)),
  );
  return (
    '<p>The token stream as it was recorded. Text is decoded for display; nothing was encoded again.</p>' +
    `<ul class="key" aria-label="token sources">${key.join('')}</ul>` +
    `<div class="rollouts">${ordered.map(rolloutHtml).join('\n')}</div>`
  );
}
