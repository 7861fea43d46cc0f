// What the tests of an experiment ask of it over and over: what `verify` finds in its folder, and a stop in its training.
import { expect } from 'vitest';
import { verifyExperiment } from '../../src/experiment/verify-node.ts';
import { renderedReport } from '../../workers/experiment/report-node.ts';
import type { smallPorts } from './experiment-fixture.ts';

/** Findings about the folder's own files: a small training's rollouts are no episodes, and the program may be worked on. */
export async function folderFindings({ folder }: { folder: string }): Promise<string[]> {
  const { checks } = await verifyExperiment(folder, renderedReport);
  const own = checks.filter(({ name }) => !/audit$|froze/.test(name));
  expect(own.length).toBe(checks.length - 2);
  return own.flatMap(({ detail }) => detail);
}

/** A change of the small ports that asks for a stop as soon as training begins. */
export function stopInTraining(ports: Awaited<ReturnType<typeof smallPorts>>) {
  let asked = false;
  return {
    stopRequested: () => asked,
    train: async (...[run, options]: Parameters<typeof ports.train>) => {
      asked = true;
      return ports.train(run, options);
    },
  };
}
