"""Writes the logits of transformers for one sequence of token ids, as raw little-endian f32 [tokens, vocabulary].

Not part of the trainer: the other side of a comparison. f32 weights and f32 arithmetic, eager attention, on the CPU.
Usage: python logits.py MODEL IDS.json OUTPUT.f32
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM


def main() -> None:
    model_folder, ids_file, output = sys.argv[1:]
    ids = json.loads(Path(ids_file).read_text())
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
    logits.numpy().astype("<f4").tofile(output)


if __name__ == "__main__":
    main()
