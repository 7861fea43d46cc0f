// Reads the recorded wire transcripts of test/golden/wire. Their format is described in the README beside them.
import { readdirSync, readFileSync } from 'node:fs';

const folder = new URL('../../golden/wire/', import.meta.url);

export interface Line {
  t: number;
  dir: '>' | '<' | '-';
  kind: string;
  conn?: string;
  method?: string;
  path?: string;
  status?: number;
  headers?: [string, string][];
  body?: string | null;
  text?: string;
  fin?: boolean;
  truncated_from_bytes?: number;
  base64?: string;
  bytes?: number;
  code?: number | null;
  reason?: string;
  waited_s?: number;
  session_id?: string;
  call?: string;
  value?: unknown;
  error?: string;
}

export interface Transcript {
  name: string;
  what: string;
  server: string;
  lines: Line[];
}

export type Protocol = 'openenv' | 'nemo-gym';

/** Names of all scenarios of a protocol, sorted. */
export function scenarioNames(protocol: Protocol): string[] {
  return readdirSync(new URL(`${protocol}/`, folder))
    .filter((name) => name.endsWith('.jsonl'))
    .map((name) => name.replace(/\.jsonl$/, ''))
    .sort();
}

export function readTranscript(protocol: Protocol, name: string): Transcript {
  const text = readFileSync(new URL(`${protocol}/${name}.jsonl`, folder), 'utf8');
  const [meta, ...lines] = text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
  return { name, what: meta.what, server: meta.server, lines };
}

export const header = (line: Line, name: string): string | null =>
  line.headers?.find(([key]) => key.toLowerCase() === name)?.[1] ?? null;
