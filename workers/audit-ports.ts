// The audit as the training loop takes it. The rules are in src/audit.ts.
import type { Text } from '../src/model/text.ts';
import type { RunConfig } from '../src/run-config.ts';
import type { AuditLogprobs, AuditRollouts } from '../src/train.ts';

const bits = new DataView(new ArrayBuffer(4));
const hexBits = (value: number) => {
  bits.setFloat32(0, value);
  return bits.getUint32(0).toString(16).padStart(8, '0');
};

export function auditPorts(
  _text: Text,
  _config: RunConfig,
): { auditRollouts: AuditRollouts; auditLogprobs: AuditLogprobs } {
  return {
    auditRollouts: async () => [],
    auditLogprobs(episodes, recomputed) {
      return episodes.flatMap((episode, e) => {
        const sampled = episode.logprobs.filter((value) => value !== null);
        const own = recomputed[e]!;
        const at = sampled.findIndex((value, i) => hexBits(value) !== hexBits(own[i]!));
        return at < 0
          ? []
          : [
              `member ${episode.member}: log-prob ${at} is ${sampled[at]} (${hexBits(sampled[at]!)}), recomputed ${own[at]} (${hexBits(own[at]!)})`,
            ];
      });
    },
  };
}
