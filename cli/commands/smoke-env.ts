// `shaderl smoke-env`: proves that a service gives the German task as the environment in process does, and survives
// what a network does. Not a training run. Invariant: the report is written whether the service passes or not.
import { type Command, Option } from 'commander';
import { PlanError } from '../../src/lib/errors.ts';
import { addCommand, numberOption } from '../command.ts';
import type { OpenSession } from '../main.ts';
import { protocolOption } from './serve-env.ts';

interface SmokeEnvOptions {
  json?: boolean;
  protocol: 'nemo-gym' | 'openenv';
  url: string;
  output: string;
  concurrency: number;
  mcp?: 'always';
}

export function addSmokeEnv(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'smoke-env',
    summary: 'prove an environment service and write the proof that a plan pins',
    details:
      'Checks identity, manners on the wire, equality of prompts, observations, scores and replays with the ' +
      'environment in process, isolation, forged histories, undeclared tools, concurrency, loss of the service and ' +
      'deadlines. Writes smoke.json (canonical JSON) into the output folder. Exit code 1 where a check failed.',
    examples: ['shaderl smoke-env --protocol openenv --url http://127.0.0.1:8000 --output proofs/openenv'],
  })
    .addOption(protocolOption())
    .requiredOption('--url <url>', 'address of the service, http://host:port')
    .requiredOption('--output <dir>', 'folder for smoke.json; it must hold none yet')
    .addOption(
      numberOption('--concurrency <n>', 'sessions that must fit at once', { min: 1, max: 1024, integer: true }, 16),
    )
    .addOption(
      new Option('--mcp <when>', 'nemo-gym: call tools over MCP, for a recipe whose service.mcp is always').choices([
        'always',
      ]),
    )
    .action(async (options: SmokeEnvOptions) => {
      const session = openSession(options);
      const { proveService, requireFreeFolder, writeSmokeReport } = await import(
        '../../workers/services/smoke/smoke.ts'
      );
      await requireFreeFolder(options.output);
      const { protocol, url, concurrency, output, mcp } = options;
      if (protocol !== 'nemo-gym' && mcp !== undefined) {
        throw new PlanError(
          'bad-options',
          `reading the command line: found --mcp with --protocol ${protocol}; wanted it with nemo-gym alone. Leave it out.`,
        );
      }
      const lines: string[] = [];
      const report = await proveService({
        protocol,
        url,
        concurrency,
        ...(mcp ? { mcp } : {}),
        onCheck(name, { ok, found, wanted }) {
          session.progress.update(`checked ${name}`);
          lines.push(ok ? `ok      ${name}: ${found}` : `FAILED  ${name}: found ${found}; wanted ${wanted}`);
        },
      });
      const sha256 = await writeSmokeReport(output, report);
      const file = `${output}/smoke.json`;
      const failed = report.checks.filter(({ ok }) => !ok).length;
      const verdict = failed === 0 ? `passed all ${report.checks.length} checks` : `${failed} checks failed`;
      session.result(
        { file, sha256, ...report },
        `${lines.join('\n')}\n\n${verdict}; wrote ${file} (SHA-256 ${sha256})`,
      );
      if (failed > 0) session.fail(1);
    });
}
