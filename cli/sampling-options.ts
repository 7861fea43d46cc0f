// The options that say how tokens are drawn, shared by the commands that draw some. The defaults are those of training.
import type { Command } from 'commander';
import { numberOption } from './command.ts';

export interface SamplingOptions {
  maxTokens: number;
  temperature: number;
  topK: number;
  topP: number;
  minP: number;
}

/** Adds --max-tokens, --temperature, --top-k, --top-p and --min-p. */
export function addSamplingOptions(command: Command, maxTokens: { meaning: string; fallback: number }): Command {
  const whole = { integer: true };
  return command
    .addOption(numberOption('--max-tokens <n>', maxTokens.meaning, { min: 1, ...whole }, maxTokens.fallback))
    .addOption(numberOption('--temperature <t>', 'divides the logits; 0 takes the most likely token', { min: 0 }, 0.6))
    .addOption(numberOption('--top-k <n>', 'keep the n most likely tokens; 0 is off', { min: 0, ...whole }, 20))
    .addOption(numberOption('--top-p <p>', 'keep this much of the probability; 1 is off', { above: 0, max: 1 }, 0.95))
    .addOption(
      numberOption('--min-p <p>', 'drop what is less likely than p times the top one; 0 is off', { min: 0, max: 1 }, 0),
    );
}
