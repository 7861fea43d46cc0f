// Fault switches of the reference services, for people who test their own clients: at the N-th request the service
// stalls, drops the connection, or answers wrongly. Off unless asked for.
// Not a proxy: what the handler did or did not do is part of the fault. Invariant: the same switches and the same
// requests give the same faults; every switch that was taken is told to `report`.
import type { WebSocket } from 'ws';
import { parseWireJson, WireJsonError } from '../../src/environments/service/wire-json.ts';
import { PlanError } from '../../src/lib/errors.ts';
import type { Protocol } from './german-service.ts';
import { jsonReply, type ServerReply, type ServerRequest } from './http-server.ts';

/** What each kind does, and the protocols that have it. */
export const FAULT_KINDS = {
  stall: { protocols: ['nemo-gym', 'openenv'], argument: null, does: 'never answers' },
  delay: { protocols: ['nemo-gym', 'openenv'], argument: 'milliseconds', does: 'answers late' },
  drop: { protocols: ['nemo-gym', 'openenv'], argument: null, does: 'drops the connection before anything is done' },
  'drop-after': { protocols: ['nemo-gym', 'openenv'], argument: null, does: 'does it, then drops the connection' },
  status: { protocols: ['nemo-gym'], argument: 'HTTP status', does: 'answers this status, and does nothing' },
  'no-cookie': { protocols: ['nemo-gym'], argument: null, does: 'answers without Set-Cookie' },
  'judge-failed': { protocols: ['nemo-gym'], argument: null, does: 'answers verify with a failed judge and reward 0' },
  close: { protocols: ['openenv'], argument: 'close code', does: 'closes the socket, and does nothing' },
  error: { protocols: ['openenv'], argument: 'error code', does: 'answers an error frame, and does nothing' },
} as const satisfies Record<string, { protocols: readonly Protocol[]; argument: string | null; does: string }>;
export type FaultKind = keyof typeof FAULT_KINDS;

export interface FaultSwitch {
  kind: FaultKind;
  argument: string | null;
  /** Route (NeMo Gym: seed_session, verify, a tool) or message type (OpenEnv: reset, step, state, close); null: all. */
  route: string | null;
  /** The first request that meets it, counted from 1 over all sessions. */
  first: number;
  /** Whether all later ones do too. */
  onward: boolean;
}

const numbers: Partial<Record<FaultKind, [number, number]>> = {
  delay: [1, 3_600_000],
  status: [200, 599],
  close: [1000, 4999],
};

/** A switch from `KIND[=VALUE]@[ROUTE:]N[+]`, e.g. `stall@3`, `status=503@verify:1`, `delay=2000@step:1+`. */
export function parseFaultSwitch(text: string, protocol: Protocol): FaultSwitch {
  const refuse = (found: string, wanted: string) =>
    new PlanError(
      'bad-fault',
      `reading --fault ${text}: found ${found}; wanted ${wanted}. Write KIND[=VALUE]@[ROUTE:]N[+], such as stall@3.`,
    );
  const parts = /^([a-z-]+)(?:=([\w-]+))?@(?:([\w.-]+):)?([1-9]\d{0,8})(\+?)$/.exec(text);
  if (!parts) throw refuse('another form', 'a kind, and the number of a request');
  const [, kind, argument, route, first, onward] = parts;
  const known = Object.entries(FAULT_KINDS).filter(([, about]) =>
    (about.protocols as readonly string[]).includes(protocol),
  );
  const about = known.find(([name]) => name === kind)?.[1];
  if (!about) throw refuse(`kind "${kind}"`, `one of ${known.map(([name]) => name).join(', ')} with ${protocol}`);
  if ((about.argument === null) !== (argument === undefined)) {
    const wanted = about.argument === null ? 'none' : `=${about.argument}`;
    throw refuse(argument === undefined ? 'no value' : `the value ${argument}`, wanted);
  }
  const range = numbers[kind as FaultKind];
  if (range && !(/^\d+$/.test(argument!) && Number(argument) >= range[0] && Number(argument) <= range[1])) {
    throw refuse(`the value ${argument}`, `${about.argument} from ${range[0]} to ${range[1]}`);
  }
  return {
    kind: kind as FaultKind,
    argument: argument ?? null,
    route: route ?? null,
    first: Number(first),
    onward: onward === '+',
  };
}

