// `shaderl inspect`: serves the inspector's page with the data of one or two runs, until it is stopped.
import { spawn } from 'node:child_process';
import type { Command } from 'commander';
import { addCommand, numberOption } from '../command.ts';
import type { OpenSession } from '../main.ts';

interface InspectCommandOptions {
  json?: boolean;
  port: number;
  open?: boolean;
}

/** Opens an address in the system's browser; without one, the printed address is all there is. */
function openBrowser(url: string): void {
  const commands: Partial<Record<NodeJS.Platform, [string, string[]]>> = {
    darwin: ['open', [url]],
    win32: ['cmd', ['/c', 'start', '', url]],
  };
  const [command, args] = commands[process.platform] ?? ['xdg-open', [url]];
  spawn(command, args, { detached: true, stdio: 'ignore' })
    .on('error', () => {})
    .unref();
}

export function addInspect(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'inspect',
    summary: 'show runs in the browser: curves, rollouts token by token, comparisons, an in-page device',
    details:
      'Serves on 127.0.0.1 alone, read-only, under an address with a token of this start. A running job is followed: ' +
      'its new steps appear without a reload. Give two runs to compare them, the folder of an experiment ' +
      '(`shaderl prepare`, `shaderl run`) for its stages, DEV points and selection too, or one rollouts file. ' +
      'Ends with Ctrl-C.',
    examples: [
      'shaderl inspect runs/german --open',
      'shaderl inspect runs/a runs/b --port 4173',
      'shaderl inspect runs/experiment',
    ],
  })
    .argument('<runs...>', 'folders that `shaderl train` wrote, folders of experiments, or a rollouts file (.jsonl)')
    .addOption(numberOption('--port <n>', 'port; 0 takes a free one', { min: 0, max: 65535, integer: true }, 0))
    .option('--open', 'open the address in the browser')
    .action(async (paths: string[], options: InspectCommandOptions) => {
      const session = openSession(options);
      const { openRunFolder } = await import('../../src/inspect/run-folder-node.ts');
      const { embeddedPolicyFolder, inspectorPage } = await import('../../workers/inspect-page-node.ts');
      const { startInspect } = await import('../../workers/inspect-node.ts');
      const { sourceSha256 } = await import('../../src/qualification-node.ts');
      const runs = [];
      for (const path of paths) runs.push(await openRunFolder(path));
      const page = await inspectorPage(() => session.progress.update('building the page'));
      const server = await startInspect({
        runs,
        page,
        embedded: embeddedPolicyFolder,
        sourceSha256: await sourceSha256(),
        port: options.port,
      });
      // Before the address is told: who reads it may end this at once.
      const ended = new Promise<void>((resolve) => {
        process.once('SIGINT', () => resolve());
        process.once('SIGTERM', () => resolve());
      });
      session.result(
        { url: server.url, port: server.port, runs: runs.map(({ label }) => label) },
        `inspecting ${runs.map(({ label }) => label).join(' and ')}\n${server.url}\nCtrl-C ends it`,
      );
      if (options.open) openBrowser(server.url);
      await ended;
      await server.close();
    });
}
