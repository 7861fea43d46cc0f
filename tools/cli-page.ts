// Writes docs/cli.md from the commands' own --help: `npx tsx tools/cli-page.ts`.
// Not a place for prose on the commands: that stands in their help. Invariant: the page is a function of the program
// alone; a test compares it with the file.
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { createSession } from '../cli/command.ts';
import { buildProgram, main } from '../cli/main.ts';
import type { Terminal } from '../cli/terminal.ts';

/** The file that the page is written to. */
export const cliPagePath = fileURLToPath(new URL('../docs/cli.md', import.meta.url));

const intro = `# Command line

\`npx shaderl <command>\` in a checkout, after \`./setup.sh\`. This page is made from the commands' own \`--help\` by
\`npx tsx tools/cli-page.ts\`; do not edit it.

- Results go to stdout, everything else to stderr: progress (one line that rewrites itself on a terminal, plain lines
  elsewhere), notes and errors. The GPU library may add warnings of its own to stderr.
- With \`--json\`, stdout is one JSON value, and an error is one line on stderr, the last one:
  \`{"error": {"class", "code", "message", "exitCode"}}\`.
- A failed check (exit code 1) still prints its result.
`;

function silentTerminal(out: (text: string) => void): Terminal {
  return { out, err: () => {}, interactive: false, columns: 100, now: () => 0 };
}

async function helpOf(argv: readonly string[]): Promise<string> {
  let text = '';
  await main(
    [...argv, '--help'],
    silentTerminal((piece) => {
      text += piece;
    }),
  );
  return text.trimEnd();
}

/** The whole page. */
export async function cliPage(): Promise<string> {
  const terminal = silentTerminal(() => {});
  const program = buildProgram(terminal, () => createSession(terminal, false, () => {}));
  const names = program.commands.map((command) => command.name());
  const sections = [intro, `\`\`\`text\n${await helpOf([])}\n\`\`\`\n`];
  for (const name of names) sections.push(`## ${name}\n\n\`\`\`text\n${await helpOf([name])}\n\`\`\`\n`);
  return sections.join('\n');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(cliPagePath, await cliPage());
