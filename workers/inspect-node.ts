// The server of `shaderl inspect`: the built page, the runs' files, and a live link, for one person on this machine.
// Not a file server: see run-folder-node.ts for what can be had. Invariant: every path starts with the start's random
// token, only loopback names are answered, and nothing is ever written.
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { readdir, readFile, stat } from 'node:fs/promises';
import type { IncomingMessage, Server } from 'node:http';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { serve } from '@hono/node-server';
import { type Context, Hono } from 'hono';
import { type WebSocket, WebSocketServer } from 'ws';
import type { ExperimentOverview, LiveMessage, RunListing, RunOverview } from '../src/inspect/api.ts';
import { followJournal, type JournalFollower } from '../src/inspect/follow-journal.ts';
import { indexRollouts } from '../src/inspect/line-index.ts';
import type { RunFolder } from '../src/inspect/run-folder-node.ts';
import { searchRollouts } from '../src/inspect/search-text.ts';
import type { RolloutRow } from '../src/inspect/skim.ts';
import type { JournalEntry } from '../src/journal-events.ts';
import { PlanError } from '../src/lib/errors.ts';
import { memorySource } from '../src/model/file-source.ts';
import { loadTokenizer } from '../src/model/tokenizer.ts';

export interface InspectOptions {
  runs: readonly RunFolder[];
  /** The built page, one file. */
  page: string;
  /** Folder of the policy that comes with shaderl; may be missing. */
  embedded: string;
  sourceSha256: string;
  /** 0 takes a free one. */
  port: number;
  /** Milliseconds between looks at the journals. */
  pollMs?: number;
}

export interface InspectServer {
  url: string;
  port: number;
  close(): Promise<void>;
}

const host = '127.0.0.1';
const loopback = /^(127\.0\.0\.1|localhost|\[::1\])(:\d+)?$/;
/** Files that the page fetches when they are asked for: the worker of the second opinion. */
const assetFolder = fileURLToPath(new URL('../dist/harness/assets', import.meta.url));
const assetNames = /^[\w.-]+\.js$/;
const embeddedNames = /^[\w-]+\.(json|jinja|safetensors)$/;

// The page is one file: its script and style stand in it, and its worker is a blob. Nothing else may be loaded.
const policy =
  "default-src 'none'; script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; img-src data: blob:; " +
  "connect-src 'self'; worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

interface Run {
  folder: RunFolder;
  follower: JournalFollower;
  /** Of an experiment's own journal. */
  experimentFollower: JournalFollower;
  /** Rows by file, kept while the file keeps its size. */
  rows: Map<string, { bytes: number; rows: RolloutRow[] }>;
  bytesOf: Promise<((id: number) => Uint8Array | null) | null> | null;
  files: string;
  /** Bytes of the experiment's journal at the last look. */
  experimentBytes: number;
}

/** The entries without the heartbeats that a later one of the same attempt makes needless. */
function compact(entries: readonly JournalEntry[]): JournalEntry[] {
  const beats = (entry: JournalEntry | undefined) => entry?.kind === 'heartbeat';
  return entries.filter((entry, i) => {
    if (!beats(entry)) return true;
    const later = entries.slice(i + 1).find(({ kind }) => kind === 'heartbeat' || kind.startsWith('attempt-'));
    return later?.kind !== 'heartbeat';
  });
}

async function experimentOf({ folder, experimentFollower }: Run): Promise<ExperimentOverview | null> {
  const found = await folder.experiment();
  if (!found) return null;
  const { entries, fault } = experimentFollower;
  return { ...found, faults: fault === null ? found.faults : [...found.faults, fault], entries: compact(entries) };
}

async function rowsOf(run: Run, file: string): Promise<RolloutRow[] | null> {
  const found = await run.folder.file(file);
  if (!found) return null;
  const bytes = await found.size();
  const kept = run.rows.get(file);
  if (kept?.bytes === bytes) return kept.rows;
  const rows = await indexRollouts(found);
  run.rows.set(file, { bytes, rows });
  return rows;
}

/** The bytes of each token of the run's tokenizer, or null if it has none. */
async function tokenBytes({ folder }: Run): Promise<((id: number) => Uint8Array | null) | null> {
  const bytes = await folder.readTokenizerFile('tokenizer.json');
  if (!bytes) return null;
  const tokenizer = await loadTokenizer(memorySource(`${folder.label}'s model`, { 'tokenizer.json': bytes }));
  const missing = new Set(tokenizer.missingIds);
  return (id) => (id < tokenizer.vocabularySize && !missing.has(id) ? tokenizer.bytesOf(id) : null);
}

