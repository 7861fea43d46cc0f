// What every view is handed: the runs, the served policy, the errors' banner. Not a global: main.ts makes it.
// Invariant: an error that reaches `report` is shown with its text, and the page goes on.
import type { RunListing } from '../src/inspect/api.ts';
import type { Emitter } from './dom.ts';
import type { Served } from './http-source.ts';
import type { RunSource } from './run-source.ts';

export interface Page {
  runs: RunSource[];
  /** Null for a page without a server. */
  listing: RunListing | null;
  link: Served['link'] | null;
  /** Runs were added. */
  changed: Emitter;
  addFiles(files: readonly File[]): Promise<void>;
  report(error: unknown): void;
}

/** Draws a view into `main`; gives what ends its subscriptions. */
export type View = (page: Page, params: Record<string, string>, main: HTMLElement) => () => void;

/** The run that the address names; the first one where it names none. */
export function runOf(page: Page, params: Record<string, string>): { source: RunSource | null; index: number } {
  const index = Number(params['run'] ?? 0);
  return { source: page.runs[index] ?? null, index };
}
