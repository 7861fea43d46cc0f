// Serves one of the own services until it is ended: node --import tsx own-service-child.ts PROTOCOL PORT [VERSION-FILE].
import { readFileSync } from 'node:fs';
import { serveOwnEnv, serveOwnGym } from './own-services.ts';

const [protocol, port, versionFile] = process.argv.slice(2);
const version = versionFile === undefined ? '1' : readFileSync(versionFile, 'utf8');
await (protocol === 'openenv' ? serveOwnEnv : serveOwnGym)(Number(port), version);
