// Small pieces of an experiment's HTML report that its sections share.
// Not a section. Invariant: text from the run is escaped.
import { escapeHtml } from '../report/format.ts';

export const list = (lines: readonly string[]) =>
  `<ul>${lines.map((line) => `<li>${escapeHtml(line)}</li>`).join('')}</ul>`;
export const paragraph = (text: string) => `<p>${escapeHtml(text)}</p>`;
export const muted = (text: string) => `<p class="muted">${escapeHtml(text)}</p>`;
export const sideBySide = (...parts: string[]) => `<div class="figures tables">${parts.join('')}</div>`;

/** What a policy of the experiment is called. */
export const policyName = (step: number) => (step === 0 ? 'baseline' : `step ${step}`);
