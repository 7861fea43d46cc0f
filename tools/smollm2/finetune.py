"""Fine-tunes the converted SmolLM2 on transcripts of the imperfect expert, loss on the assistant's tokens only.

Not part of the trainer: it makes the checkpoint that an experiment starts from. Every weight is trained, in f32 (on a
GPU the products are bf16), and rounded to bf16 once, at the end. Invariant: fixed seeds and file order; tokenizer and
template are copied byte for byte, so the ids of the transcripts stay the ids of the checkpoint.

usage: finetune.py CONVERTED_DIR EPISODES.jsonl OUT_DIR [--steps 400 --batch 32 --lr 3e-4 --record FILE]
"""

import argparse
import json
import math
import shutil
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

# What describes the text side of a checkpoint; config.json and the weights are written anew.
TEXT_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")


def fail(doing: str, found: str, wanted: str, remedy: str) -> None:
    sys.exit(f"{doing}: found {found}; wanted {wanted}. {remedy}")


def read_episodes(path: Path, vocabulary: int, positions: int) -> list[tuple[list[int], list[int]]]:
    """[(ids, mask)] of a file of {"ids", "mask"} lines; refuses lines that the model could not have been meant for."""
    rows = []
    with path.open() as lines:
        for number, line in enumerate(lines, 1):
            record = json.loads(line)
            ids, mask = record["ids"], record["mask"]
            if len(ids) != len(mask) or not 0 < sum(mask) or max(ids) >= vocabulary or len(ids) > positions:
                fail(f"reading {path} line {number}", f"{len(ids)} ids up to {max(ids)}, {len(mask)} mask entries",
                     f"as many of both, at most {positions}, with ids below {vocabulary}",
                     "Make the transcripts with this folder's tokenizer.")
            rows.append((ids, mask))
    return rows


def batch_of(rows: list[tuple[list[int], list[int]]], device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """ids and mask [rows, longest], padded at the right, where causal attention never looks."""
    longest = max(len(ids) for ids, _ in rows)
    padded = [(ids + [0] * (longest - len(ids)), mask + [0] * (longest - len(ids))) for ids, mask in rows]
    ids, mask = (torch.tensor([row[side] for row in padded], device=device) for side in (0, 1))
    return ids, mask


def loss_of(model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the masked tokens, in nats; only their rows go through the head."""
    hidden = model.model(input_ids=ids).last_hidden_state
    wanted = mask[:, 1:].bool()
    logits = model.lm_head(hidden[:, :-1][wanted])
    return F.cross_entropy(logits.float(), ids[:, 1:][wanted])


def rate_at(step: int, steps: int, base: float) -> float:
    """Linear warm-up over 5 % of the steps, then a cosine to 2 % of the rate."""
    warm = min(1.0, (step + 1) / max(1, round(0.05 * steps)))
    return base * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))


def write_checkpoint(model: torch.nn.Module, source: Path, out: Path) -> None:
    """The weights in bf16 under their own names, config.json last: a folder without it is no checkpoint."""
    out.mkdir(parents=True, exist_ok=True)
    for name in TEXT_FILES:
        if (source / name).exists():
            shutil.copyfile(source / name, out / name)
    config = json.loads((source / "config.json").read_text())
    tensors = {
        name: tensor.detach().to("cpu", torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if not (config["tie_word_embeddings"] and name == "lm_head.weight")
    }
    broken = [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]
    if broken:
        fail(f"writing {out}", f"NaN or infinity in {broken[0]}", "finite weights", "Lower --lr.")
    save_file(tensors, str(out / "model.safetensors"), metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)
    config["torch_dtype"] = "bfloat16"
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Fine-tune SmolLM2-135M-Instruct on transcripts of the German task.")
    parser.add_argument("model", type=Path)
    parser.add_argument("episodes", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--record", type=Path, help="where to write what was done, as JSON")
    args = parser.parse_args()
    if args.out.exists() and any(args.out.iterdir()):
        fail(f"writing {args.out}", "a folder with files in it", "a new or empty folder", "Choose another.")
    torch.manual_seed(args.seed)

    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32, attn_implementation="sdpa")
    model = model.to(args.device).train()
    rows = read_episodes(args.episodes, model.config.vocab_size, model.config.max_position_embeddings)
    if len(rows) < args.steps * args.batch:
        fail(f"reading {args.episodes}", f"{len(rows)} transcripts", f"{args.steps * args.batch}, each to be seen once",
             "Make more, or lower --steps.")
    matrices = [value for value in model.parameters() if value.dim() == 2]
    gains = [value for value in model.parameters() if value.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": gains, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95))
    started, losses = time.time(), []
    for step in range(args.steps):
        ids, mask = batch_of(rows[step * args.batch : (step + 1) * args.batch], args.device)
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, args.steps, args.lr)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=args.device.startswith("cuda")):
            loss = loss_of(model, ids, mask)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        if step % 25 == 24 or step < 3 or step + 1 == args.steps:
            recent = losses[-25:]
            shown = {"step": step + 1, "loss": round(sum(recent) / len(recent), 4)}
            print(json.dumps({**shown, "seconds": round(time.time() - started, 1)}), flush=True)
    write_checkpoint(model, args.model, args.out)
    lengths = [len(ids) for ids, _ in rows[: args.steps * args.batch]]
    record = {
        "parameters": sum(value.numel() for value in model.parameters()),
        "steps": args.steps, "batch": args.batch, "lr": args.lr, "seed": args.seed,
        "device": torch.cuda.get_device_name() if args.device.startswith("cuda") else args.device,
        "torch": torch.__version__,
        "meanIds": round(sum(lengths) / len(lengths), 1), "maxIds": max(lengths),
        "assistantTokens": sum(sum(mask) for _, mask in rows[: args.steps * args.batch]),
        "losses": [round(losses[0], 4), round(sum(losses[-25:]) / len(losses[-25:]), 4)],
        "seconds": round(time.time() - started, 1),
    }  # fmt: skip
    print(json.dumps(record), flush=True)
    if args.record:
        args.record.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
