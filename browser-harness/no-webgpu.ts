// What the device's views say where the browser has no WebGPU. Everything else in the page works without.
import { h } from './dom.ts';

export function noWebGpu(): HTMLElement {
  const steps = [
    'Chromium, Chrome or Edge 113 or newer on Windows and macOS have it ' +
      'switched on; Safari has it from version 26, Firefox from 141 on Windows.',
    'Chromium on Linux: start it with --enable-unsafe-webgpu ' +
      '--enable-features=Vulkan, and install a Vulkan driver (mesa-vulkan-drivers).',
    'Without a GPU: add --use-webgpu-adapter=swiftshader. It computes on the CPU: slow, but right.',
    'The page must be on a loopback address, https, or a local file. Look at chrome://gpu for what was found.',
  ];
  return h(
    'section',
    { class: 'card', role: 'alert' },
    h('h2', null, 'This browser offers no WebGPU'),
    h(
      'p',
      null,
      'The device, training and qualification need it. Runs, rollouts and comparisons do not, and work as they are.',
    ),
    h(
      'ul',
      null,
      steps.map((step) => h('li', null, step)),
    ),
  );
}
