// The comparison of sampled tokens between passes in a process of its own.
// Not a measurement. Invariant: what is compared follows from the order alone.
import { openGpu } from '../src/gpu/device.ts';
import { loadFamilyWeights } from '../src/model/matrix-load.ts';
import { openModelFiles } from '../src/model/model-files.ts';
import type { TokensOrder } from './bits.ts';
import { answer, orderOf } from './child.ts';
import { compareTokens, positionsFor } from './compare-tokens.ts';
import { openShape } from './models.ts';

const { shape, family, tokenSettings } = orderOf<TokensOrder>();
const gpu = await openGpu();
const files = await openModelFiles(openShape(shape).source);
const positions = positionsFor(files.architecture.vocabSize, tokenSettings);
const { model } = await loadFamilyWeights(gpu, files, family, { positions });
answer(await compareTokens(gpu, model, tokenSettings));
