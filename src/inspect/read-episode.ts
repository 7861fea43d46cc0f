// One line of a rollouts file as a checked Episode.
// Not the audit: the record may contradict itself; only its shape is checked here.
// Invariant: what is returned fits the schema and its per-token arrays can be read at every index.
import { AuditError } from '../lib/errors.ts';
import { issuesText } from '../lib/zod-issues.ts';
import { type Episode, episode as episodeSchema } from '../rollout/episode.ts';

/** Parses a line. Throws AuditError `bad-rollout` naming file, line, field and value. */
export function readEpisode(text: string, label: string, line: number): Episode {
  const refuse = (found: string, wanted: string): never => {
    throw new AuditError(
      'bad-rollout',
      `reading ${label} line ${line}: found ${found}; wanted ${wanted}. ` +
        'Restore the file, or open another line: the rest of it can still be read.',
    );
  };
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return refuse((error as Error).message, 'one rollout as JSON');
  }
  const schema = (value as { schema?: unknown } | null)?.schema;
  if (schema !== 'shaderl.episode/1') refuse(`schema ${JSON.stringify(schema)}`, '"shaderl.episode/1"');
  const parsed = episodeSchema.safeParse(value);
  return parsed.success ? parsed.data : refuse(issuesText(parsed.error, value), 'a shaderl.episode/1 record');
}
