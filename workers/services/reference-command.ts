// The command that starts this program's own reference service.
// Not the service (german-service.ts). Invariant: it is `shaderl serve-env` of this very program.
import { fileURLToPath } from 'node:url';
import { PORT, type ServiceSection, serviceSection } from '../../src/experiment/service.ts';
import type { Protocol } from './german-service.ts';

const script = fileURLToPath(new URL('../../cli/bin.mjs', import.meta.url));

/** Sessions beyond those in use: a NeMo Gym server keeps the ones whose client was cut off. */
const SPARE = 224;

/** An argument vector with `{port}` in it. `mcp`: tools are offered over MCP too. */
export function referenceCommand(protocol: Protocol, sessions: number, mcp = false): string[] {
  const options = [
    ...(mcp ? ['--mcp'] : []),
    '--protocol',
    protocol,
    '--port',
    PORT,
    '--max-sessions',
    String(Math.min(1024, sessions + SPARE)),
  ];
  return [process.execPath, script, 'serve-env', ...options];
}

/** The section as it is meant: without address and command it is the reference service. */
export function resolvedSection<S extends ServiceSection>(section: S, protocol: Protocol): S & { url: string } {
  const address = `http://127.0.0.1:${PORT}`;
  if (section.command !== null || section.url !== null) return { ...section, url: section.url ?? address };
  return {
    ...section,
    url: address,
    command: referenceCommand(protocol, section.maxSessions, section.mcp === 'always'),
  };
}

/** The section of a run that says nothing of its service. */
export const defaultSection = (): ServiceSection => serviceSection.parse({});
