// Rotary position embedding: inverse frequencies and cos/sin tables, made in f64 on the host and rounded once to f32.
// Not the rotation itself (shaders/rope.wgsl). Convention: rotate_half, so element i of a head pairs with i + headDim/2
// and both turn by position * frequency[i]. Invariant: the tables depend on the architecture and position alone.
import type { Architecture } from './config.ts';

/**
 * Inverse frequencies [headDim / 2] in f64, radians a position: theta^(-2i/headDim), then scaled as in transformers'
 * modeling_rope_utils (`linear`: divided by factor; `llama3`: long waves divided, short ones kept, blended between).
 */
export function ropeInverseFrequencies(arch: Pick<Architecture, 'headDim' | 'rope'>): Float64Array<ArrayBuffer> {
  const { headDim, rope } = arch;
  return Float64Array.from({ length: headDim / 2 }, (_, i) => {
    const frequency = rope.theta ** ((-2 * i) / headDim);
    if (rope.type === 'linear') return frequency / rope.factor;
    if (rope.type === 'llama3') return llama3Frequency(frequency, rope);
    return frequency;
  });
}

function llama3Frequency(frequency: number, rope: Extract<Architecture['rope'], { type: 'llama3' }>): number {
  const wavelength = (2 * Math.PI) / frequency;
  if (wavelength < rope.originalMaxPositions / rope.highFreqFactor) return frequency;
  if (wavelength > rope.originalMaxPositions / rope.lowFreqFactor) return frequency / rope.factor;
  const kept =
    (rope.originalMaxPositions / wavelength - rope.lowFreqFactor) / (rope.highFreqFactor - rope.lowFreqFactor);
  return ((1 - kept) * frequency) / rope.factor + kept * frequency;
}

/** cos and sin of position * frequency, f32 [positions, headDim / 2], positions from 0; each rounded once from f64. */
export function ropeTables(
  arch: Pick<Architecture, 'headDim' | 'rope'>,
  positions: number,
): { cos: Float32Array<ArrayBuffer>; sin: Float32Array<ArrayBuffer> } {
  const frequencies = ropeInverseFrequencies(arch);
  const half = frequencies.length;
  const cos = new Float32Array(positions * half);
  const sin = new Float32Array(positions * half);
  for (let position = 0; position < positions; position++) {
    for (let i = 0; i < half; i++) {
      const angle = position * frequencies[i]!;
      cos[position * half + i] = Math.cos(angle);
      sin[position * half + i] = Math.sin(angle);
    }
  }
  return { cos, sin };
}
