import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseHTML } from 'linkedom';
import { afterAll, describe, expect, it } from 'vitest';
import { smoothingWindow } from '../../src/report/figures.ts';
import { escapeHtml, formatNumber, formatPercent, formatPoints, formatSeconds } from '../../src/report/format.ts';
import { renderReportHtml } from '../../src/report/html.ts';
import { renderPlotSvg } from '../../src/report/picture.ts';
import { writeReport } from '../../src/report/write-node.ts';
import { buildReport } from '../../src/report.ts';
import { reportInput } from '../support/report-fixture.ts';

const folder = mkdtempSync(join(tmpdir(), 'shaderl-report-'));
afterAll(() => rmSync(folder, { recursive: true }));

const input = reportInput();
const report = buildReport(input);
const html = renderReportHtml(report);
const { document } = parseHTML(html);
const text = (selector: string) => document.querySelector(selector)?.textContent ?? '';

describe('buildReport', () => {
  it('says what was found, from the paired comparison', () => {
    expect(report.headline).toMatch(
      /^Over 60 optimizer steps, strict success rose: \d\d\.\d\u00A0% before, \d\d\.\d\u00A0% after \(\+\d\d\.\d\u00A0points; 95 % paired interval \+/,
    );
    expect(report.comparison!.difference).toMatchObject({ resamples: 10_000, items: 64, samples: 128, seed: 42 });
    expect(report.cannotShow.join(' ')).toContain('seed 42');
    expect(report.cannotShow.join(' ')).toContain('software adapter');
  });

  it('does not claim a rise when the interval holds zero', () => {
    const same = buildReport({ ...input, after: input.before });
    expect(same.headline).toContain('did not measurably change');
    expect(same.canShow[0]).toContain('this is not evidence that there is none');
    expect(same.cannotShow.join(' ')).toContain('only 0 items changed');
  });

  it('says that a fall is a fall', () => {
    expect(buildReport({ ...input, before: input.after, after: input.before }).headline).toContain(
      'strict success fell',
    );
  });

  it('is never eligible for release, whatever it is given', () => {
    const forged = { ...input, release_eligible: true, config: { release_eligible: true } };
    expect(buildReport(forged).release_eligible).toBe(false);
    expect(text('.badge')).toBe('release_eligible: false');
  });

  it('refuses steps that are not in order', () => {
    const twice = { ...input, steps: [...input.steps, input.steps[0]!] };
    expect(() => buildReport(twice)).toThrow(/found step 1 after step 60; wanted integer steps in ascending order/);
  });
});

describe('renderReportHtml', () => {
  it('gives the same bytes for the same report', () => {
    expect(renderReportHtml(buildReport(reportInput()))).toBe(html);
  });

  it('needs nothing from outside and runs nothing', () => {
    expect(document.querySelectorAll('script, link, img, iframe, object, embed, base')).toHaveLength(0);
    expect(html).not.toMatch(/\b(?:src|href|action)\s*=|url\(|@import|javascript:/i);
    for (const address of html.match(/https?:\/\/[^"' <]+/g) ?? []) {
      expect(address).toBe('http://www.w3.org/2000/svg'); // the name space, which is no request
    }
  });

  it('escapes text of the run everywhere', () => {
    const evil = '</style></title><script>alert(1)</script><img src=x onerror="a()">\'&\u0000';
    const edited = reportInput();
    edited.title = evil;
    edited.task = { description: evil, facts: [evil] };
    edited.config = { [evil]: evil };
    edited.device = { ...edited.device, name: evil, facts: [[evil, evil]] };
    edited.checkpoints[0]!.path = evil;
    edited.audit.points[0]!.name = evil;
    edited.rollouts[0]!.taskId = evil;
    edited.rollouts[0]!.tokens.push({ text: evil, source: 'sampled' });
    edited.steps[0]!.metrics[evil] = 1;
    const made = buildReport(edited);
    for (const page of [renderReportHtml(made), renderPlotSvg(made)]) {
      expect(page).not.toContain('<script');
      expect(page).not.toContain('<img');
      expect(page).not.toContain('\u0000');
    }
    const { document } = parseHTML(renderReportHtml(made));
    expect(document.querySelector('h1')!.textContent).toBe(evil.replace('\u0000', '\uFFFD'));
  });

  it('draws every figure with a name, an axis label with its unit, and a caption', () => {
    const figures = [...document.querySelectorAll('figure')];
    expect(figures.map((figure) => figure.id)).toEqual([
      ...['learning', 'rates', 'difference', 'kl', 'entropy', 'clip', 'length', 'capped', 'tool-errors', 'tool-calls'],
      ...['grad-norm', 'learning-rate', 'times'],
    ]);
    for (const figure of figures) {
      expect(figure.querySelector('svg[role="img"] > title')!.textContent!.length).toBeGreaterThan(1);
      expect(figure.querySelector('figcaption')!.textContent!.length).toBeGreaterThan(10);
      expect(figure.querySelectorAll('[aria-label$="axis label"] text').length).toBeGreaterThanOrEqual(1);
    }
    const label = (id: string) =>
      [...document.querySelectorAll(`#${id} [aria-label$="axis label"]`)].map((g) => g.textContent);
    expect(label('kl').join()).toContain('nats per token');
    expect(label('times').join()).toContain('(s)');
  });

  it('draws curves whose points are the recorded values, and no NaN', () => {
    expect(html).not.toMatch(/NaN|Infinity|undefined/);
    expect(document.querySelectorAll('#kl [aria-label="dot"] circle')).toHaveLength(60);
    const path = document.querySelector('#learning-rate [aria-label="line"] path')!.getAttribute('d')!;
    const points = [...path.matchAll(/(-?[\d.]+),(-?[\d.]+)/g)].map((m) => [Number(m[1]), Number(m[2])]);
    const [first, last] = [points[0]!, points.at(-1)!];
    expect(last[0]! > first[0]! && last[1]! > first[1]!).toBe(true); // to the right, and down: the rate decays
  });

  it('leaves out values that are not finite, and names what was not recorded', () => {
    const edited = reportInput(5);
    for (const step of edited.steps) delete step.metrics['kl'];
    edited.steps[1]!.metrics['entropy'] = Number.NaN;
    const page = renderReportHtml(buildReport(edited));
    const { document } = parseHTML(page);
    expect(document.querySelector('#kl')).toBe(null);
    expect(page).toContain('Not recorded in this run: KL to the reference.');
    expect(document.querySelectorAll('#entropy [aria-label="dot"] circle')).toHaveLength(4);
  });

  it('keeps every value inside its figure, also rewards outside [0, 1]', () => {
    const edited = reportInput(20);
    edited.steps[3]!.metrics['reward'] = 2.5;
    edited.steps[4]!.metrics['reward'] = -1;
    edited.steps[4]!.metrics['kl'] = -0.01;
    const { document } = parseHTML(renderReportHtml(buildReport(edited)));
    for (const figure of document.querySelectorAll('figure')) {
      const height = Number(figure.querySelector('svg.plot')!.getAttribute('data-height'));
      for (const dot of figure.querySelectorAll('[aria-label="dot"] circle')) {
        const y = Number(dot.getAttribute('cy'));
        expect(y >= 0 && y <= height).toBe(true);
      }
    }
  });

  it('works for a run of one step without evaluations, checkpoints or rollouts', () => {
    const bare = { ...reportInput(1), before: null, after: null, rollouts: [], checkpoints: [] };
    const page = renderReportHtml(buildReport(bare));
    expect(page).toContain('there is no result to report');
    expect(page).not.toMatch(/NaN|undefined/);
    expect(renderReportHtml(buildReport({ ...bare, steps: [] }))).toContain('0 optimizer steps');
  });

  it('marks token sources by a letter as well as by colour', () => {
    const marks = [...document.querySelectorAll('.stream .run')].map((run) => run.getAttribute('data-mark'));
    expect(new Set(marks)).toEqual(new Set(['P', 'S', 'T', 'O']));
    const shown = [...document.querySelectorAll('.rollouts article')].map((a) => a.querySelector('h3')!.textContent);
    expect(shown).toEqual(['Before: final-017', 'After: final-017']);
    const streams = [...document.querySelectorAll('.rollouts article')[1]!.querySelectorAll('.stream')];
    expect(streams.map((stream) => stream.textContent).join('')).toBe(
      input.rollouts[1]!.tokens.map((token) => token.text).join(''),
    );
  });

  it('has tables with captions and header cells, and lists every step with its journal entry', () => {
    for (const table of document.querySelectorAll('table')) {
      expect(table.querySelector('caption')!.textContent!.length).toBeGreaterThan(3);
      expect(table.querySelectorAll('thead th').length).toBeGreaterThan(0);
    }
    expect(html).toContain('<th scope="row">60</th>');
    expect(html).toContain(`62 (${report.steps[59]!.journal!.hash.slice(0, 12)})`);
  });
});

describe('renderPlotSvg', () => {
  const svg = renderPlotSvg(report);

  it('is one standalone SVG with the curve and both intervals', () => {
    expect(svg).toMatch(/^<svg xmlns="http:\/\/www\.w3\.org\/2000\/svg" class="picture"/);
    const { document } = parseHTML(`<!doctype html><body>${svg}</body>`);
    expect(document.querySelectorAll('svg.picture > svg.plot')).toHaveLength(3);
    expect(svg).toContain('prefers-color-scheme: dark');
    expect(svg).not.toMatch(/NaN|undefined|href/);
    expect(renderPlotSvg(buildReport(reportInput()))).toBe(svg);
  });

  it('is well-formed XML: no attribute twice in one element', () => {
    for (const [tag] of svg.matchAll(/<[a-zA-Z][^>]*>/g)) {
      const names = [...tag.matchAll(/\s([\w:-]+)="/g)].map((match) => match[1]);
      expect(new Set(names).size).toBe(names.length);
    }
  });
});

describe('writeReport', () => {
  it('writes the JSON and the HTML, and names a folder that cannot be written', () => {
    const paths = writeReport(join(folder, 'run'), report);
    expect(readFileSync(paths.html, 'utf8')).toBe(html);
    expect(JSON.parse(readFileSync(paths.json, 'utf8'))).toMatchObject({
      schema: 'shaderl.report/1',
      release_eligible: false,
    });
    expect(existsSync(paths.json)).toBe(true);
    expect(() => writeReport(join(paths.html, 'below'), report)).toThrow(/writing the report into .*report\.html/);
  });
});

describe('number formats', () => {
  it('are plain, signed where they are differences, and never lose the sign', () => {
    expect([formatNumber(-1234567), formatNumber(0.00012), formatNumber(12.34567), formatNumber(0)]).toEqual([
      '\u22121\u202F234\u202F567',
      '1.20\u202F×\u202F10⁻⁴',
      '12.35',
      '0',
    ]);
    expect([formatPercent(0.4125), formatPoints(0.3125), formatPoints(-0.02), formatPoints(-0.0001)]).toEqual([
      '41.3\u00A0%',
      '+31.3\u00A0points',
      '\u22122.0\u00A0points',
      '0.0\u00A0points',
    ]);
    expect([formatSeconds(8.26), formatSeconds(252), formatSeconds(7500)]).toEqual([
      '8.3\u00A0s',
      '4\u00A0min 12\u00A0s',
      '2\u00A0h 05\u00A0min',
    ]);
    expect(escapeHtml('<a href="x">\'&')).toBe('&lt;a href=&quot;x&quot;&gt;&#39;&amp;');
    expect([smoothingWindow(4), smoothingWindow(60), smoothingWindow(256)]).toEqual([1, 7, 25]);
  });
});
