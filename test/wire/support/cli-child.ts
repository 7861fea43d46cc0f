// A process that runs serve-env or smoke-env as the command line does, without the other commands.
import { Command } from 'commander';
import { createSession } from '../../../cli/command.ts';
import { addServeEnv } from '../../../cli/commands/serve-env.ts';
import { addSmokeEnv } from '../../../cli/commands/smoke-env.ts';
import { failureOf } from '../../../cli/failure.ts';
import { nodeTerminal } from '../../../cli/terminal.ts';

const program = new Command('shaderl').exitOverride();
const terminal = nodeTerminal();
let exitCode = 0;
for (const add of [addServeEnv, addSmokeEnv]) {
  add(program, ({ json }) =>
    createSession(terminal, json === true, (code) => {
      exitCode = code;
    }),
  );
}
try {
  await program.parseAsync(process.argv.slice(2), { from: 'user' });
} catch (error) {
  const failure = failureOf(error, true);
  terminal.err(failure.text);
  exitCode = failure.exitCode;
}
process.exitCode = exitCode;
