"""Checks the finished folder against transformers: logits, tokenizer, chat template, and bytes of the weights.

Not a test of the project: those read the folder with the project's own code. Exits with 1 and says what differs.

usage: check.py MODEL_DIR
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from policy import Policy
from rollout import Bridge

TEXTS = [
    "",
    " ",
    "\n",
    "Käse",
    "Ka\u0308se",
    "1234567890",
    "-97",
    "58 * 83",
    " 4814\n",
    "Übergrößenträger",
    "<think>\n\n</think>\n\nAntwort: 4814<|im_end|>",
    "Fehler: ungültiger Aufruf",
    "don't DON'T",
    "日本語 🙂 \u00a0x",
    '<tool_call>\n{"name": "rechner", "arguments": {"ausdruck": "58 - 83"}}\n</tool_call>',
    "a\r\n\r\n  b\t",
]


def main() -> None:
    folder = Path(sys.argv[1])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    bridge = Bridge(folder)
    opened = bridge.ask({"do": "open", "episodes": [{"stream": "held-out", "index": i} for i in range(200)]})
    for messages, ids in zip(opened["messages"], opened["prompts"]):
        wanted = tokenizer.apply_chat_template(
            messages, tools=opened["tools"], add_generation_prompt=True, enable_thinking=True, return_dict=False
        )
        if wanted != ids:
            sys.exit(f"prompt of {messages}: transformers gives {wanted}, the project {ids}")
    encoded = bridge.ask({"do": "encode", "texts": TEXTS})["ids"]
    bridge.close()
    for text, ids in zip(TEXTS, encoded):
        wanted = tokenizer(text, add_special_tokens=True)["input_ids"]
        if wanted != ids:
            sys.exit(f"encoding {text!r}: transformers gives {wanted}, the project {ids}")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    generation = model.generation_config.eos_token_id
    policy = Policy.load(folder)
    ids = torch.tensor(opened["prompts"][:1])
    with torch.no_grad():
        theirs = model(ids).logits[0]
        cache = policy.new_cache(1, ids.shape[1])
        ours = policy.logits(policy.append(cache, torch.tensor([0]), torch.tensor([0]), ids))[0]
    worst = (theirs - ours).abs().max().item()
    if not worst <= 1e-4 * theirs.abs().max().item():
        sys.exit(f"logits differ by {worst}; at most 1e-4 of the largest is wanted")
    print(
        json.dumps(
            {
                "prompts": 200,
                "texts": len(TEXTS),
                "worstLogitDifference": worst,
                "eos": generation,
                "type": type(model).__name__,
                "tokenizer": type(tokenizer).__name__,
            }
        )
    )


if __name__ == "__main__":
    main()
