// Fetches the tfjs worker when a second opinion is asked for, and ends it afterwards.
// Not part of the page's own script. Invariant: the file comes from the page's own server, and only now.
import { proxy, type Remote, wrap } from 'comlink';
import { isServed } from './http-source.ts';
import type { Opinion, OpinionService } from './second-opinion.ts';
import workerUrl from './tfjs.worker.ts?worker&url';

export interface FetchedOpinion {
  opinion: Opinion;
  /** Bytes of the worker's file, as they came and after decompressing. */
  bytes: number;
  seconds: number;
}

/** Runs the comparison. Throws with the remedy where the page has no server, or the server has no such file. */
export async function secondOpinion(
  progress: (done: number, all: number, kernel: string) => void,
): Promise<FetchedOpinion> {
  const began = performance.now();
  const response = isServed ? await fetch(workerUrl) : null;
  if (!response?.ok) {
    const found = response ? `status ${response.status} for ${workerUrl}` : 'a page without a server';
    throw new Error(
      `asking tfjs for its opinion: found ${found}; wanted its file from \`shaderl inspect\`. ` +
        'Start `shaderl inspect` from a checkout with its development packages (npm ci).',
    );
  }
  const code = await response.blob();
  const url = URL.createObjectURL(new Blob([code], { type: 'text/javascript' }));
  const worker = new Worker(url);
  try {
    const failed = new Promise<never>((_, reject) => {
      worker.addEventListener('error', (event) => {
        reject(
          new Error(`starting tfjs: found ${event.message || 'a worker that does not start'}; wanted its worker.`),
        );
      });
    });
    const service = wrap<OpinionService>(worker) as Remote<OpinionService>;
    const opinion = await Promise.race([service.compare(proxy(progress)), failed]);
    return { opinion, bytes: code.size, seconds: (performance.now() - began) / 1000 };
  } finally {
    worker.terminate();
    URL.revokeObjectURL(url);
  }
}
