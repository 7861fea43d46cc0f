// The Chromium that the browser tests start: the system's own, with WebGPU on its software adapter.
// Not a download: Playwright's own browsers are never fetched. Invariant: the browser makes no request of its own.
import { existsSync } from 'node:fs';

const places = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

/** SHADERL_CHROMIUM, or the first Chromium that is there. Throws with the remedy. */
export function chromiumPath(): string {
  const chosen = process.env['SHADERL_CHROMIUM'];
  const found = chosen ?? places.find((place) => existsSync(place));
  if (found !== undefined && existsSync(found)) return found;
  throw new Error(
    `looking for Chromium: found nothing at ${chosen ?? places.join(', ')}; wanted an executable. ` +
      'Run ./setup.sh, or name one in SHADERL_CHROMIUM.',
  );
}

export const chromiumArguments: string[] = [
  '--no-sandbox',
  '--enable-unsafe-webgpu',
  '--use-webgpu-adapter=swiftshader',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-client-side-phishing-detection',
  '--disable-default-apps',
  '--disable-sync',
  '--disable-domain-reliability',
  '--no-first-run',
  '--no-pings',
  '--metrics-recording-only',
];
