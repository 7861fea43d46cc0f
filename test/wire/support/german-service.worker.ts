// An OpenEnv service in a worker of its own, so that its pings go on while the test's thread is busy.
import { serve } from '../../../workers/serve.ts';
import { serveGerman } from '../../../workers/services/german-service.ts';

await serve(async () => {
  const handle = await serveGerman({ protocol: 'openenv', maxSessions: 4, version: '0.1.0', pingMs: 150 });
  return { service: { url: async () => handle.url }, dispose: () => handle.stop() };
});
