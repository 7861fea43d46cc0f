// The worker that holds a NeMo Gym client, so that its deadlines run while the GPU's thread is busy.
// Not the client itself. Invariant: a session that is open when the worker is stopped is closed where the server can.
import { createNemoGymPort, type NemoGymOptions } from '../src/environments/nemo-gym/client.ts';
import { nodeHttp } from '../src/environments/service/http-node.ts';
import { serve } from './serve.ts';

await serve((data) => {
  const port = createNemoGymPort(data as NemoGymOptions, nodeHttp);
  return { service: port, dispose: () => port.dispose() };
});
