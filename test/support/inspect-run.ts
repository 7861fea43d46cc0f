// A run's folder for the inspector's tests: rollouts played by the scripted expert in the real environment through the
// rollout code itself, with invented log-probs, and a journal that verifies.
// Not a run of a model. Invariant: everything follows from the options; equal options give equal rollouts.
import { createGermanEnvironment } from '../../src/environments/german-environment.ts';
import {
  chooseImperfection,
  expertTranscript,
  INVALID_CALL_OBSERVATION,
  MISTAKE_PROBABILITIES,
} from '../../src/environments/german-expert.ts';
import { trainTasks } from '../../src/environments/german-task.ts';
import type { EnvironmentPort, Task } from '../../src/environments/port.ts';
import { agentItem } from '../../src/evaluate.ts';
import { buildEvaluation, formatEvaluation } from '../../src/evaluation/results.ts';
import { type Journal, openJournal } from '../../src/journal.ts';
import { philox4x32 } from '../../src/lib/rng.ts';
import { sha256HexAsync } from '../../src/lib/sha256.ts';
import { createNodeStorage } from '../../src/lib/storage-node.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import { loadText, type Text } from '../../src/model/text.ts';
import type { Episode } from '../../src/rollout/episode.ts';
import { addDrawn, endTurn, type MemberSpec, startMember, toEpisode } from '../../src/rollout/member.ts';
import { resolveRunConfig } from '../../src/run-config.ts';

export const tokenizerFolder = 'fixtures/embedded-policy';

export interface FixtureOptions {
  steps: number;
  groupSize?: number;
  seed?: number;
  /** Share of faultless rollouts at the first and the last step. */
  skill?: [first: number, last: number];
  /** Changes the episodes of a step before they are written. */
  edit?: (episodes: Episode[], step: number) => void;
}

const draw = (seed: number, stream: number, index: number) =>
  philox4x32([index, stream, 0, 0], [seed, 0x1f])[0]! / 2 ** 32;
const hash = (text: string) => sha256HexAsync(text);
const unix = Date.UTC(2026, 9, 20, 8);

async function play(
  spec: MemberSpec,
  text: Text,
  environment: EnvironmentPort,
  faultless: number,
  policy: string,
): Promise<Episode> {
  const settings = {
    temperature: 0.6,
    maxCompletionTokens: 768,
    maxToolRounds: 3,
    enableThinking: true,
    invalidCallObservation: INVALID_CALL_OBSERVATION,
    policy,
  };
  const stream = (spec.step * 64 + spec.group) * 64 + spec.member;
  const worse = Object.fromEntries(
    Object.entries(MISTAKE_PROBABILITIES).map(([name, p]) => [name, (p * (1 - faultless)) / 0.55]),
  ) as Record<keyof typeof MISTAKE_PROBABILITIES, number>;
  const transcript = expertTranscript(spec.task, { imperfection: chooseImperfection(spec.seed, stream, worse) });
  const opened = await environment.open(spec.task);
  const prompt = text.renderPrompt({ messages: opened.messages, tools: opened.tools, enableThinking: true });
  const member = startMember(spec, opened.sessionId, prompt, opened.tools, 0);
  for (const turn of transcript.turns) {
    if (member.done) break;
    for (const id of [...text.encodeTrusted(turn.assistant), text.imEndId!]) {
      const u = draw(spec.seed, stream, member.stream.ids.length);
      const logprob = Math.fround(-3 * u ** 6);
      const stop = addDrawn(
        member,
        { id, logprob, truncatedLogprob: Math.fround(logprob * 0.9), entropy: 0 },
        text,
        settings,
      );
      if (stop !== null) await endTurn(member, stop, environment, text, settings);
    }
  }
  const verdict = await environment.verify(opened.sessionId, member.finalText, member.invalidDispatches);
  return toEpisode(member, settings, { verdict }, 0.5);
}

const bytesOf = (text: string) => new TextEncoder().encode(text);
export const linesOf = (episodes: readonly Episode[]) => episodes.map((e) => `${JSON.stringify(e)}\n`).join('');

async function stepEvent(journal: Journal, step: number, steps: number, episodes: readonly Episode[], text: string) {
  const rewards = episodes.map((e) => e.verdict?.reward ?? 0);
  const mean = rewards.reduce((a, b) => a + b, 0) / rewards.length;
  const std = Math.sqrt(rewards.reduce((sum, r) => sum + (r - mean) ** 2, 0) / rewards.length);
  const lengths = episodes.map((e) => e.mask.reduce((sum: number, bit) => sum + bit, 0));
  const calls = episodes.flatMap((e) => e.turns.flatMap((turn) => turn.calls));
  const noise = (stream: number) => draw(99, stream, step);
  await journal.append({ kind: 'audit', data: { step, rollouts: episodes.length, findings: [] } });
  await journal.append({
    kind: 'step',
    data: {
      step,
      metrics: {
        reward: mean,
        reward_std: std,
        'rewards/strict/mean': episodes.filter((e) => e.verdict?.strict).length / episodes.length,
        kl: 0.02 * (step / steps) ** 1.3 * (0.6 + 0.8 * noise(1)),
        entropy: 0.24 - 0.1 * (step / steps) + 0.04 * noise(2),
        grad_norm: 0.5 + 0.6 * noise(3),
        'clip_ratio/region_mean': 0,
        'completions/mean_length': lengths.reduce((a, b) => a + b, 0) / lengths.length,
        'completions/min_length': Math.min(...lengths),
        'completions/max_length': Math.max(...lengths),
        'tools/call_frequency': calls.length / episodes.length,
        'tools/failure_frequency': calls.filter((c) => c.status !== 'ok').length / Math.max(1, calls.length),
        learning_rate: 1e-4,
      },
      adapterSha256: await hash(`adapter ${step}`),
      optimizerSha256: await hash(`optimizer ${step}`),
      rollouts: {
        file: `rollouts/step-${String(step).padStart(6, '0')}.jsonl`,
        sha256: await hash(text),
        evidenceSha256: await hash(text),
      },
      seconds: { rollout: 1.5 + noise(4), audit: 0.2 + 0.1 * noise(5), train: 0.8 + 0.4 * noise(6) },
    },
  });
}

