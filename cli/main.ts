// The command line: reads the arguments, runs one command, and turns its outcome into an exit code.
// Not the work: commands load what they need when they run, so that --help never touches a GPU.
// Invariant: 0 ok, 1 failed check, 2 usage or bad input, 3 no device, 4 infrastructure; errors go to stderr alone.
import { Command, CommanderError } from 'commander';
import { nearestName } from '../src/lib/nearest.ts';
import { createSession, type Session } from './command.ts';
import { addAudit } from './commands/audit.ts';
import { addBench } from './commands/bench.ts';
import { addCompare } from './commands/compare.ts';
import { addDoctor } from './commands/doctor.ts';
import { addEvaluate } from './commands/evaluate.ts';
import { addInspect } from './commands/inspect.ts';
import { addMerge } from './commands/merge.ts';
import { addPrepare } from './commands/prepare.ts';
import { addQualify } from './commands/qualify.ts';
import { addQueue } from './commands/queue.ts';
import { addQuickstart } from './commands/quickstart.ts';
import { addReport } from './commands/report.ts';
import { addRun } from './commands/run.ts';
import { addSample } from './commands/sample.ts';
import { addScore } from './commands/score.ts';
import { addServeEnv } from './commands/serve-env.ts';
import { addServeModel } from './commands/serve-model.ts';
import { addSmokeEnv } from './commands/smoke-env.ts';
import { addStatus } from './commands/status.ts';
import { addTrain } from './commands/train.ts';
import { addVerify } from './commands/verify.ts';
import { addVerifyPlan } from './commands/verify-plan.ts';
import { failureOf } from './failure.ts';
import type { Terminal } from './terminal.ts';

/** Makes the session of a command from its --json flag. */
export type OpenSession = (options: { json?: boolean }) => Session;

const exitCodes = `
Exit codes:
  0  ok
  1  a check failed
  2  wrong usage or bad input
  3  no usable device
  4  infrastructure: a service or worker failed`;

/** In the order in which one meets them. */
const commands = [
  addQuickstart,
  addDoctor,
  addQualify,
  addSample,
  addScore,
  addTrain,
  addEvaluate,
  addCompare,
  addAudit,
  addMerge,
  addReport,
  addPrepare,
  addVerifyPlan,
  addRun,
  addQueue,
  addStatus,
  addVerify,
  addInspect,
  addServeEnv,
  addSmokeEnv,
  addServeModel,
  addBench,
];

/** The program with all its commands. What it prints of its own goes to `terminal`. */
export function buildProgram(terminal: Terminal, openSession: OpenSession): Command {
  const program = new Command('shaderl')
    .description('Trains and evaluates tool-using language models with WebGPU compute shaders.')
    .exitOverride()
    .configureOutput({
      writeOut: (text) => terminal.out(text),
      // Errors are reported once, by main: see failure.ts.
      writeErr: () => {},
      outputError: () => {},
      getOutHelpWidth: () => 100,
      getErrHelpWidth: () => 100,
    })
    .addHelpText('after', `${exitCodes}\n\nExample:\n  $ shaderl doctor\n  $ shaderl sample --help`);
  for (const add of commands) add(program, openSession);
  return program;
}

/** Runs a command line (without node and script) and gives the exit code of the process. */
export async function main(argv: readonly string[], terminal: Terminal): Promise<number> {
  let exitCode = 0;
  let session: Session | null = null;
  const program = buildProgram(terminal, ({ json }) => {
    session = createSession(terminal, json === true, (code) => {
      exitCode = code;
    });
    return session;
  });
  try {
    await program.parseAsync([...argv], { from: 'user' });
    return exitCode;
  } catch (error) {
    (session as Session | null)?.progress.clear();
    const at = argv.findIndex((word) => !word.startsWith('-'));
    const command = program.commands.find((known) => known.name() === argv[at]);
    const failure = failureOf(
      (command && mistypedOption(error, command, argv.slice(at + 1))) ?? error,
      argv.includes('--json'),
      command ? `shaderl ${command.name()}` : 'shaderl',
    );
    terminal.err(failure.text);
    return failure.exitCode;
  }
}

/** A required option that is missing is most often there under a mistyped name, which commander would not mention. */
function mistypedOption(error: unknown, command: Command, argv: readonly string[]): CommanderError | null {
  if (!(error instanceof CommanderError) || error.code !== 'commander.missingMandatoryOptionValue') return null;
  const flag = command.parseOptions([...argv]).unknown.find((word) => word.startsWith('-'));
  if (flag === undefined) return null;
  const known = command.options.flatMap(({ long }) => (long ? [long] : []));
  const near = nearestName(flag, known);
  const hint = near === null ? '' : `\n(Did you mean ${near}?)`;
  return new CommanderError(error.exitCode, 'commander.unknownOption', `error: unknown option '${flag}'${hint}`);
}
