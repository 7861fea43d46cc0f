// Serves one of the own services until it is ended: node --import tsx own-service-child.ts PROTOCOL PORT.
import { serveOwnEnv, serveOwnGym } from './own-services.ts';

const [protocol, port] = process.argv.slice(2);
await (protocol === 'openenv' ? serveOwnEnv : serveOwnGym)(Number(port));
