// Starts the model endpoint: the policy in its worker, the HTTP server in this thread.
// Not for the open network as it stands: there is no TLS. Invariant: it listens on the given host alone; `stop` ends
// every request and leaves no socket open; the loss of the worker turns every answer into an error at once.
import { readFileSync } from 'node:fs';
import type { Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { basename, resolve } from 'node:path';
import { serve } from '@hono/node-server';
import type { KernelFamily } from '../src/gpu/device.ts';
import { EnvError, PlanError } from '../src/lib/errors.ts';
import { openPolicy, requireText } from '../src/model/open-node.ts';
import type { Text } from '../src/model/text.ts';
import type { PolicyAbout, PolicyOptions, PolicyService } from './serve-model/api.ts';
import { createApp } from './serve-model/app.ts';
import type { Limits } from './serve-model/limits.ts';
import { spawnWorker } from './spawn.ts';

export interface ServeModelOptions {
  model: string;
  adapter: string | null;
  family: KernelFamily;
  host: string;
  /** 0: any free port. */
  port: number;
  token: string | null;
  limits: Limits;
  /** Most tokens of prompt and answer together; null: 2,048, or the model's positions if they are fewer. */
  context: number | null;
  defaultSeed: number | null;
  /** Faults of the program go here. */
  report: (error: unknown) => void;
}

export interface ModelServer {
  url: string;
  modelName: string;
  about: PolicyAbout;
  stop(): Promise<void>;
}

const defaultContext = 2048;

/** The token of a file, without white space around it. Throws PlanError for one that is no token. */
export function readToken(file: string): string {
  let text: string;
  try {
    text = readFileSync(file, 'utf8').trim();
  } catch (cause) {
    const found = cause instanceof Error ? cause.message : String(cause);
    const rest = 'wanted a file with a bearer token. Write one, or leave --token-file out.';
    throw new PlanError('bad-token-file', `reading the token: ${found}; ${rest}`, { cause });
  }
  if (/^[\x21-\x7e]{16,4096}$/.test(text)) return text;
  const blank = /\s/.test(text) ? ', with white space among them' : '';
  throw new PlanError(
    'bad-token-file',
    `reading the token in ${file}: found ${text.length} characters${blank}; ` +
      'wanted 16 to 4,096 printable ASCII characters. Write a longer one: openssl rand -hex 32.',
  );
}

export const isLoopback = (host: string): boolean => /^(127(\.\d+){3}|localhost|::1)$/i.test(host);

/** The name of a policy: that of the model's folder, and of the adapter's. */
const nameOf = (model: string, adapter: string | null): string =>
  [model, ...(adapter === null ? [] : [adapter])].map((folder) => basename(resolve(folder))).join('+');

/** Bytes of the longest token: what a text of a given length needs at least. */
function longestTokenOf(text: Text): number {
  const missing = new Set(text.missingIds);
  let longest = 1;
  for (let id = 0; id < text.vocabularySize; id++) {
    if (!missing.has(id)) longest = Math.max(longest, text.bytesOf(id).length);
  }
  return longest;
}

/**
 * Starts the endpoint. Throws ModelFileError, DeviceError or PlanError for what cannot be served, EnvError for a taken
 * port.
 */
export async function startModelServer(options: ServeModelOptions): Promise<ModelServer> {
  const { model, adapter, family, host, port, token, limits, defaultSeed, report } = options;
  const opened = await openPolicy(model, null);
  const text = requireText(opened);
  if (text.templateSha256 === null) {
    throw new PlanError(
      'no-chat-template',
      `serving ${model}: found no chat template; wanted one, to write conversations with. ` +
        'Use an instruction-tuned checkpoint.',
    );
  }
  const { maxPositions } = opened.files.architecture;
  const context = options.context ?? Math.min(defaultContext, maxPositions);
  if (context > maxPositions) {
    const wanted = `at most ${maxPositions}, the positions of the model`;
    throw new PlanError('bad-options', `serving ${model}: found --context ${context}; wanted ${wanted}. Give less.`);
  }
  const data: PolicyOptions = { model, adapter, family, slots: limits.maxConcurrent, context };
  const worker = await spawnWorker<PolicyService>({
    name: 'model-server',
    module: new URL('./serve-model.worker.ts', import.meta.url),
    methods: ['about', 'submit', 'take', 'cancel', 'stats'],
    data,
    readyDeadlineMs: 900_000,
  });
  try {
    const policy = worker.service;
    const about = await policy.about();
    const modelName = nameOf(model, adapter);
    const loopbackOnly = isLoopback(host);
    const longestToken = longestTokenOf(text);
    let stopping = false;
    // Requests that the stop itself ends are no faults.
    const reportFault = (error: unknown) => stopping || report(error);
    const app = createApp({
      longestToken,
      policy,
      text,
      limits,
      context,
      defaultSeed,
      about,
      modelName,
      token,
      loopbackOnly,
      report: reportFault,
    });
    const http = await listen(app.fetch, host, port, 2 * (limits.maxConcurrent + limits.maxWaiting) + 64);
    return {
      url: http.url,
      modelName,
      about,
      async stop() {
        stopping = true;
        await http.stop();
        await worker.stop();
      },
    };
  } catch (error) {
    await worker.stop();
    throw error;
  }
}

async function listen(fetch: Parameters<typeof serve>[0]['fetch'], hostname: string, port: number, maxSockets: number) {
  const sockets = new Set<Socket>();
  // A client that sends slowly holds a connection, never a place: bodies have a minute, headers ten seconds.
  const serverOptions = { headersTimeout: 10_000, requestTimeout: 60_000, keepAliveTimeout: 30_000 };
  const server = await new Promise<Server>((ready, reject) => {
    const made = serve({ fetch, hostname, port, serverOptions }, () => ready(made)) as Server;
    made.maxConnections = maxSockets;
    made.on('connection', (socket: Socket) => {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.once('close', () => sockets.delete(socket));
    });
    made.once('error', (error) => {
      const message = `listening on ${hostname}:${port}: ${error.message}; a free port is wanted. Choose another one.`;
      reject(new EnvError('service-port', message, { cause: error }));
    });
  });
  const { port: taken } = server.address() as AddressInfo;
  return {
    url: `http://${hostname.includes(':') ? `[${hostname}]` : hostname}:${taken}`,
    async stop() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}