export interface FixtureRun {
  folder: string;
  /** Adds one more step as a running job would: the rollouts first, then the journal. */
  addStep(): Promise<number>;
  /** The step's episodes, played again. */
  episodes(step: number): Promise<Episode[]>;
}

/** Writes a run into `folder`. With steps 0 the journal has its start alone. */
export async function writeFixtureRun(folder: string, options: FixtureOptions): Promise<FixtureRun> {
  const { steps, groupSize = 4, seed = 20261020, skill = [0.2, 0.9], edit } = options;
  const text = await loadText(folderSource(tokenizerFolder));
  const storage = createNodeStorage(folder);
  let clock = 0;
  const opened = await openJournal(storage, 'journal.jsonl', () => new Date(unix + 1000 * clock++).toISOString());
  const { journal } = opened;
  const planned = JSON.stringify({
    model: tokenizerFolder,
    output: 'runs/fixture',
    seed,
    steps: Math.max(1, steps),
    data: { count: 64 },
    grpo: { groupSize },
  });
  const { config, sha256 } = await resolveRunConfig(planned, 'the fixture');
  const tasks = trainTasks(config.data.seeds.train, config.data.count);
  const environment = createGermanEnvironment();
  await storage.write('run-config.json', bytesOf(JSON.stringify(config, null, 2)));
  await journal.append({
    kind: 'run-start',
    data: {
      runId: sha256.slice(0, 16),
      planSha256: sha256,
      device: { vendor: 'mesa', architecture: '', device: 'llvmpipe', description: 'software', dawn: 'webgpu 0.6.2' },
      kernelFamily: 'portable',
      versions: { shaderl: '0.1.0' },
      shaderDigests: {},
    },
  });

  async function group(task: Task, step: number, index: number, size: number, faultless: number, policy: string) {
    const episodes: Episode[] = [];
    for (let member = 0; member < size; member++) {
      episodes.push(await play({ task, step, group: index, member, seed }, text, environment, faultless, policy));
    }
    return episodes;
  }
  async function episodesOf(step: number): Promise<Episode[]> {
    const faultless = skill[0] + ((skill[1] - skill[0]) * (step - 1)) / Math.max(1, steps - 1);
    const policy = await hash(`adapter ${step - 1}`);
    const episodes = await group(tasks[step % tasks.length]!, step, 0, groupSize, Math.min(1, faultless), policy);
    edit?.(episodes, step);
    return episodes;
  }
  async function writeStep(step: number): Promise<void> {
    const episodes = await episodesOf(step);
    const content = linesOf(episodes);
    await storage.write(`rollouts/step-${String(step).padStart(6, '0')}.jsonl`, bytesOf(content));
    await stepEvent(journal, step, Math.max(1, steps), episodes, content);
  }
  async function evaluation(name: string, step: number, faultless: number): Promise<void> {
    const policy = await hash(`adapter ${step}`);
    const episodes: Episode[] = [];
    for (const [i, task] of tasks.slice(0, 24).entries()) {
      episodes.push(...(await group(task, 0, i, 1, faultless, policy)));
    }
    const result = buildEvaluation({
      suite: 'agent',
      dataSha256: null,
      modelTreeSha256: await hash('model'),
      adapterSha256: policy,
      device: 'llvmpipe',
      family: 'portable',
      sampling: {
        temperature: 0.6,
        topP: 0.95,
        topK: 20,
        minP: 0,
        maxTokens: 768,
        maxToolRounds: 3,
        thinking: true,
        thinkingBudget: null,
      },
      seeds: [seed],
      wallSeconds: 10,
      items: episodes.map((episode) => agentItem(episode, text)),
    });
    const content = formatEvaluation(result);
    await storage.write(`evaluations/${name}.json`, bytesOf(content));
    await storage.write(`evaluations/${name}.rollouts.jsonl`, bytesOf(linesOf(episodes)));
    await journal.append({
      kind: 'evaluation',
      data: {
        step,
        name,
        suite: 'agent',
        policy,
        items: episodes.length,
        metrics: { strict: result.totals.correct / result.totals.samples },
        result: { file: `evaluations/${name}.json`, sha256: await hash(content) },
        seconds: 10,
      },
    });
  }

  if (steps > 0) await evaluation('before', 0, skill[0]);
  for (let step = 1; step <= steps; step++) {
    await writeStep(step);
    if (steps > 3 && step === Math.floor(steps / 2)) {
      const sealSha256 = await hash('seal');
      const name = `checkpoints/step-${String(step).padStart(6, '0')}`;
      await journal.append({ kind: 'checkpoint', data: { step, folder: name, sealSha256 } });
      const { device, versions } = { device: { device: 'llvmpipe' }, versions: { shaderl: '0.1.0' } };
      await journal.append({
        kind: 'resume',
        data: { fromStep: step, folder: name, sealSha256, skipped: [], overrides: [], device, versions },
      });
    }
  }
  if (steps > 0) await evaluation('after', steps, skill[1]);
  let written = steps;
  return {
    folder,
    episodes: episodesOf,
    async addStep() {
      written += 1;
      await writeStep(written);
      return written;
    },
  };
}
