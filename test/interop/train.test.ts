// `shaderl train` on services that the upstream packages serve, started by the run itself: tasks, tools and rewards are
// theirs, and nothing of the German task is known to them.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { auditRun } from '../../src/audit-node.ts';
import type { OwnServiceSection } from '../../src/experiment/service.ts';
import { episode } from '../../src/rollout/episode.ts';
import { resolveRunConfig } from '../../src/run-config.ts';
import { rolloutsFile } from '../../src/train.ts';
import { withEnvironment } from '../../workers/services/run-environment.ts';
import { trainRun } from '../../workers/train-node.ts';
import { embedded } from '../support/experiment-fixture.ts';
import { ownRow } from '../wire/support/own-services.ts';
import { pythonWith } from './python-modules.ts';

const here = fileURLToPath(new URL('./python/', import.meta.url));
const base = mkdtempSync(join(tmpdir(), 'shaderl-interop-train-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));

const stock = { Brot: 77123, Birne: 77124 };
const question = 'Ziehe Brot von Birne ab. Schreibe am Ende: Antwort: <Zahl>';
const cases = [
  {
    protocol: 'nemo-gym' as const,
    modules: ['nemo_gym.openai_utils', 'nemo_gym.base_resources_server'],
    script: 'nemo_gym_stall.py',
    line: ownRow(question, stock),
    service: {},
  },
  {
    protocol: 'openenv' as const,
    modules: ['openenv.core.env_server.http_server', 'fastmcp', 'uvicorn'],
    script: 'openenv_stall.py',
    line: {
      reset: { stock },
      messages: [
        { role: 'system', content: 'Nutze die Werkzeuge.' },
        { role: 'user', content: question },
      ],
    },
    service: { rewardWithoutSteps: 0 },
  },
];

describe.each(cases)('a training on an environment of the $protocol package', (one) => {
  const { protocol, modules, script, line } = one;
  const python = pythonWith(...modules);
  const why = python ? '' : ` (skipped: no Python with ${modules[0]}; name one in SHADERL_INTEROP_PYTHON)`;
  it.skipIf(!python)(
    `gets tools, observations and rewards from it${why}`,
    async () => {
      const folder = join(base, protocol);
      const tasks = join(base, `${protocol}.jsonl`);
      writeFileSync(tasks, `${JSON.stringify(line)}\n`);
      const command = [python!, join(here, script), '{port}'];
      const config = {
        model: embedded,
        output: 'run',
        steps: 2,
        data: { environment: protocol, tasks },
        service: { command, healthDeadlineSeconds: 120, ...one.service },
        generation: { temperature: 0.6, topP: 1, topK: 0, maxCompletionTokens: 120 },
        grpo: { groupSize: 4, beta: 0 },
        lora: { rank: 4, alpha: 8 },
      };
      const run = await resolveRunConfig(JSON.stringify(config), 'run.json');
      const section = run.config.service as OwnServiceSection;
      const own = { section, configFile: 'run.json', resumed: null };
      const asked = { env: protocol, url: null, sessions: 4, own, folder: join(folder, 'service'), name: 'train' };
      const outcome = await withEnvironment(asked, (environment, service) =>
        trainRun(run, { resume: false, qualify: 'here', folder, environment, service }),
      );
      expect(outcome).toMatchObject({ status: 'finished', steps: 2 });
      const rollouts = [1, 2]
        .flatMap((step) =>
          readFileSync(join(folder, rolloutsFile(step)), 'utf8')
            .trimEnd()
            .split('\n'),
        )
        .map((text) => episode.parse(JSON.parse(text)));
      const log = rollouts.flatMap(({ verdict }) => verdict!.log);
      expect(log.length).toBeGreaterThan(0);
      // Each answered call is paid with a quarter.
      for (const { verdict } of rollouts) {
        const paid = verdict!.log.filter(({ error }) => !error).length / 4;
        expect(verdict!.reward).toBe(Math.min(1, paid));
      }
      expect(await auditRun(folder)).toMatchObject({ findings: [], rollouts: 8 });
    },
    600_000,
  );
});
