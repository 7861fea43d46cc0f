// A process that goes on with a run's draws from a sealed checkpoint: no step on a GPU, only what the state determines.
// Arguments: root folder, last step. Prints the draws of each step as JSON. With an empty root it starts from step 0.
import { checkpointFolder, newestVerified, sealCheckpoint } from '../../src/checkpoint.ts';
import { createNodeStorage } from '../../src/lib/storage-node.ts';
import { checkpointContent } from './checkpoint-content.ts';
import { drawStep, SEED } from './resume-draws.ts';

const [root, lastStep] = [process.argv[2]!, Number(process.argv[3])];
const storage = createNodeStorage(root);
const { checkpoint } = await newestVerified(storage);
let step = checkpoint?.state.step ?? 0;
let cursor = checkpoint?.state.cursor ?? { epoch: 0, index: 0 };
const draws = [];
while (step < lastStep) {
  const drawn = drawStep(step + 1, cursor);
  draws.push(drawn.draws);
  cursor = drawn.cursor;
  step += 1;
}
const content = checkpointContent(step);
const rng = { ...content.state.rng, seed: SEED };
await sealCheckpoint(storage, checkpointFolder(step), { ...content, state: { ...content.state, cursor, rng } });
process.stdout.write(JSON.stringify(draws));
