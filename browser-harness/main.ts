// The page: opens what the server has or what is dropped, draws the view that the address names, shows errors.
// Not a view. Invariant: one view is drawn at a time, and the one before it has given up its subscriptions.
import { z } from 'zod';
import './style.css';
import './tokens.css';
import './views.css';
import { compareView } from './compare-view.ts';
import { onDeviceLost } from './device-client.ts';
import { deviceView } from './device-view.ts';
import { createEmitter, fill, h, select } from './dom.ts';
import { createDropped, type DroppedRun } from './dropped-source.ts';
import { groupView } from './group-view.ts';
import { isServed, openServed } from './http-source.ts';
import type { Page, View } from './page.ts';
import { qualifyView } from './qualify-view.ts';
import { rolloutView } from './rollout-view.ts';
import { rolloutsView } from './rollouts-view.ts';
import { go, placeUrl, readPlace } from './router.ts';
import { runView } from './run-view.ts';
import { chooseTheme, onSystemTheme, themeNow, themes } from './theme.ts';

// The page's policy forbids code from strings, which zod would otherwise try to compile.
z.config({ jitless: true });

const views: Record<string, { view: View; tab: string; needsRun: boolean }> = {
  run: { view: runView, tab: 'run', needsRun: true },
  rollouts: { view: rolloutsView, tab: 'rollouts', needsRun: true },
  rollout: { view: rolloutView, tab: 'rollouts', needsRun: true },
  group: { view: groupView, tab: 'rollouts', needsRun: true },
  compare: { view: compareView, tab: 'compare', needsRun: true },
  device: { view: deviceView, tab: 'device', needsRun: false },
  qualify: { view: qualifyView, tab: 'qualify', needsRun: false },
};
const tabs = [
  ['run', 'Run'],
  ['rollouts', 'Rollouts'],
  ['compare', 'Compare'],
  ['device', 'Device'],
  ['qualify', 'Qualify'],
] as const;

function dropHint(page: Page): HTMLElement {
  const picker = h('input', { type: 'file', multiple: true, id: 'pick' });
  picker.addEventListener('change', () => void page.addFiles([...(picker.files ?? [])]).catch(page.report));
  return h(
    'section',
    { class: 'card drop' },
    h('h1', null, 'Nothing is open'),
    h(
      'p',
      null,
      'Drop a rollouts file (.jsonl) here, with journal.jsonl, run-config.json, ' +
        'evaluations or a tokenizer.json if you have them. Nothing leaves this page.',
    ),
    h('label', { class: 'field', for: 'pick' }, h('span', null, 'or pick files'), picker),
    h('p', { class: 'hint' }, 'A whole run, live: shaderl inspect <run>'),
  );
}

const banner = h('div', { class: 'banner', role: 'alert', hidden: true });
function report(error: unknown): void {
  const text = error instanceof Error ? error.message : String(error);
  const close = h(
    'button',
    { type: 'button', 'aria-label': 'Close the message', onclick: () => (banner.hidden = true) },
    '×',
  );
  fill(banner, h('span', null, text), close);
  banner.hidden = false;
}

const page: Page = { runs: [], listing: null, link: null, changed: createEmitter(), addFiles, report };
const nav = h('nav', { class: 'tabs', 'aria-label': 'Views' });
const runChoice = h('div', { class: 'run-choice' });
const link = h('span', { class: 'link-state', role: 'status' });
const faults = h('div', { class: 'faults', role: 'status' });
const main = h('main', { id: 'main', tabindex: -1 });
let leave: () => void = () => {};
let watched = -1;
let offFaults: () => void = () => {};
let dropped: DroppedRun | null = null;

async function addFiles(files: readonly File[]): Promise<void> {
  if (files.length === 0) return;
  if (!dropped) {
    dropped = createDropped(files[0]!.name);
    page.runs.push(dropped.source);
  }
  await dropped.add(files);
  const index = page.runs.indexOf(dropped.source);
  page.changed.emit();
  go(dropped.source.journal.length > 0 ? 'run' : 'rollouts', { run: index || null });
  draw();
}

function showFaults(): void {
  const list = page.runs[watched]?.faults ?? [];
  fill(
    faults,
    list.map((text) => h('p', null, text)),
  );
}

function draw(): void {
  leave();
  const { view, params } = readPlace(location.hash);
  const shown = views[view] ?? views['run']!;
  const index = Number(params['run'] ?? 0);
  const run = index || null;
  fill(
    nav,
    tabs.map(([name, label]) =>
      h('a', { href: placeUrl(name, { run }), 'aria-current': name === shown.tab ? 'page' : null }, label),
    ),
  );
  const names = page.runs.map((source, i) => [String(i), source.name] as const);
  fill(
    runChoice,
    names.length > 1 ? select(names, String(index), (value) => go(shown.tab, { run: Number(value) || null })) : null,
  );
  runChoice.querySelector('select')?.setAttribute('aria-label', 'Run');
  if (watched !== index) {
    offFaults();
    watched = index;
    offFaults = page.runs[index]?.changed.on(showFaults) ?? (() => {});
  }
  showFaults();
  document.title = `${page.runs[index]?.name ?? 'shaderl'}: ${shown.tab}`;
  if (shown.needsRun && !page.runs[index]) {
    fill(main, dropHint(page));
    leave = () => {};
    return;
  }
  leave = shown.view(page, params, main);
}

function drawLink(): void {
  const state = page.link?.state;
  const words = { connecting: '○ connecting', live: '● live', lost: '✗ connection lost, trying again' };
  link.textContent = state ? words[state] : 'no server';
  link.className = `link-state ${state ?? ''}`;
}

async function start(): Promise<void> {
  const theme = select(themes, themeNow(), (value) => {
    chooseTheme(value);
    draw();
  });
  theme.setAttribute('aria-label', 'Colours');
  fill(
    document.getElementById('app')!,
    h('header', { class: 'top' }, h('span', { class: 'brand' }, 'shaderl inspect'), nav, runChoice, link, theme),
    banner,
    faults,
    main,
  );
  chooseTheme(themeNow());
  // The curves take their colours when they are drawn.
  onSystemTheme(draw);
  drawLink();
  if (isServed) {
    fill(main, h('p', { class: 'hint' }, 'Reading the run …'));
    const served = await openServed();
    Object.assign(page, served);
    served.link.changed.on(drawLink);
    drawLink();
  }
  window.addEventListener('hashchange', () => {
    banner.hidden = true;
    draw();
    window.scrollTo(0, 0);
  });
  draw();
}

window.addEventListener('dragover', (event) => event.preventDefault());
window.addEventListener('drop', (event) => {
  event.preventDefault();
  void addFiles([...(event.dataTransfer?.files ?? [])]).catch(report);
});
onDeviceLost(report);
window.addEventListener('unhandledrejection', ({ reason }) => report(reason));
start().catch(report);
