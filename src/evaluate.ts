// Runs an evaluation suite with a policy and turns the episodes into an evaluation's items.
// Not a comparison and not a trainer. Invariant: a sample's tokens depend on the policy, its item and its seed alone;
// every class of outcome is kept apart, and infrastructure is never a failure of the policy.
import type { EnvironmentPort, Task } from './environments/port.ts';
import { extractAnswer } from './evaluation/answers.ts';
import { classify, classifyEpisode, countToolErrors } from './evaluation/outcomes.ts';
import type { EvaluationItem } from './evaluation/results.ts';
import { mathMessages } from './item-prompts.ts';
import type { Text } from './model/text.ts';
import { collect } from './rollout/collect.ts';
import type { Episode } from './rollout/episode.ts';
import type { RolloutSettings } from './rollout/member.ts';
import type { Sampler } from './rollout/sampler.ts';
import { endsInReasoning } from './rollout/tool-calls.ts';

export interface EvaluationPorts {
  sampler: Sampler;
  text: Text;
  now: () => number;
  onProgress?: (finished: number, total: number) => void;
}

export interface EvaluatedItems {
  items: EvaluationItem[];
  episodes: Episode[];
  /** Drawn and in no episode; differs between equal evaluations (collect.ts has why). */
  droppedTokens: number;
}

/** One math question with its exact answer as a canonical decimal. */
export interface MathItem {
  id: string;
  question: string;
  gold: string;
}

const reportedFinalText = 400;

function sampledTokens(episode: Episode): number {
  return episode.mask.reduce((sum: number, bit) => sum + bit, 0);
}

function common(episode: Episode) {
  return {
    id: episode.taskId,
    seed: episode.seed,
    capped: episode.capped,
    sampledTokens: sampledTokens(episode),
    discardedTokens: episode.discardedTokens,
    seconds: episode.seconds,
  };
}

/** Text of the last turn after its last `</think>`, without control tokens at its end. */
function lastReply(episode: Episode, text: Text): string {
  const last = episode.turns.at(-1);
  if (!last) return '';
  const ids = episode.ids.slice(last.span[0], last.span[1]);
  const stop = ids.at(-1);
  const ended = stop !== undefined && (text.stopIds.includes(stop) || text.endIds.includes(stop));
  return text.decode(ended ? ids.slice(0, -1) : ids);
}

/** An agent episode as an item: strict success, shaped reward, tool errors by class. */
export function agentItem(episode: Episode, text: Text): EvaluationItem {
  const reply = lastReply(episode, text);
  const { verdict } = episode;
  return {
    ...common(episode),
    outcome: classifyEpisode(episode),
    ...(verdict ? { strict: verdict.strict, reward: verdict.reward, answer: verdict.answer } : {}),
    ...(verdict ? { toolErrors: verdict.toolErrors, invalidDispatches: verdict.invalidDispatches } : {}),
    toolErrorClasses: { ...countToolErrors(episode) },
    finish: episode.capped ? 'truncated' : 'finished',
    finalText: reply.slice(-reportedFinalText),
  };
}

/** One key stream a seed: (seed, step 0, item index, member 0). */
function specs(tasks: readonly Task[], seed: number) {
  return tasks.map((task, group) => [{ task, step: 0, group, member: 0, seed }]);
}

/** Rolls out every task once per seed. Items come by seed, then in task order. */
export async function evaluateAgent(
  tasks: readonly Task[],
  seeds: readonly number[],
  settings: RolloutSettings,
  environment: EnvironmentPort,
  ports: EvaluationPorts,
): Promise<EvaluatedItems> {
  const items: EvaluationItem[] = [];
  const episodes: Episode[] = [];
  let droppedTokens = 0;
  const onDropped = (count: number) => {
    droppedTokens += count;
  };
  const total = tasks.length * seeds.length;
  for (const [s, seed] of seeds.entries()) {
    const onProgress = (finished: number) => ports.onProgress?.(s * tasks.length + finished, total);
    const made = await collect(specs(tasks, seed), settings, { ...ports, environment, onProgress, onDropped });
    for (const episode of made.flat()) {
      items.push(agentItem(episode, ports.text));
      episodes.push(episode);
    }
  }
  return { items, episodes, droppedTokens };
}

/** An environment without tools whose verdict says nothing: math replies are graded from their text. */
function questionEnvironment(): EnvironmentPort {
  let opened = 0;
  return {
    async open(task) {
      opened += 1;
      return {
        sessionId: `${task.id}#${opened}`,
        messages: mathMessages(String(task.payload['question'])),
        tools: [],
      };
    },
    async call() {
      return { content: '', error: true };
    },
    async verify() {
      return { strict: false, reward: 0, parts: {}, invalidDispatches: 0, toolErrors: 0, answer: null, log: [] };
    },
    async log() {
      return [];
    },
    async close() {},
  };
}

/** Asks every question once per seed and grades the replies by the German answer extractor. */
export async function evaluateMath(
  problems: readonly MathItem[],
  seeds: readonly number[],
  settings: RolloutSettings,
  ports: EvaluationPorts,
): Promise<EvaluatedItems> {
  const gold = new Map(problems.map((problem) => [problem.id, problem.gold]));
  const tasks = problems.map(({ id, question }) => ({ id, payload: { question } }));
  const environment = questionEnvironment();
  const made = await evaluateAgent(tasks, seeds, { ...settings, maxToolRounds: 0 }, environment, ports);
  const items = made.episodes.map((episode): EvaluationItem => {
    const reply = lastReply(episode, ports.text);
    const prompt = episode.ids.slice(0, episode.promptLength);
    const extracted = extractAnswer(reply, { thinkingOpenedByPrompt: endsInReasoning(prompt, ports.text) });
    const outcome = classify({
      extracted,
      gold: gold.get(episode.taskId)!,
      capped: episode.capped,
      replyLength: reply.normalize('NFC').length,
      infrastructure: episode.infrastructure,
    });
    return {
      ...common(episode),
      outcome,
      answer: extracted.value,
      rule: extracted.rule,
      ambiguous: extracted.ambiguous,
      finish: episode.capped ? 'truncated' : 'finished',
      finalText: reply.slice(-reportedFinalText),
    };
  });
  return { ...made, items };
}
