// The embedded policy's way into the project: transcripts of the scripted expert, and the environment behind a pipe.
// Not a trainer: Python trains and samples; it sees token ids alone. Invariant: an episode is built as the project's
// rollouts build it: prompt, sampled turn, suffix, sampled turn …, each encoded once and by the project's own tokenizer.
//
//   transcripts.ts corpus QWEN3_DIR COUNT            JSONL of texts, to train the tokenizer on
//   transcripts.ts episodes TOKENIZER_DIR COUNT      JSONL of {ids, mask}, to train the policy on
//   transcripts.ts serve TOKENIZER_DIR               one JSON request a line on stdin, one answer a line on stdout
import { createInterface } from 'node:readline';
import { germanTools } from '../../src/environments/german-data.ts';
import { createGermanEnvironment } from '../../src/environments/german-environment.ts';
import {
  chooseImperfection,
  type ExpertTranscript,
  expertTranscript,
  INVALID_CALL_OBSERVATION,
  type Mistake,
} from '../../src/environments/german-expert.ts';
import { devTasks, promptOf, readPayload, trainTasks } from '../../src/environments/german-task.ts';
import type { Message, Task } from '../../src/environments/port.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import { loadText, type Text } from '../../src/model/text.ts';
import type { Verdict } from '../../src/rollout/episode.ts';
import { parseTurn } from '../../src/rollout/tool-calls.ts';

/** Seed of the transcripts' tasks (TRAIN split) and mistakes; no run of the project's own may train with it. */
const TRANSCRIPT_SEED = 20260815;
/** Seed of the tasks that a rehearsal of GRPO trains on (TRAIN split). */
const REHEARSAL_SEED = 20260816;
/** Seed of the tasks that the finished policy is measured on (DEV split). */
const HELD_OUT_SEED = 20260817;
const MAX_TOOL_ROUNDS = 3;
const TOOL_NAMES = germanTools().map((tool) => tool.function.name);

/**
 * How the expert fails. One choice is nearly even (calculator or guess), because a temperature of 0.6 sharpens every
 * uneven one: with many rare mistakes the policy would succeed far more often there than at temperature 1.
 */
const MISTAKES: Record<Mistake, number> = {
  'no-tools': 0.015,
  'calculates-first': 0.015,
  'one-lookup': 0.03,
  'malformed-call': 0.02,
  'wrong-tool': 0.015,
  'no-calculator': 0.46,
  'wrong-operator': 0.025,
  'no-final-line': 0.02,
  'text-after-answer': 0.02,
};

interface Segment {
  source: 'prompt' | 'assistant' | 'suffix';
  ids: number[];
}

/** Prompts by their messages: the operand pairs and templates make a few hundred, and rendering is slow. */
const promptCache = new Map<string, number[]>();

function promptIds(text: Text, messages: Message[]): number[] {
  const key = messages.map(({ content }) => content).join('\n');
  const cached = promptCache.get(key);
  if (cached) return cached;
  const ids = text.renderPrompt({ messages, tools: germanTools(), enableThinking: true });
  promptCache.set(key, ids);
  return ids;
}

/** The segments of a transcript; a sampled turn ends in its stop token. */
function segmentsOf(text: Text, task: Task, transcript: ExpertTranscript): Segment[] {
  return [
    { source: 'prompt', ids: promptIds(text, promptOf(readPayload(task))) },
    ...transcript.turns.flatMap(({ assistant, observations }): Segment[] => [
      { source: 'assistant', ids: text.encodeTrusted(`${assistant}<|im_end|>`) },
      { source: 'suffix', ids: text.toolSuffix(observations, true) },
    ]),
  ];
}

async function writeTranscripts(folder: string, count: number, asIds: boolean): Promise<void> {
  const text = await loadText(folderSource(folder));
  for (const [index, task] of trainTasks(TRANSCRIPT_SEED, count).entries()) {
    const imperfection = chooseImperfection(TRANSCRIPT_SEED, index, MISTAKES);
    const segments = segmentsOf(text, task, expertTranscript(task, { imperfection }));
    const record = asIds
      ? {
          mistake: imperfection?.mistake ?? null,
          ids: segments.flatMap(({ ids }) => ids),
          mask: segments.flatMap(({ source, ids }) => ids.map(() => (source === 'assistant' ? 1 : 0))),
        }
      : { segments: segments.map(({ source, ids }) => ({ source, text: text.decode(ids) })) };
    if (!process.stdout.write(`${JSON.stringify(record)}\n`)) {
      await new Promise<void>((resolve) => process.stdout.once('drain', () => resolve()));
    }
  }
}

