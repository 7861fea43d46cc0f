#!/usr/bin/env node
// Entry of `shaderl`: registers tsx, because Node 20 cannot load TypeScript, and hands over to main.ts.
// Not a place for logic. Invariant: the process ends with the command's exit code as soon as its output is written,
// whatever handles the GPU library still holds.
import { register } from 'tsx/esm/api';

// Vulkan loaders complain on stderr without it, and some software drivers keep their shader cache there.
process.env.XDG_RUNTIME_DIR ||= '/tmp';
// A reader that has seen enough (`shaderl sample ... | head`) is no failure.
process.stdout.on('error', (error) => process.exit(error.code === 'EPIPE' ? 0 : 4));

register();
const { main } = await import('./main.ts');
const { nodeTerminal } = await import('./terminal.ts');
const exitCode = await main(process.argv.slice(2), nodeTerminal());
process.stdout.write('', () => process.stderr.write('', () => process.exit(exitCode)));
