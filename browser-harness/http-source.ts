// A run that `shaderl inspect` serves: read over HTTP, kept up to date by the live link.
// Not a writer. Invariant: after a lost connection everything is asked for anew, so nothing is missed.
import type { JournalState, LiveMessage, RolloutFileRows, RunListing, RunOverview } from '../src/inspect/api.ts';
import { type FileSource, memorySource } from '../src/model/file-source.ts';
import { loadText } from '../src/model/text.ts';
import { runConfigSchema } from '../src/run-config.ts';
import { createEmitter, type Emitter } from './dom.ts';
import { addRows, type RunSource, readingText } from './run-source.ts';

const base = new URL('.', location.href);
const at = (path: string) => new URL(path, base);

async function fetched(path: string): Promise<Response> {
  const response = await fetch(at(path));
  if (response.ok) return response;
  const body = (await response.json().catch(() => null)) as { error?: string } | null;
  throw new Error(
    `asking the server for ${path.split('?')[0]}: found status ${response.status} (${body?.error ?? 'no reason'}); ` +
      'wanted the file. Look at the terminal of `shaderl inspect`, or reload the page.',
  );
}

const json = async <T>(path: string) => (await (await fetched(path)).json()) as T;

async function* jsonLines<T>(path: string): AsyncGenerator<T> {
  const body = (await fetched(path)).body;
  if (!body) return;
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (held + value).split('\n');
    held = parts.pop()!;
    for (const part of parts) yield JSON.parse(part) as T;
  }
}

/** A file source over a fixed list of files, read whole when first needed. */
export function fetchSource(label: string, files: ReadonlyMap<string, string>): FileSource {
  const bytes = new Map<string, Promise<Uint8Array<ArrayBuffer>>>();
  const load = (name: string) => {
    const path = files.get(name);
    if (path === undefined) return null;
    const kept = bytes.get(name) ?? fetched(path).then(async (r) => new Uint8Array(await r.arrayBuffer()));
    bytes.set(name, kept);
    return kept;
  };
  return {
    label,
    list: async () => [...files.keys()].sort(),
    size: async (name) => (await load(name))?.length ?? null,
    async read(name, offset, length) {
      const found = await load(name);
      return memorySource(label, found ? { [name]: found } : {}).read(name, offset, length);
    },
  };
}

async function openRun(index: number, listed: { name: string; label: string }): Promise<RunSource> {
  const overview = await json<RunOverview>(`api/${index}/overview`);
  const journal = await json<JournalState>(`api/${index}/journal`);
  const parsed = runConfigSchema.safeParse(overview.config);
  const source: RunSource = {
    ...listed,
    config: parsed.success ? parsed.data : null,
    journal: journal.entries,
    experiment: overview.experiment,
    faults: [...(journal.fault === null ? [] : [journal.fault]), ...(overview.experiment?.faults ?? [])],
    evaluations: overview.evaluations,
    checkpoints: overview.checkpoints,
    files: new Map(),
    loading: true,
    text: null,
    textNote: readingText,
    changed: createEmitter(),
    readLine: async (file, row) => {
      const query = new URLSearchParams({ path: file, offset: String(row.offset), length: String(row.bytes) });
      return (await fetched(`api/${index}/file?${query}`)).text();
    },
    readEvaluation: async (path) => (await fetched(`api/${index}/file?${new URLSearchParams({ path })}`)).text(),
    search: (text) => jsonLines(`api/${index}/search?${new URLSearchParams({ text })}`),
    adapterFiles: (folder) => {
      const names = ['adapter_config.json', 'adapter_model.safetensors'];
      const path = (name: string) => `api/${index}/file?${new URLSearchParams({ path: `${folder}/${name}` })}`;
      return fetchSource(folder, new Map(names.map((name) => [name, path(name)])));
    },
  };
  void loadRunText(source, index, overview.tokenizerFiles);
  void readRows(source, index, []);
  return source;
}

