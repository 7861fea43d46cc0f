// Runs training in a process of its own: node --import tsx train-child.ts CONFIG [stop-after|-] [resume] [kill-after].
import { readFileSync } from 'node:fs';
import { resolveRunConfig } from '../../src/run-config.ts';
import { trainRun } from '../../workers/train-node.ts';

const [file, stopAfter = '-', mode = 'start', killAfter = '-'] = process.argv.slice(2);
const run = await resolveRunConfig(readFileSync(file!, 'utf8'), file!);
let asked = 0;
let done = 0;
const outcome = await trainRun(run, {
  resume: mode === 'resume',
  qualify: 'here',
  shouldStop: () => {
    asked += 1;
    return stopAfter !== '-' && asked >= Number(stopAfter);
  },
  progress: {
    onStep: () => {
      done += 1;
      if (killAfter !== '-' && done >= Number(killAfter)) process.kill(process.pid, 'SIGKILL');
    },
  },
});
process.stdout.write(`${JSON.stringify(outcome)}\n`);
process.exit(0);
