// Step metrics from the rollouts of a step, under TRL's names.
// Not the loss metrics (loss-tallies.ts) and not a logger: plain numbers out, null where nothing could be averaged.
// Invariant: a row without a reward takes no part in reward statistics; lengths count sampled tokens only.
import { type AdvantageScale, moments } from './advantages.ts';

export interface MetricRow {
  promptTokens: number;
  /** Tokens that the model sampled; observations and template tokens do not count. */
  sampledTokens: number;
  /** The last id is a stop id. */
  terminated: boolean;
  /** The last turn hit a token limit, or an observation was dropped for lack of budget. */
  capped: boolean;
  toolCalls: number;
  toolFailures: number;
  /** Each reward function's value, null where it does not apply. */
  rewards: Readonly<Record<string, number | null>>;
  /** The weighted sum, null for an unscorable row. */
  reward: number | null;
}

export interface MetricOptions {
  /** Rows of a group are adjacent. */
  groupSize: number;
  scale: AdvantageScale;
  /** `num_tokens` up to the step before. */
  tokensBefore: number;
  /** Report `tools/*`. */
  tools: boolean;
}

/**
 * `reward` and `reward_std` (all rows, ddof 1), `frac_reward_zero_std` (share of rows whose group, or with scale
 * `batch` whose step, has a std within 1e-8 of 0 or undefined), `rewards/<name>/{mean,std}`, `completions/*_length`,
 * `completions/clipped_ratio`, `completions/*_terminated_length` (0 if none terminated),
 * `tools/{call,failure}_frequency`, `num_tokens` (cumulative prompt and sampled tokens), and our
 * `completions/capped_ratio`.
 */
export function stepMetrics(rows: readonly MetricRow[], options: MetricOptions): Record<string, number | null> {
  const count = rows.length;
  const lengths = rows.map((row) => row.sampledTokens);
  const terminated = rows.filter((row) => row.terminated).map((row) => row.sampledTokens);
  const share = (matches: (row: MetricRow) => boolean) => rows.filter(matches).length / count;
  const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
  const spread = (values: readonly number[], name: string) => ({
    [`completions/mean_${name}`]: values.length === 0 ? 0 : sum(values) / values.length,
    [`completions/min_${name}`]: values.length === 0 ? 0 : Math.min(...values),
    [`completions/max_${name}`]: values.length === 0 ? 0 : Math.max(...values),
  });
  const total = moments(rows.map((row) => row.reward));
  const metrics: Record<string, number | null> = {
    num_tokens: options.tokensBefore + sum(rows.map((row) => row.promptTokens + row.sampledTokens)),
    ...spread(lengths, 'length'),
    'completions/clipped_ratio': share((row) => !row.terminated),
    'completions/capped_ratio': share((row) => row.capped),
    ...spread(terminated, 'terminated_length'),
  };
  if (options.tools) {
    const calls = sum(rows.map((row) => row.toolCalls));
    metrics['tools/call_frequency'] = calls / count;
    metrics['tools/failure_frequency'] = calls === 0 ? 0 : sum(rows.map((row) => row.toolFailures)) / calls;
  }
  for (const name of new Set(rows.flatMap((row) => Object.keys(row.rewards)))) {
    const { mean, std } = moments(rows.map((row) => row.rewards[name] ?? null));
    metrics[`rewards/${name}/mean`] = mean;
    metrics[`rewards/${name}/std`] = std;
  }
  metrics['reward'] = total.mean;
  metrics['reward_std'] = total.std;
  metrics['frac_reward_zero_std'] = zeroStdShare(rows, options, total.std);
  return metrics;
}

function zeroStdShare(rows: readonly MetricRow[], { groupSize, scale }: MetricOptions, batchStd: number | null) {
  const isZero = (std: number | null) => std === null || std <= 1e-8;
  if (scale === 'batch') return isZero(batchStd) ? 1 : 0;
  let zero = 0;
  for (let start = 0; start < rows.length; start += groupSize) {
    const group = rows.slice(start, start + groupSize);
    if (isZero(moments(group.map((row) => row.reward)).std)) zero += group.length;
  }
  return zero / rows.length;
}
