// A process that seals step 2 beside a sealed step 1, journals it, drops step 1, and dies by SIGKILL at one boundary.
// Arguments: root folder, number of the boundary to die at (1-based), or 0 to live and print all boundaries as JSON.
import { checkpointFolder, retainCheckpoints, sealCheckpoint } from '../../src/checkpoint.ts';
import { openJournal } from '../../src/journal.ts';
import { createNodeStorage } from '../../src/lib/storage-node.ts';
import { checkpointContent } from './checkpoint-content.ts';

const [root, dieAt] = [process.argv[2]!, Number(process.argv[3])];
const boundaries: string[] = [];
const storage = createNodeStorage(root, {
  chunkBytes: 300, // so that every file, and a journal line, is written in several pieces
  beforeWrite(boundary) {
    boundaries.push(boundary);
    if (boundaries.length === dieAt) process.kill(process.pid, 'SIGKILL');
  },
});
const { journal } = await openJournal(storage, 'journal.jsonl', () => '2026-01-01T00:00:00Z');
const content = checkpointContent(2);
const sealed = await sealCheckpoint(storage, checkpointFolder(2), {
  ...content,
  state: { ...content.state, journal: journal.prefix() },
});
const { folder, sealSha256 } = sealed;
await journal.append({ kind: 'checkpoint', data: { step: 2, folder, sealSha256 } });
await retainCheckpoints(storage, 1);
process.stdout.write(JSON.stringify(boundaries));
