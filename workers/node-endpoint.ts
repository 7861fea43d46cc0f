// Comlink's endpoint over a Node Worker or MessagePort, typed: comlink ships its own adapter without a declaration
// that TypeScript finds. Not a transport of its own. Invariant: a listener that is removed hears nothing more.
import type { MessagePort, Transferable, Worker } from 'node:worker_threads';
import type { Endpoint } from 'comlink';

/** The endpoint that `comlink.wrap` and `comlink.expose` take, over `port`. */
export function nodeEndpoint(port: Worker | MessagePort): Endpoint {
  const listeners = new Map<EventListenerOrEventListenerObject, (data: unknown) => void>();
  return {
    postMessage(message, transfer) {
      port.postMessage(message, transfer as unknown as Transferable[] | undefined);
    },
    addEventListener(_type, handler) {
      if (listeners.has(handler)) return;
      const listener = (data: unknown): void => {
        const event = { data } as MessageEvent;
        if ('handleEvent' in handler) handler.handleEvent(event);
        else handler(event);
      };
      listeners.set(handler, listener);
      port.on('message', listener);
    },
    removeEventListener(_type, handler) {
      const listener = listeners.get(handler);
      if (!listener) return;
      listeners.delete(handler);
      port.off('message', listener);
    },
  };
}