/** One JSON text a line, as they come. */
function lines(c: Context, values: AsyncGenerator<unknown>): Response {
  const encoder = new TextEncoder();
  const stream = new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { value, done } = await values.next();
        if (done) controller.close();
        else controller.enqueue(encoder.encode(`${JSON.stringify(value)}\n`));
      } catch (error) {
        controller.error(error);
      }
    },
    cancel: async () => {
      await values.return(undefined);
    },
  });
  return c.body(stream, 200, { 'content-type': 'application/x-ndjson' });
}

async function filesOf({ folder }: Run) {
  return {
    rolloutFiles: await folder.rolloutFiles(),
    evaluations: await folder.evaluations(),
    checkpoints: await folder.checkpoints(),
  };
}

function createApi(options: InspectOptions, runs: readonly Run[]): Hono {
  const app = new Hono();
  const notFound = (c: Context, what: string) => c.json({ error: `found no ${what} in this inspection` }, 404);
  const withRun = (c: Context): Run | undefined => runs[Number(c.req.param('run'))];

  app.get('/', (c) => c.html(options.page));
  app.get('/api/runs', async (c) => {
    const names = await readdir(options.embedded).catch(() => []);
    const embedded = await Promise.all(
      names
        .filter((name) => embeddedNames.test(name))
        .sort()
        .map(async (name) => ({ name, bytes: (await stat(join(options.embedded, name))).size })),
    );
    const listing: RunListing = {
      runs: runs.map(({ folder: { name, label } }) => ({ name, label })),
      embedded,
      sourceSha256: options.sourceSha256,
    };
    return c.json(listing);
  });
  app.get('/embedded/:name', async (c) => {
    const name = c.req.param('name');
    if (!embeddedNames.test(name)) return notFound(c, 'such file');
    const bytes = await readFile(join(options.embedded, name)).catch(() => null);
    return bytes ? c.body(bytes) : notFound(c, 'such file');
  });
  app.get('/assets/:name', async (c) => {
    const name = c.req.param('name');
    if (!assetNames.test(name)) return notFound(c, 'such file');
    const bytes = await readFile(join(assetFolder, name)).catch(() => null);
    return bytes ? c.body(bytes, 200, { 'content-type': 'text/javascript' }) : notFound(c, 'such file');
  });
  app.get('/api/:run/overview', async (c) => {
    const run = withRun(c);
    if (!run) return notFound(c, 'such run');
    const overview: RunOverview = {
      name: run.folder.name,
      config: await run.folder.config(),
      ...(await filesOf(run)),
      tokenizerFiles: await run.folder.tokenizerFiles(),
      experiment: await experimentOf(run),
    };
    return c.json(overview);
  });
  app.get('/api/:run/journal', async (c) => {
    const run = withRun(c);
    if (!run) return notFound(c, 'such run');
    return c.json({ entries: run.follower.entries, fault: run.follower.fault });
  });
  app.get('/api/:run/rollouts', async (c) => {
    const run = withRun(c);
    if (!run) return notFound(c, 'such run');
    const wanted = c.req.queries('file') ?? (await run.folder.rolloutFiles());
    return lines(
      c,
      (async function* () {
        for (const file of wanted) {
          const rows = await rowsOf(run, file);
          if (rows) yield { file, rows };
        }
      })(),
    );
  });
  app.get('/api/:run/search', async (c) => {
    const run = withRun(c);
    if (!run) return notFound(c, 'such run');
    const bytesOf = await (run.bytesOf ??= tokenBytes(run));
    if (!bytesOf) return notFound(c, "tokenizer of the run's model");
    const text = c.req.query('text') ?? '';
    return lines(
      c,
      (async function* () {
        for (const file of await run.folder.rolloutFiles()) {
          const found = await run.folder.file(file);
          const matches = found ? await searchRollouts(found, text, bytesOf) : [];
          if (matches.length > 0) yield { file, matches };
        }
      })(),
    );
  });
  app.get('/api/:run/tokenizer/:name', async (c) => {
    const bytes = await withRun(c)?.folder.readTokenizerFile(c.req.param('name'));
    return bytes ? c.body(new Uint8Array(bytes)) : notFound(c, 'such file');
  });
  app.get('/api/:run/file', async (c) => {
    const file = await withRun(c)?.folder.file(c.req.query('path') ?? '');
    if (!file) return notFound(c, 'such file');
    const size = await file.size();
    const offset = Math.min(size, Math.max(0, Number(c.req.query('offset') ?? 0) || 0));
    const length = Math.min(size - offset, Math.max(0, Number(c.req.query('length') ?? size) || 0));
    return c.body(new Uint8Array(await file.read(offset, length)));
  });
  return app;
}

