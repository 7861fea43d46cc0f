// The text port of tests of the rollout loop: every prompt is three tokens, and a turn ends with STOP.
export const STOP = 9;

export const threeTokenText = {
  renderPrompt: () => [1, 2, 3],
  stopIds: [STOP],
  endIds: [],
  decode: () => '',
  addedTokenId: () => null,
  bytesOf: () => new Uint8Array(),
} as never;
