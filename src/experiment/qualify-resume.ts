// The resume qualification: on this device, an uninterrupted run against one that stopped and went on in a new process.
// Not the qualification of kernels. Invariant: training begins only if adapter, moments, schedule, RNG state and
// rollout evidence are equal byte for byte, a repeat is equal too, and the comparison was shown to see one flipped bit.
import { checkpointFolder, verifyCheckpoint } from '../checkpoint.ts';
import { effectiveEntries, readJournal } from '../journal.ts';
import { comparablePart } from '../journal-events.ts';
import { AuditError } from '../lib/errors.ts';
import { sha256HexAsync } from '../lib/sha256.ts';
import type { Storage } from '../lib/storage.ts';
import { type Branch, compareBranches, type Difference, differenceText, seesFlippedBit } from './compare-branches.ts';
import { EVIDENCE, jsonBytes, type StageContext, type StageResult, Stopped, stopHere } from './context.ts';
import { setAsidePaths } from './evidence.ts';
import { trainingConfig } from './plan.ts';

/** Below it one folder an attempt, `attempt-N`, with a run folder for each branch. */
export const QUALIFICATION_FOLDER = 'qualification';
export const QUALIFICATION_BRANCHES = ['uninterrupted', 'repeat', 'resumed'] as const;

/** Reads what a branch left: its last sealed checkpoint, its rollouts, its journal. Throws CheckpointError. */
export async function readBranch(storage: Storage, name: string, steps: number): Promise<Branch> {
  const { files, state } = await verifyCheckpoint(storage, checkpointFolder(steps));
  const rollouts = new Map<string, unknown[]>();
  for (const { name: file } of await storage.list('rollouts')) {
    const lines = (await storage.readText(`rollouts/${file}`)).trimEnd().split('\n');
    rollouts.set(
      `rollouts/${file}`,
      lines.map((line) => JSON.parse(line) as unknown),
    );
  }
  const entries = effectiveEntries((await readJournal(storage, 'journal.jsonl')).entries);
  const journal = entries.map(comparablePart).filter((part) => part !== null);
  return { name, files, state, rollouts, journal };
}

/** Runs the branches, each in processes of its own, compares them, and writes the record. */
export async function qualifyResume(context: StageContext): Promise<StageResult> {
  const { ports, plan, attempt } = context;
  const { storage } = ports;
  const { steps, stopAfter } = plan.recipe.qualification;
  await setAsidePaths(
    storage,
    ports.journal,
    [QUALIFICATION_FOLDER, EVIDENCE.resume],
    'a qualification that did not pass',
  );
  // A folder of its own for each attempt: a process that outlived its driver cannot write into this one.
  const root = `${QUALIFICATION_FOLDER}/attempt-${attempt}`;
  const run = await trainingConfig(plan.recipe, plan.inputs.baseline.folder, { steps, every: steps });
  const stop = () => context.stopReason() !== null;
  const branch = async (name: string, options: { resume: boolean; stopAfter: number | null }) => {
    stopHere(context);
    try {
      await ports.branch(run, `${root}/${name}`, { ...options, stop });
    } catch (error) {
      const reason = context.stopReason();
      throw reason === null ? error : new Stopped(reason);
    }
  };
  await branch('uninterrupted', { resume: false, stopAfter: null });
  await branch('repeat', { resume: false, stopAfter: null });
  await branch('resumed', { resume: false, stopAfter });
  await branch('resumed', { resume: true, stopAfter: null });

  const read = (name: string) => readBranch(ports.storageAt(`${root}/${name}`), name, steps);
  const [whole, repeat, resumed] = [
    await read(QUALIFICATION_BRANCHES[0]),
    await read(QUALIFICATION_BRANCHES[1]),
    await read(QUALIFICATION_BRANCHES[2]),
  ];
  const compared = [
    { against: 'repeat', differences: await compareBranches(whole, repeat) },
    { against: 'resumed', differences: await compareBranches(whole, resumed) },
  ];
  const flipped = await seesFlippedBit(whole);
  const digest = (bytes: Uint8Array) => sha256HexAsync(bytes);
  const facts = {
    steps,
    stopAfter,
    adapterSha256: await digest(whole.files['adapter_model.safetensors']),
    optimizerSha256: await digest(whole.files['optimizer.safetensors']),
    rollouts: [...whole.rollouts.values()].reduce((sum, list) => sum + list.length, 0),
  };
  const passed = flipped !== null && compared.every(({ differences }) => differences.length === 0);
  const record = {
    schema: 'shaderl.resume-qualification/1',
    planSha256: context.sha256,
    arm: plan.arm,
    family: plan.kernels.family,
    device: context.device!.facts,
    folder: root,
    ...facts,
    compared,
    flippedBitSeen: flipped,
    passed,
  };
  await storage.write(EVIDENCE.resume, jsonBytes(record));
  if (!passed) throw notReproducible(`${storage.label}/${EVIDENCE.resume}`, compared, flipped);
  return { files: [EVIDENCE.resume], facts: { ...facts, passed } };
}

function notReproducible(
  label: string,
  compared: readonly { against: string; differences: readonly Difference[] }[],
  flipped: Difference | null,
): AuditError {
  const failed = compared.find(({ differences }) => differences.length > 0);
  const found = failed
    ? differenceText(failed.differences[0]!, ['the uninterrupted run', `the ${failed.against} run`])
    : `a comparison that does not see a flipped bit (${flipped})`;
  return new AuditError(
    'not-reproducible',
    `qualifying the resume (${label}): found ${found}; wanted equal bytes. Nothing is trained on a device where a ` +
      'stopped run does not end as an uninterrupted one. Report the difference; run again with --resume to repeat it.',
  );
}