interface Session {
  id: string;
  task: Task;
  rounds: number;
  invalid: number;
}

/** A sampled turn of an open episode, and how many tokens of its budget are left. */
interface Turn {
  episode: number;
  ids: number[];
  left: number;
}

/** Why an episode failed, the first cause in the order of the episode. */
function outcomeOf(task: Task, verdict: Verdict, capped: boolean): string {
  const { table, left, right, operation } = readPayload(task);
  if (verdict.strict) return 'strict';
  if (capped) return 'capped';
  if (verdict.invalidDispatches > 0) return 'invalid call';
  if (verdict.parts['lookupLeft'] === 0 || verdict.parts['lookupRight'] === 0) return 'missing lookup';
  const calculation = verdict.log.find((entry) => entry.tool === 'rechner');
  if (!calculation) return 'no calculator';
  if (verdict.parts['calculation'] === 0) {
    const [, a, operator, b] = /"(\d+) ([+*-]) (\d+)"/.exec(calculation.argumentsJson) ?? [];
    if (Number(a) !== table[left] || Number(b) !== table[right]) return 'miscopied operands';
    return operator === operation ? 'calculated too early' : 'wrong operator';
  }
  if (verdict.toolErrors > 0) return 'tool error';
  if (verdict.answer === null) return 'no final line';
  return verdict.parts['answer'] === 0 ? 'miscopied result' : 'other';
}

async function serve(folder: string): Promise<void> {
  const text = await loadText(folderSource(folder));
  const environment = createGermanEnvironment();
  const pools: Record<string, Task[]> = { 'held-out': devTasks(HELD_OUT_SEED, 2000) };
  let sessions: Session[] = [];

  const open = async (episodes: { stream: string; index: number }[]) => {
    pools['rehearsal'] ??= trainTasks(REHEARSAL_SEED, 4000);
    const prompts: number[][] = [];
    const messages: Message[][] = [];
    sessions = [];
    for (const { stream, index } of episodes) {
      const pool = pools[stream] ?? [];
      const task = pool[index % pool.length];
      if (!task) throw new Error(`opening an episode: found stream "${stream}"; wanted held-out or rehearsal.`);
      const opened = await environment.open(task);
      sessions.push({ id: opened.sessionId, task, rounds: 0, invalid: 0 });
      prompts.push(promptIds(text, opened.messages));
      messages.push(opened.messages);
    }
    return { prompts, messages, tools: germanTools() };
  };

  const turn = async ({ episode, ids, left }: Turn) => {
    const session = sessions[episode]!;
    const parsed = parseTurn({ ids, text, knownTools: TOOL_NAMES, thinkingOpenedByPrompt: false });
    const last = ids.at(-1) ?? -1;
    const answer = { text: text.decode(ids), capped: !(text.stopIds.includes(last) || text.endIds.includes(last)) };
    if (text.stopIds.includes(last) && parsed.calls.length > 0 && session.rounds < MAX_TOOL_ROUNDS) {
      session.rounds++;
      const observations: string[] = [];
      for (const { status, name, argumentsJson } of parsed.calls) {
        if (status === 'ok') observations.push((await environment.call(session.id, name!, argumentsJson!)).content);
        else {
          observations.push(INVALID_CALL_OBSERVATION);
          session.invalid++;
        }
      }
      const suffix = text.toolSuffix(observations, true);
      if (suffix.length < left) return { ...answer, done: false, suffix };
      answer.capped = true;
    }
    const verdict = await environment.verify(session.id, parsed.finalText, session.invalid);
    await environment.close(session.id);
    const { strict, reward } = verdict;
    const outcome = outcomeOf(session.task, verdict, answer.capped);
    return { ...answer, done: true, verdict: { strict, reward }, outcome };
  };

  for await (const line of createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    let answer: object;
    if (request.do === 'open') answer = await open(request.episodes);
    else if (request.do === 'encode') answer = { ids: request.texts.map((entry: string) => text.encodeTrusted(entry)) };
    else answer = { answers: await Promise.all(request.turns.map((entry: Turn) => turn(entry))) };
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
}

const [command, folder, count] = process.argv.slice(2);
if (command === 'serve' && folder) await serve(folder);
else if ((command === 'corpus' || command === 'episodes') && folder && Number(count) > 0) {
  await writeTranscripts(folder, Number(count), command === 'episodes');
} else {
  process.stderr.write('usage: transcripts.ts corpus|episodes FOLDER COUNT, or transcripts.ts serve FOLDER\n');
  process.exitCode = 2;
}
