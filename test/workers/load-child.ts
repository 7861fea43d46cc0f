// Run as a process of its own under `node --import tsx`: plays one episode in the environment's worker and prints it.
import { expertTranscript } from '../../src/environments/german-expert.ts';
import { trainTasks } from '../../src/environments/german-task.ts';
import { spawnGermanEnvironment } from '../../workers/env-node.ts';

const task = trainTasks(20261020, 1)[0]!;
const expert = expertTranscript(task, { imperfection: null });
const { port, stop } = await spawnGermanEnvironment();
const { sessionId } = await port.open(task);
for (const { tool, argumentsJson } of expert.calls) await port.call(sessionId, tool, argumentsJson);
const verdict = await port.verify(sessionId, expert.finalText, 0);
await stop();
process.stdout.write(JSON.stringify(verdict));
