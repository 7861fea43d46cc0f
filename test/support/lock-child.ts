// A process that takes an experiment's lock and holds it until it is killed. Argument: the folder.
import { acquireLock } from '../../src/experiment/lock-node.ts';

try {
  acquireLock(process.argv[2]!);
  process.send!('taken');
} catch (error) {
  const { code, message } = error as { code: string; message: string };
  process.send!(`[${code}] ${message}`);
}
setInterval(() => {}, 1000);
