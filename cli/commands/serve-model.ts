// `shaderl serve-model`: serves a policy over OpenAI's API until it is told to stop.
// Not for the open network as it stands: there is no TLS. Invariant: it listens on loopback unless --host says
// otherwise.
import { type Command, Option } from 'commander';
import { addCommand, numberOption, seedRange } from '../command.ts';
import type { OpenSession } from '../main.ts';

interface ServeModelOptions {
  json?: boolean;
  model: string;
  adapter?: string;
  family: 'portable' | 'matrix';
  host: string;
  port: number;
  tokenFile?: string;
  maxConcurrent: number;
  maxWaiting: number;
  maxTokens: number;
  context?: number;
  deadline: number;
  seed?: number;
}

const maxBodyBytes = 16 * 1024 * 1024;

export function addServeModel(program: Command, openSession: OpenSession): void {
  const whole = { integer: true };
  addCommand(program, {
    name: 'serve-model',
    summary: "serve a policy over OpenAI's API, for agents and evaluators",
    details:
      'Answers /v1/chat/completions (whole or streamed), /v1/responses, /v1/models, /tokenize and /health. Requests ' +
      'share the device; what one is answered depends on its prompt, its seed and its settings alone. Answers carry ' +
      'token ids and log-probs as NeMo Gym reads them; a conversation that sends them back goes on from those very ' +
      'ids. Tool calls are parsed, never run. What the sampler does not have (top_logprobs, penalties, forced ' +
      'calls) is an error. Prints its address, then serves until Ctrl-C or SIGTERM.',
    examples: [
      'shaderl serve-model --model ~/models/Qwen3-0.6B --port 8080',
      'shaderl serve-model --model ~/models/Qwen3-0.6B --adapter runs/a/checkpoints/step-000064 \\\n' +
        '      --host 0.0.0.0 --token-file token.txt --max-concurrent 32',
    ],
  })
    .requiredOption('--model <dir>', 'folder of a Hugging Face checkpoint with its tokenizer and chat template')
    .option('--adapter <dir>', 'folder of a PEFT LoRA adapter, such as a sealed checkpoint')
    .addOption(new Option('--family <family>', 'kernel family').choices(['portable', 'matrix']).default('portable'))
    .option('--host <address>', 'address to listen on', '127.0.0.1')
    .addOption(numberOption('--port <n>', 'port; 0 for any free one', { min: 0, max: 65_535, ...whole }, 0))
    .option('--token-file <file>', 'file with the bearer token that requests must carry')
    .addOption(
      numberOption('--max-concurrent <n>', 'requests that are sampled at once', { min: 1, max: 1024, ...whole }, 8),
    )
    .addOption(
      numberOption('--max-waiting <n>', 'requests that may wait; more get 429', { min: 0, max: 65_536, ...whole }, 64),
    )
    .addOption(numberOption('--max-tokens <n>', 'most tokens of one answer', { min: 1, ...whole }, 1024))
    .addOption(
      numberOption(
        '--context <n>',
        'most tokens of prompt and answer together (default: 2048, or what the model has)',
        {
          min: 2,
          ...whole,
        },
      ),
    )
    .addOption(numberOption('--deadline <s>', 'seconds a request may take, waiting included', { above: 0 }, 600))
    .addOption(
      numberOption(
        '--seed <n>',
        'seed of requests that name none (default: one at random, which the answer names)',
        seedRange,
      ),
    )
    .action(async (options: ServeModelOptions) => {
      const session = openSession(options);
      const { isLoopback, readToken, startModelServer } = await import('../../workers/serve-model-node.ts');
      const { model, family, host, port, maxConcurrent, maxWaiting, maxTokens, deadline } = options;
      const token = options.tokenFile === undefined ? null : readToken(options.tokenFile);
      const stopped = new Promise<string>((resolve) => {
        for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => resolve(name));
      });
      session.progress.update(`loading ${model}`);
      const server = await startModelServer({
        model,
        adapter: options.adapter ?? null,
        family,
        host,
        port,
        token,
        limits: { maxConcurrent, maxWaiting, maxTokens, maxBodyBytes, deadlineMs: deadline * 1000 },
        context: options.context ?? null,
        defaultSeed: options.seed ?? null,
        report: (error) =>
          session.progress.line(error instanceof Error ? (error.stack ?? error.message) : String(error)),
      });
      if (token === null && !isLoopback(host)) {
        session.progress.line(`anyone who reaches ${host} can use this model: give --token-file to ask for a token`);
      }
      const { url, modelName, about } = server;
      session.result(
        { url, model: modelName, token: token !== null, pid: process.pid, ...about },
        `serving ${modelName} at ${url}/v1 on ${about.device} (${family}), ${maxConcurrent} requests at once, ` +
          `${about.context} tokens each${about.canary === null ? '' : `\nnote: ${about.canary}`}`,
      );
      const signal = await stopped;
      session.progress.line(`${signal}: closing`);
      await server.stop();
    });
}