/** Starts the server. Throws PlanError `port-in-use`. */
export async function startInspect(options: InspectOptions): Promise<InspectServer> {
  const token = randomBytes(16).toString('hex');
  const runs: Run[] = options.runs.map((folder) => ({
    folder,
    follower: followJournal(`${folder.label}/journal.jsonl`),
    experimentFollower: followJournal(`${folder.label}/journal.jsonl of the experiment`),
    rows: new Map(),
    bytesOf: null,
    files: '',
    experimentBytes: -1,
  }));
  const sockets = new Set<WebSocket>();
  const send = (message: LiveMessage) => {
    for (const socket of sockets) socket.send(JSON.stringify(message));
  };

  async function look(run: Run, index: number): Promise<void> {
    const bytes = await run.folder.journal();
    if (bytes) {
      const from = run.follower.entries.length;
      const before = run.follower.fault;
      const entries = await run.follower.update(bytes);
      const { fault } = run.follower;
      if (entries.length > 0 || fault !== before) send({ kind: 'journal', run: index, from, entries, fault });
    }
    const own = await run.folder.experimentJournal();
    if (own && own.length !== run.experimentBytes) {
      const first = run.experimentBytes < 0;
      run.experimentBytes = own.length;
      await run.experimentFollower.update(own);
      const experiment = first ? null : await experimentOf(run);
      if (experiment) send({ kind: 'experiment', run: index, experiment });
    }
    const files = await filesOf(run);
    const text = JSON.stringify(files);
    if (run.files !== text && run.files !== '') send({ kind: 'files', run: index, ...files });
    run.files = text;
  }
  const lookAll = async () => {
    for (const [index, run] of runs.entries()) await look(run, index);
  };
  await lookAll();

  const app = new Hono();
  app.use('*', async (c, next) => {
    if (!loopback.test(c.req.header('host') ?? '')) return c.text('wanted a loopback address', 403);
    if (!samePrefix(c.req.path, token)) return c.text('not found: open the address that shaderl inspect printed', 404);
    await next();
    c.header('content-security-policy', policy);
    c.header('x-content-type-options', 'nosniff');
    c.header('referrer-policy', 'no-referrer');
    c.header('cache-control', 'no-store');
    return undefined;
  });
  app.get(`/${token}`, (c) => c.redirect(`/${token}/`));
  app.route(`/${token}/`, createApi(options, runs));
  app.onError((error, c) => c.json({ error: error.message }, 500));

  const { server, port } = await listen(app, options.port);
  const live = new WebSocketServer({ noServer: true, maxPayload: 1024 });
  server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    const { origin, host: name = '' } = request.headers;
    const own = origin === undefined || origin === `http://${name}`;
    const path = new URL(request.url ?? '/', 'http://x').pathname;
    if (!own || !loopback.test(name) || !samePrefix(path, token) || !path.endsWith('/live')) {
      socket.end('HTTP/1.1 404 Not Found\r\n\r\n');
      return;
    }
    live.handleUpgrade(request, socket, head, (opened) => {
      sockets.add(opened);
      opened.on('close', () => sockets.delete(opened));
      opened.on('error', () => opened.terminate());
    });
  });

  let closed = false;
  let timer: NodeJS.Timeout | undefined;
  const poll = async () => {
    // A look that fails (a file that is being replaced) is made again; the page keeps what it has.
    await lookAll().catch(() => {});
    if (!closed) timer = setTimeout(() => void poll(), options.pollMs ?? 500);
  };
  timer = setTimeout(() => void poll(), options.pollMs ?? 500);
  return {
    url: `http://${host}:${port}/${token}/`,
    port,
    async close() {
      closed = true;
      clearTimeout(timer);
      for (const socket of sockets) socket.terminate();
      live.close();
      server.closeAllConnections();
      await new Promise<void>((done) => server.close(() => done()));
    },
  };
}

/** Whether a path's first part is the token, in constant time. */
function samePrefix(path: string, token: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(path.split('/')[1] ?? ''), digest(token));
}

function listen(app: Hono, port: number): Promise<{ server: Server; port: number }> {
  return new Promise((resolve, reject) => {
    const server = serve({ fetch: app.fetch, port, hostname: host }, (info) =>
      resolve({ server, port: info.port }),
    ) as Server;
    server.once('error', (error: NodeJS.ErrnoException) => {
      const found = error.code === 'EADDRINUSE' ? 'a port that is taken' : error.message;
      const where = `listening on ${host}:${port}`;
      const message = `${where}: found ${found}; wanted a free port. Give another --port, or 0 for any.`;
      reject(new PlanError('port-in-use', message, { cause: error }));
    });
  });
}
