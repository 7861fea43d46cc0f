// The worker that holds an OpenEnv client, so that its pings are answered while the GPU's thread is busy.
// Not the client itself. Invariant: the sockets end with the worker.
import { createOpenEnvPort, type OpenEnvOptions } from '../src/environments/openenv/client.ts';
import { nodeHttp } from '../src/environments/service/http-node.ts';
import { nodeSocket } from '../src/environments/service/socket-node.ts';
import { serve } from './serve.ts';

await serve((data) => {
  const port = createOpenEnvPort(data as OpenEnvOptions, { connect: nodeSocket, http: nodeHttp });
  return { service: port, dispose: () => port.dispose() };
});
