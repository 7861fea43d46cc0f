// What stands at the head of each product of many rows.
// Not code: comments alone. Invariant: every file says that it is written by the template.

/** The product alone, with LoRA, and with LoRA in larger tiles. */
export type ManyForm = 'plain' | 'lora' | 'wide';

/** The forms' shaders. */
export const formNames: Readonly<Record<ManyForm, string>> = {
  plain: 'matrix-matmul',
  lora: 'matrix-matmul-lora',
  wide: 'matrix-matmul-lora-wide',
};

const written = '// Written by tools/matrix-many; change the template, not this file.\n';

export const formHeader: Readonly<Record<ManyForm, string>> = {
  plain: `${written}// out[m, n] = scale * s[m] * sum_k x[m, k] * w[n, k] (mode 0), with modes 1 and 2 as in matmul: many rows. x: f16 rows
// that matrix-pack made, s their scales; w: [columns, k] bf16, packed two a word, which becomes f16 while it is staged
// (times weightScale, a power of two that is undone at the end). Products of 16 x 16 x 16 by subgroup matrices: f16
// operands, one f32 accumulator an output, k ascending by 16. So the bits of an output depend on its rows of x and w
// alone, and matrix-matmul-low and -narrow give the same. A workgroup owns 128 x 128 outputs, each of its four
// subgroups a quarter; a processor has workgroup memory for two. The next 32 of k are on their way in registers while
// these are multiplied; rows are padded by 16 bytes in workgroup memory against bank conflicts. Everything is written
// out: the driver keeps arrays of matrices in memory. The branches around the products, always taken, keep it from
// mixing them with the loads. The last panel stands behind the loop: a load under a condition is waited for. Matrices
// are loaded at literal offsets of an array that is the subgroup's own: so their bounds are known when the shader is
// compiled, and need no check in the loop.
`,
  lora: `${written}// out[m, n] = s[m] * sum_k x[m, k] * w[n, k] + loraScale * sum_r z[m, t(n) * rank + r] * b[r, n]: a linear layer with
// LoRA, many rows. The product is that of matrix-matmul, bit for bit: operands, tile, order and prefetch are described
// there. The epilogue of an element, in f32, each step as written:
//   v = sum * s[m] * inverse(weightScale), both exact; mode 2: v = v + out;
//   delta = 0; r ascending: delta = fma(z[m, t * rank + r], b[r, n], delta); v = fma(loraScale, delta, v).
// A fused matrix has up to three targets: t(n) = 0 below column split1, 1 below split2, 2 from there; the splits are
// multiples of four. b stands transposed (columns along a row), so that a thread reads it by quads of columns.
`,
  wide: `${written}// matrix-matmul-lora in tiles of 192 x 128 outputs, with the same bits: eight subgroups of 3 x 4 matrices, one
// workgroup a processor, 64 of k at a time: whole lines of the cache in a load, half as many barriers for a product. It
// is the faster form where the other's last wave of tiles leaves much of the device idle (wideIsFaster in
// matrix-tiles.ts). Rows and columns past the last are read as the last.
`,
};