export interface Faults {
  /** A NeMo Gym server's handler with the faults. */
  http(handle: (request: ServerRequest) => Promise<ServerReply>): (request: ServerRequest) => Promise<ServerReply>;
  /** One frame of an OpenEnv socket with the faults; `loop` is what would be done with it. */
  frame<S>(
    text: string | null,
    socket: WebSocket,
    over: S,
    loop: () => Promise<S>,
    answer: (text: string) => S,
  ): Promise<S>;
}

const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** Counts requests and says which of them meet a switch. The first switch that applies is taken. */
export function createFaults(switches: readonly FaultSwitch[], report: (line: string) => void): Faults {
  const counts = new Map<string | null, number>();
  function meet(route: string): FaultSwitch | null {
    const all = (counts.get(null) ?? 0) + 1;
    const own = (counts.get(route) ?? 0) + 1;
    counts.set(null, all).set(route, own);
    const met = switches.find((one) => {
      if (one.route !== null && one.route !== route) return false;
      const count = one.route === null ? all : own;
      return one.onward ? count >= one.first : count === one.first;
    });
    if (met) report(`fault: ${met.kind}${met.argument === null ? '' : `=${met.argument}`} at request ${all}, ${route}`);
    return met ?? null;
  }

  return {
    http: (handle) => async (request) => {
      const route = request.path.replace(/^\/(ng-rollout\/[^/]+\/)?/, '');
      // Liveness is not counted: whoever waits for the service must not use the faults up.
      const fault = route === '' ? null : meet(route);
      if (fault === null) return handle(request);
      const dropped = () => new Error('a fault switch drops the connection');
      switch (fault.kind) {
        case 'stall':
          return new Promise<ServerReply>(() => {});
        case 'drop':
          throw dropped();
        case 'status':
          return jsonReply(Number(fault.argument), '{"detail":"a fault switch answered"}');
        default: {
          const reply = await handle(request);
          if (fault.kind === 'drop-after') throw dropped();
          if (fault.kind === 'delay') await sleep(Number(fault.argument));
          if (fault.kind === 'no-cookie') {
            const { 'set-cookie': _gone, ...headers } = reply.headers ?? {};
            return { ...reply, headers };
          }
          if (fault.kind !== 'judge-failed' || reply.status !== 200) return reply;
          const failed = { reward: 0, _ng_failure_class: 'judge_failed', _ng_failure_judge_error: 'a fault switch' };
          return { ...reply, body: JSON.stringify({ ...(JSON.parse(reply.body) as object), ...failed }) };
        }
      }
    },
    async frame(text, socket, over, loop, answer) {
      const fault = meet(typeOf(text));
      if (fault === null) return loop();
      switch (fault.kind) {
        case 'stall':
          await new Promise<void>((resolve) => socket.once('close', () => resolve()));
          return over;
        case 'drop':
          socket.terminate();
          return over;
        case 'close':
          socket.close(Number(fault.argument), 'a fault switch');
          return over;
        case 'error': {
          const data = { message: 'a fault switch answered', code: fault.argument };
          return answer(JSON.stringify({ type: 'error', data }));
        }
        default: {
          const step = await loop();
          if (fault.kind === 'delay') await sleep(Number(fault.argument));
          if (fault.kind !== 'drop-after') return step;
          socket.terminate();
          return over;
        }
      }
    },
  };
}

/** The type of a message; `frame` for what has none. */
function typeOf(text: string | null): string {
  try {
    const value = text === null ? null : parseWireJson(text);
    const type = value instanceof Map ? (value.get('type') ?? value.get('method')) : null;
    return typeof type === 'string' ? type : 'frame';
  } catch (error) {
    if (error instanceof WireJsonError) return 'frame';
    throw error;
  }
}
