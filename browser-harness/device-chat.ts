// One conversation in the device worker: the rollout code with one member, against the in-page German environment.
// Not a chat of several questions: each question starts anew. Invariant: the stream is made as in training.
import { createGermanEnvironment } from '../src/environments/german-environment.ts';
import { INVALID_CALL_OBSERVATION } from '../src/environments/german-expert.ts';
import { trainTasks } from '../src/environments/german-task.ts';
import type { Gpu } from '../src/gpu/device.ts';
import { createStreamDecoder } from '../src/model/stream-decoder.ts';
import type { Episode } from '../src/rollout/episode.ts';
import { addDrawn, endTurn, startMember, toEpisode } from '../src/rollout/member.ts';
import { createSampler } from '../src/rollout/sampler.ts';
import type { ChatRequest } from './device-api.ts';
import type { DeviceModel } from './device-model.ts';

const passRows = 256;

/** Answers one question; text is given as it is sampled. */
export async function runChat(
  gpu: Gpu,
  model: DeviceModel,
  request: ChatRequest,
  onText: (kind: 'sampled' | 'environment', text: string) => void,
): Promise<Episode> {
  const { text, gpuModel } = model;
  const { temperature, seed, maxTokens, message } = request;
  const environment = createGermanEnvironment();
  const task = trainTasks(seed, request.task + 1)[request.task]!;
  const opened = await environment.open(task);
  const messages = opened.messages.map((one) =>
    one.role === 'user' && message !== null ? { ...one, content: message } : one,
  );
  const prompt = text.renderPrompt({ messages, tools: opened.tools, enableThinking: true });
  const settings = {
    temperature,
    maxCompletionTokens: Math.min(maxTokens, model.length - prompt.length),
    maxToolRounds: 3,
    enableThinking: true,
    invalidCallObservation: INVALID_CALL_OBSERVATION,
    policy: 'base',
  };
  const member = startMember(
    { task, step: 0, group: 0, member: 0, seed },
    opened.sessionId,
    prompt,
    opened.tools,
    performance.now(),
  );
  const sampling = { temperature, topP: 0.95, topK: 20, minP: 0 };
  const sampler = createSampler(
    gpu,
    gpuModel,
    { slots: 1, cacheLength: model.length, rows: passRows },
    sampling,
    text.vocabularySize,
    null,
  );
  try {
    let cached = 0;
    let decoder = createStreamDecoder(text);
    while (!member.done) {
      const tokens = member.pending.splice(0, passRows);
      const key =
        member.pending.length === 0 ? { seed, step: 0, group: 0, member: 0, position: member.stream.ids.length } : null;
      const [drawn] = await sampler.step([{ slot: 0, start: cached, tokens, key }]);
      cached += tokens.length;
      if (!drawn) continue;
      const stop = addDrawn(member, drawn, text, settings);
      onText('sampled', decoder.push(drawn.id));
      if (stop === null) continue;
      onText('sampled', decoder.end());
      const from = member.stream.ids.length;
      await endTurn(member, stop, environment, text, settings);
      if (member.stream.ids.length > from) onText('environment', text.decode(member.stream.ids.slice(from)));
      decoder = createStreamDecoder(text);
    }
    // Another question than the task's own has no right answer to be scored by.
    if (message !== null) {
      const reason = 'another question than the task’s own is not scored';
      return toEpisode(member, settings, { infrastructure: reason }, (performance.now() - member.startedAt) / 1000);
    }
    const verdict = await environment.verify(opened.sessionId, member.finalText, member.invalidDispatches);
    return toEpisode(member, settings, { verdict }, (performance.now() - member.startedAt) / 1000);
  } finally {
    sampler.destroy();
  }
}
