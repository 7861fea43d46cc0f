"""Trains the embedded policy from scratch on transcripts of the scripted expert, loss on the assistant's tokens only.

Not a language model's pre-training: one pass over as many transcripts as the step count asks for, in file order.
Invariant: fixed seeds and one thread; the result is rounded to bf16 once, at the end.

usage: train.py EPISODES.jsonl TOKENIZER_DIR OUT_DIR [--hidden 96 --layers 3 ...]
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer

from policy import Policy


def shape_of(args: argparse.Namespace, tokenizer: Tokenizer) -> dict:
    """config.json as transformers 5 writes it for Qwen3ForCausalLM."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "dtype": "bfloat16",
        "eos_token_id": tokenizer.token_to_id("<|im_end|>"),
        "head_dim": 32,
        "hidden_act": "silu",
        "hidden_size": args.hidden,
        "initializer_range": 0.02,
        "intermediate_size": args.inner,
        "layer_types": ["full_attention"] * args.layers,
        "max_position_embeddings": 1024,
        "max_window_layers": args.layers,
        "model_type": "qwen3",
        "num_attention_heads": args.heads,
        "num_hidden_layers": args.layers,
        "num_key_value_heads": args.kv_heads,
        "pad_token_id": tokenizer.token_to_id("<|endoftext|>"),
        "rms_norm_eps": 1e-06,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "sliding_window": None,
        "tie_word_embeddings": True,
        "transformers_version": "5.18.0",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": tokenizer.get_vocab_size(),
    }


def read_episodes(path: Path, limit: int | None):
    """Returns (shared prefix, [(rest of the ids, mask of the rest)])."""
    ids, masks = [], []
    with path.open() as lines:
        for line in lines:
            record = json.loads(line)
            ids.append(record["ids"])
            masks.append(record["mask"])
            if limit and len(ids) == limit:
                break
    shared = min(len(row) for row in ids)
    for row in ids[1:]:
        while row[:shared] != ids[0][:shared]:
            shared -= 1
    prefix = torch.tensor(ids[0][:shared])
    return prefix, [(torch.tensor(row[shared:]), torch.tensor(mask[shared:])) for row, mask in zip(ids, masks)]


def batch_of(rows):
    tokens = max(ids.numel() for ids, _ in rows)
    ids = torch.stack([F.pad(row, (0, tokens - row.numel())) for row, _ in rows])
    mask = torch.stack([F.pad(mask, (0, tokens - mask.numel())) for _, mask in rows])
    return ids, mask


def loss_of(policy: Policy, prefix: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor):
    """Mean cross-entropy over masked tokens, and the same per token."""
    hidden = policy.hidden_after_prefix(prefix, ids)
    wanted = mask[:, 1:].bool()
    logits = policy.logits(hidden[:, :-1][wanted])
    return F.cross_entropy(logits, ids[:, 1:][wanted])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("episodes", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--record", type=Path, help="where to write what was done, as JSON")
    parser.add_argument("--hidden", type=int, default=96)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--inner", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--kv-heads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)

    tokenizer = Tokenizer.from_file(str(args.tokenizer / "tokenizer.json"))
    shape = shape_of(args, tokenizer)
    prefix, rows = read_episodes(args.episodes, args.batch * args.steps)
    policy = Policy(shape, args.seed)
    parameters = sum(value.numel() for value in policy.values)
    lengths = [ids.numel() for ids, _ in rows]
    print(
        json.dumps(
            {
                "parameters": parameters,
                "prefix": prefix.numel(),
                "episodes": len(rows),
                "rest_mean": sum(lengths) / len(rows),
                "rest_max": max(lengths),
            }
        ),
        flush=True,
    )

    matrices = [value for value in policy.values if value.dim() == 2]
    gains = [value for value in policy.values if value.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.05}, {"params": gains, "weight_decay": 0.0}],
        lr=args.lr,
        betas=(0.9, 0.97),
    )
    started, smooth = time.time(), None
    for step in range(args.steps):
        ids, mask = batch_of([rows[(step * args.batch + i) % len(rows)] for i in range(args.batch)])
        warm, left = min(1.0, (step + 1) / 40), step / args.steps
        rate = args.lr * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * left)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = loss_of(policy, prefix, ids, mask)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.values, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        smooth = value if smooth is None else 0.95 * smooth + 0.05 * value
        if step % 25 == 24 or step + 1 == args.steps:
            print(
                json.dumps({"step": step + 1, "loss": round(smooth, 4), "seconds": round(time.time() - started)}),
                flush=True,
            )

    args.out.mkdir(parents=True, exist_ok=True)
    state = {name: policy.tensor(name).detach().to(torch.bfloat16).contiguous() for name in policy.names}
    save_file(state, str(args.out / "model.safetensors"), metadata={"format": "pt"})
    (args.out / "config.json").write_text(json.dumps(shape, indent=2) + "\n")
    generation = {
        "bos_token_id": None,
        "do_sample": True,
        "eos_token_id": [tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")],
        "pad_token_id": tokenizer.token_to_id("<|endoftext|>"),
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "transformers_version": "5.18.0",
    }
    (args.out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    record = {
        "parameters": parameters,
        "episodes": len(rows),
        "steps": args.steps,
        "batch": args.batch,
        "lr": args.lr,
        "seed": args.seed,
        "finalLoss": round(smooth, 4),
        "seconds": round(time.time() - started),
        "shared": prefix.numel(),
        "assistantTokens": sum(int(mask.sum()) for _, mask in rows),
    }
    if args.record:
        args.record.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
