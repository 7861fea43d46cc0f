// The worker that hosts the German environment, so that tool calls never run on the thread that drives the GPU.
// Not a client of a remote service. Invariant: it exposes exactly the methods of EnvironmentPort.
import { createGermanEnvironment } from '../src/environments/german-environment.ts';
import { serve } from './serve.ts';

await serve(() => ({ service: createGermanEnvironment() }));
