// `shaderl serve-env`: serves the German task over NeMo Gym's or OpenEnv's protocol until it is told to stop.
// Not a production server: there is no authentication. Invariant: it listens on loopback unless --host says otherwise.
import { readFileSync } from 'node:fs';
import { type Command, Option } from 'commander';
import { PlanError } from '../../src/lib/errors.ts';
import { addCommand, numberOption } from '../command.ts';
import type { OpenSession } from '../main.ts';

interface ServeEnvOptions {
  json?: boolean;
  protocol: 'nemo-gym' | 'openenv';
  host: string;
  port: number;
  maxSessions: number;
  mcp?: boolean;
  fault: string[];
}

export const protocolOption = (): Option =>
  new Option('--protocol <name>', 'wire protocol').choices(['nemo-gym', 'openenv']).makeOptionMandatory();

/** Resolves at the first signal that asks the process to end. */
function stopSignal(): Promise<string> {
  return new Promise((resolve) => {
    for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => resolve(name));
  });
}

export function addServeEnv(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'serve-env',
    summary: 'serve the German task as an environment service',
    details:
      'Speaks the protocol of NeMo Gym resources servers (HTTP) or of OpenEnv environments (WebSocket), so that ' +
      "other people's clients work against it and a laptop needs nothing else. Prints its address, then serves until " +
      'Ctrl-C or SIGTERM. There is no authentication: give --host only on a network that you trust.',
    examples: [
      'shaderl serve-env --protocol openenv --port 8000',
      'shaderl serve-env --protocol nemo-gym --max-sessions 64',
      'shaderl serve-env --protocol nemo-gym --fault stall@verify:1 --fault status=503@nachschlagen:4',
    ],
  })
    .addOption(protocolOption())
    .option('--host <address>', 'address to listen on', '127.0.0.1')
    .addOption(numberOption('--port <n>', 'port; 0 for any free one', { min: 0, max: 65_535, integer: true }, 0))
    .addOption(numberOption('--max-sessions <n>', 'sessions at once', { min: 1, max: 1024, integer: true }, 64))
    .option('--mcp', 'offer the tools over MCP too (nemo-gym)')
    .addOption(
      new Option(
        '--fault <switch>',
        'a fault, to test a client with: KIND[=VALUE]@[ROUTE:]N[+], at the N-th request (of a route), + and ' +
          'all later ones; may be given more than once. Kinds: stall, delay=MS, drop (before the work), drop-after; nemo-gym: ' +
          'status=CODE, no-cookie, judge-failed; openenv: close=CODE, error=CODE',
      )
        .argParser((value: string, before: string[]) => [...before, value])
        .default([], 'none'),
    )
    .action(async (options: ServeEnvOptions) => {
      const session = openSession(options);
      const { createFaults, parseFaultSwitch } = await import('../../workers/services/fault-switches.ts');
      const switches = options.fault.map((text) => parseFaultSwitch(text, options.protocol));
      if (options.mcp && options.protocol !== 'nemo-gym') {
        throw new PlanError(
          'bad-options',
          'reading the command line: found --mcp with openenv; wanted it with nemo-gym. Leave it out: /mcp is there.',
        );
      }
      const { serveGerman } = await import('../../workers/services/german-service.ts');
      const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
      const stopped = stopSignal();
      const { protocol, host, port, maxSessions } = options;
      const faults = createFaults(switches, (line) => session.progress.line(line));
      const service = await serveGerman({
        ...{ protocol, host, port, maxSessions, version, mcp: options.mcp ?? false },
        ...(switches.length > 0 ? { faults } : {}),
      });
      const about = { protocol, url: service.url, maxSessions, pid: process.pid };
      session.result(
        about,
        `serving the German task over ${protocol} at ${service.url}, ${maxSessions} sessions at most`,
      );
      const signal = await stopped;
      session.progress.line(`${signal}: closing ${service.openSessions()} sessions`);
      await service.stop();
    });
}
