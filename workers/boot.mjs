// Entry of every Node worker: Node < 22.18 cannot load a .ts worker, so tsx is registered first in this thread.
import { workerData } from 'node:worker_threads';
import { register } from 'tsx/esm/api';

register();
await import(workerData.module);