async function loadRunText(source: RunSource, index: number, names: readonly string[]): Promise<void> {
  if (!names.includes('tokenizer.json')) {
    const { config } = source;
    source.textNote = config
      ? `the run's model ${config.model} has no tokenizer.json that can be read from here`
      : 'the run has no run-config.json that names its model';
  } else {
    const paths = names.map((name) => [name, `api/${index}/tokenizer/${name}`] as const);
    try {
      source.text = await loadText(fetchSource(`${source.name}'s model`, new Map(paths)));
      source.textNote = `tokenizer of ${source.config?.model ?? 'the run'}`;
    } catch (error) {
      source.textNote = (error as Error).message;
    }
  }
  source.changed.emit();
}

async function readRows(source: RunSource, index: number, files: readonly string[]): Promise<void> {
  const query = new URLSearchParams(files.map((file) => ['file', file]));
  try {
    for await (const rows of jsonLines<RolloutFileRows>(`api/${index}/rollouts?${query}`)) {
      addRows(source, rows);
      source.changed.emit();
    }
  } catch (error) {
    source.faults.push((error as Error).message);
  }
  source.loading = false;
  source.changed.emit();
}

export type LinkState = 'connecting' | 'live' | 'lost';

export interface Served {
  runs: RunSource[];
  listing: RunListing;
  link: { state: LinkState; changed: Emitter };
}

/** Takes a message of the server into the run that it is of. */
function apply(runs: readonly RunSource[], message: LiveMessage): void {
  const source = runs[message.run];
  if (!source) return;
  if (message.kind === 'journal') {
    if (message.from <= source.journal.length) source.journal.splice(message.from, Infinity, ...message.entries);
    if (message.fault !== null && !source.faults.includes(message.fault)) source.faults.push(message.fault);
  } else if (message.kind === 'experiment') {
    source.experiment = message.experiment;
    for (const fault of message.experiment.faults) if (!source.faults.includes(fault)) source.faults.push(fault);
  } else {
    source.evaluations = message.evaluations;
    source.checkpoints = message.checkpoints;
    const fresh = message.rolloutFiles.filter((file) => !source.files.has(file));
    if (fresh.length > 0) void readRows(source, message.run, fresh);
  }
  source.changed.emit();
}

/** Whether the page came from `shaderl inspect`; a page from a disk has no server. */
export const isServed = location.protocol === 'http:' && /^\/[0-9a-f]{32}\/$/.test(base.pathname);

/** Opens all runs of the server and the live link. */
export async function openServed(): Promise<Served> {
  const listing = await json<RunListing>('api/runs');
  const runs = await Promise.all(listing.runs.map((listed, index) => openRun(index, listed)));
  const link: Served['link'] = { state: 'connecting', changed: createEmitter() };
  const become = (state: LinkState) => {
    link.state = state;
    link.changed.emit();
  };
  let waitMs = 500;
  const connect = () => {
    const address = at('live');
    address.protocol = 'ws:';
    const socket = new WebSocket(address);
    socket.addEventListener('open', () => {
      const wasLost = link.state === 'lost';
      waitMs = 500;
      become('live');
      if (wasLost) void catchUp();
    });
    socket.addEventListener('message', ({ data }) => apply(runs, JSON.parse(String(data)) as LiveMessage));
    socket.addEventListener('close', () => {
      become('lost');
      setTimeout(connect, waitMs);
      waitMs = Math.min(waitMs * 2, 8000);
    });
  };
  async function catchUp(): Promise<void> {
    for (const index of runs.keys()) {
      const journal = await json<JournalState>(`api/${index}/journal`);
      apply(runs, { kind: 'journal', run: index, from: 0, ...journal });
      const overview = await json<RunOverview>(`api/${index}/overview`);
      apply(runs, { kind: 'files', run: index, ...overview });
      const { experiment } = overview;
      if (experiment) apply(runs, { kind: 'experiment', run: index, experiment });
    }
  }
  connect();
  return { runs, listing, link };
}
