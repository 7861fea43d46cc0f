// `shaderl sample`: lets a policy say something, streamed as it comes.
import { type Command, Option } from 'commander';
import type { KernelFamily } from '../../src/gpu/device.ts';
import { PlanError } from '../../src/lib/errors.ts';
import type { ChatMessage } from '../../src/model/chat-template.ts';
import type { Text } from '../../src/model/text.ts';
import { addCommand, numberOption, seedRange } from '../command.ts';
import { messagesFile, readJsonFile, toolsFile } from '../input-files.ts';
import type { OpenSession } from '../main.ts';
import { formatBytes } from '../progress.ts';
import { addSamplingOptions, type SamplingOptions } from '../sampling-options.ts';

interface SampleOptions extends SamplingOptions {
  json?: boolean;
  model: string;
  adapter?: string;
  family: KernelFamily;
  prompt?: string;
  raw?: boolean;
  messages?: string;
  tools?: string;
  seed: number;
}

export function addSample(program: Command, openSession: OpenSession): void {
  const command = addCommand(program, {
    name: 'sample',
    summary: 'let a model answer a prompt or continue a conversation',
    details:
      'Streams text. No tool is called: a turn that asks for one ends there. --json prints {ids, logprobs, sources, ' +
      'text, stop}, one entry for each token of prompt and answer; log-probs are natural logs at the sampling ' +
      'temperature over the whole vocabulary, null on tokens that were not sampled.',
    examples: [
      'shaderl sample --model ~/models/Qwen3-0.6B --prompt "Name three rivers."',
      'shaderl sample --model ~/models/Qwen3-0.6B --adapter runs/a/checkpoints/step-000064 \\\n' +
        '      --messages chat.json --tools tools.json --temperature 0.6 --seed 7 --json',
    ],
  })
    .requiredOption('--model <dir>', 'folder of a Hugging Face checkpoint with its tokenizer')
    .option('--adapter <dir>', 'folder of a PEFT LoRA adapter, such as a sealed checkpoint')
    .addOption(new Option('--family <family>', 'kernel family').choices(['portable', 'matrix']).default('portable'))
    .addOption(
      new Option(
        '--prompt <text>',
        'a user message; plain text to go on from where the model has no chat template',
      ).conflicts('messages'),
    )
    .option('--raw', 'take --prompt as plain text to go on from, even where there is a chat template')
    .option('--messages <file>', 'a JSON array of chat messages, {"role", "content"}')
    .option('--tools <file>', 'a JSON array of function schemas, to go with --messages');
  addSamplingOptions(command, { meaning: 'most tokens to sample', fallback: 512 })
    .addOption(numberOption('--seed <n>', 'the same seed gives the same tokens on one device', seedRange, 42))
    .action(async (options: SampleOptions) => {
      const session = openSession(options);
      const request = readRequest(options);
      const { openPolicy, requireText } = await import('../../src/model/open-node.ts');
      const { sampleText } = await import('../sample-text.ts');
      const { openGpu } = await import('../../src/gpu/device.ts');
      const policy = await openPolicy(options.model, options.adapter ?? null);
      const text = requireText(policy);
      const promptIds = promptOf(request, text);
      const { maxTokens, temperature, topK, topP, minP, seed } = options;
      const gpu = await openGpu();
      try {
        const result = await sampleText(
          gpu,
          policy,
          options.family,
          { promptIds, maxTokens, seed, settings: { temperature, topK, topP, minP } },
          (piece) => {
            session.progress.clear();
            if (!session.json) session.terminal.out(piece);
          },
          (done, all) => session.progress.update(`loading ${formatBytes(done)} of ${formatBytes(all)}`),
          (text) => session.progress.line(`note: ${text}`),
        );
        // The text is on the screen already; the result adds the end of its line.
        session.result(result, '');
      } finally {
        gpu.destroy();
      }
    });
}

type Request = { raw: string } | { prompt: string } | { messages: ChatMessage[]; tools: string | null };

/** What to answer, from the options and their files. Throws PlanError for a combination that makes no sense. */
function readRequest({ prompt, raw, messages, tools }: SampleOptions): Request {
  const refuse = (found: string, wanted: string, remedy: string) =>
    new PlanError('bad-options', `reading the command line: found ${found}; wanted ${wanted}. ${remedy}`);
  if (messages === undefined) {
    if (prompt === undefined) {
      throw refuse('neither --prompt nor --messages', 'one of them', 'Give --prompt "Hello", for example.');
    }
    if (tools !== undefined)
      throw refuse('--tools with --prompt', '--messages', 'Put the prompt into a messages file.');
    if (prompt === '') throw refuse('an empty --prompt', 'some text', 'Give --prompt "Hello", for example.');
    return raw ? { raw: prompt } : { prompt };
  }
  if (raw) throw refuse('--raw with --messages', '--prompt', 'Leave --raw out: messages go through the chat template.');
  const conversation = readJsonFile(messages, messagesFile, 'a JSON array of {"role", "content"}').value;
  // The template gets the text itself: a parsed object would lose the order of its keys.
  const toolsText =
    tools === undefined ? null : readJsonFile(tools, toolsFile, 'a JSON array of function schemas').text;
  return { messages: conversation as ChatMessage[], tools: toolsText };
}

function promptOf(request: Request, text: Text): number[] {
  if ('messages' in request) return text.renderPrompt({ messages: request.messages, tools: request.tools });
  if ('prompt' in request && text.templateSha256 !== null) {
    return text.renderPrompt({ messages: [{ role: 'user', content: request.prompt }] });
  }
  const plain = 'raw' in request ? request.raw : request.prompt;
  return [...text.documentPrefixIds, ...text.encodeContent(plain)];
}
