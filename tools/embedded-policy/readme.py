"""Writes the README.md of the finished folder from what was recorded and measured while it was made.

usage: readme.py MODEL_DIR WORK_DIR
"""

import json
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

NAMES = {
    (1.0, 1.0, 0): "temperature 1.0",
    (0.9, 1.0, 0): "temperature 0.9",
    (0.6, 0.95, 20): "0.6, top-p 0.95, top-k 20",
}

TEXT = """# The embedded policy

A tiny Qwen3 that plays the German lookup/calculator task, badly enough to be taught. `npm start` trains it.
It knows this one task and nothing else. Made by `tools/embedded-policy/make.sh`; this file is written by it too.

## What it is

- Qwen3ForCausalLM: {parameters:,} parameters in bf16, hidden {hidden_size}, {num_hidden_layers} layers,
  {num_attention_heads} query and {num_key_value_heads} key/value heads of {head_dim}, intermediate {intermediate_size},
  vocabulary {vocab_size}, tied embeddings.
- Tokenizer: byte-level BPE trained on the transcripts; normalizer, pre-tokenizer, special tokens and chat template are
  Qwen3's.
- Tokens, over the {measured} episodes at temperature 1.0 (mean, largest): prompt {prompt}, of which the first {shared}
  are the same in every episode; after the prompt {afterPrompt}; of these sampled {sampled}; turns {turns}.

## How it was trained

From scratch on {episodes:,} transcripts of the scripted expert (src/environments/german-expert.ts; TRAIN split, a seed
of its own), each seen once, with loss on {assistantTokens:,} assistant tokens only: {steps} steps of {batch}, AdamW,
learning rate {lr}, seed {seed}, float32 on one CPU thread, {seconds} s.
Mean loss of the last steps: {finalLoss} nats a token (made-up numbers cannot be predicted).

The expert is faultless in {faultless} of the transcripts. Its mistakes:
{mistakes}.

Versions: {versions}.

## How it does

Fresh DEV episodes, sampled in PyTorch and scored by the project's environment; intervals are Wilson's, 95 %.

{table}
"""


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def row(cells) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def table_of(measured: list[dict]) -> str:
    first = measured[0]["outcomes"]
    outcomes = sorted({name for m in measured for name in m["outcomes"]}, key=lambda name: (-first.get(name, 0), name))
    rows = [
        ["", *(NAMES[m["temperature"], m["top_p"], m["top_k"]] for m in measured)],
        ["---"] * (len(measured) + 1),
        ["episodes", *(m["episodes"] for m in measured)],
        ["strict success", *(percent(m["rate"]) for m in measured)],
        ["interval", *(" to ".join(percent(end) for end in m["interval95"]) for m in measured)],
        ["mean shaped reward", *(m["meanReward"] for m in measured)],
        *([f"outcome: {name}", *(m["outcomes"].get(name, 0) for m in measured)] for name in outcomes),
    ]
    return "\n".join(row(cells) for cells in rows)


def main() -> None:
    folder, work = Path(sys.argv[1]), Path(sys.argv[2])
    training = json.loads((work / "training.json").read_text())
    measured = json.loads((work / "measured.json").read_text())
    shape = json.loads((folder / "config.json").read_text())
    with (work / "episodes.jsonl").open() as lines:
        mistakes = Counter(json.loads(line)["mistake"] or "none" for line in lines)
    total = sum(mistakes.values())
    tokens = {name: f"{t['mean']} ({t['max']})" for name, t in measured[0]["tokens"].items()}
    packages = [f"{name} {version(name)}" for name in ("torch", "transformers", "tokenizers", "safetensors")]
    text = TEXT.format(
        **shape,
        **training,
        **tokens,
        measured=measured[0]["episodes"],
        faultless=percent(mistakes.pop("none") / total),
        mistakes=", ".join(f"{name} {percent(count / total)}" for name, count in mistakes.most_common()),
        versions=", ".join([*packages, f"Python {sys.version.split()[0]}"]),
        table=table_of(measured),
    )
    (folder / "README.md").write_text(text)


if __name__ == "__main__":
    main()
