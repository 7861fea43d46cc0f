// Whether an OpenEnv server holds as many sessions at once as a run needs, asked before the first rollout.
// Not an admission (service/admission.ts), which goes by what the server says meanwhile. Invariant: every session that is
// opened for the question is closed again; nothing is reset or stepped.
import { EnvError } from '../../lib/errors.ts';
import type { Deadlines } from '../service/deadlines.ts';
import { baseUrl, type ConnectSocket } from '../service/transport.ts';
import { type Channel, openChannel } from './channel.ts';
import { stateText } from './messages.ts';

/**
 * Opens `wanted` sessions side by side. Throws EnvError `small-service` where the server's cap is smaller. A server whose
 * places others hold now is not refused: openings wait for those. Throws a fault where it cannot be spoken to.
 */
export async function requireRoom(
  url: string,
  wanted: number,
  connect: ConnectSocket,
  deadlines: Deadlines,
): Promise<void> {
  const socketUrl = `${baseUrl(url).replace(/^http/, 'ws')}/ws`;
  const doing = `checking that ${socketUrl} has room`;
  let cap: number | null = null;
  const onCap = (told: number): void => {
    cap = told;
  };

  /** Whether the server refused it for being full. */
  async function isRefused(): Promise<boolean> {
    let channel: Channel | null = null;
    try {
      channel = await openChannel(doing, socketUrl, connect, deadlines, onCap);
      channels.push(channel);
      await channel.request(doing, stateText, 'state');
      return false;
    } catch (error) {
      if (error instanceof EnvError && error.code === 'service-capacity') return true;
      throw error;
    }
  }

  const channels: Channel[] = [];
  const asked = await Promise.allSettled(Array.from({ length: wanted }, isRefused));
  await Promise.all(channels.map((channel) => channel.finish()));
  const failed = asked.find((outcome) => outcome.status === 'rejected');
  if (failed) throw failed.reason;
  const room = asked.filter((outcome) => outcome.status === 'fulfilled' && !outcome.value).length;
  if (room === wanted || (cap ?? room) >= wanted) return;
  throw new EnvError(
    'small-service',
    `${doing}: found ${cap ?? room} sessions at once; wanted ${wanted}, one for each rollout of a step. Start the ` +
      'service with more (max_concurrent_envs), or take fewer or smaller groups a step.',
  );
}
