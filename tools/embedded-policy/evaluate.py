"""Measures the embedded policy on fresh episodes of the real environment: strict success, its interval, and why not.

Not the project's evaluator: sampling is done here in PyTorch, scoring by the project's environment (transcripts.ts).
Invariant: the episodes come from the held-out stream of transcripts.ts, which no training data is drawn from.

usage: evaluate.py MODEL_DIR [--episodes 256] [--seed 20260101] [--output measured.json]
"""

import argparse
import json
from collections import Counter
from pathlib import Path

import torch

from policy import Policy
from rollout import Bridge, roll_out

SETTINGS = [
    {"temperature": 1.0, "top_p": 1.0, "top_k": 0},
    {"temperature": 0.9, "top_p": 1.0, "top_k": 0},
    {"temperature": 0.6, "top_p": 0.95, "top_k": 20},
]


def wilson(hits: int, n: int) -> list[float]:
    """95 % Wilson score interval of a proportion."""
    z = 1.959964
    centre = (hits + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * (hits * (n - hits) / n + z * z / 4) ** 0.5
    return [round(centre - half, 4), round(centre + half, 4)]


def measure(policy: Policy, bridge: Bridge, stops: list[int], episodes: int, seed: int, setting: dict) -> dict:
    requests = [{"stream": "held-out", "index": i} for i in range(episodes)]
    generator = torch.Generator().manual_seed(seed)
    rollouts = roll_out(policy, bridge, requests, stops=stops, budget=320, generator=generator, **setting)
    hits = sum(r.verdict["strict"] for r in rollouts)
    after = [len(r.ids) - r.prompt for r in rollouts]
    sampled = [sum(r.mask) for r in rollouts]
    return {
        **setting,
        "episodes": episodes,
        "strict": hits,
        "rate": round(hits / episodes, 4),
        "interval95": wilson(hits, episodes),
        "meanReward": round(sum(r.verdict["reward"] for r in rollouts) / episodes, 4),
        "outcomes": dict(Counter(r.outcome for r in rollouts).most_common()),
        "tokens": {
            "prompt": {
                "mean": round(sum(r.prompt for r in rollouts) / episodes, 1),
                "max": max(r.prompt for r in rollouts),
            },
            "afterPrompt": {"mean": round(sum(after) / episodes, 1), "max": max(after)},
            "sampled": {"mean": round(sum(sampled) / episodes, 1), "max": max(sampled)},
            "turns": {
                "mean": round(sum(len(r.texts) for r in rollouts) / episodes, 2),
                "max": max(len(r.texts) for r in rollouts),
            },
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(2)
    policy = Policy.load(args.model)
    stops = json.loads((args.model / "generation_config.json").read_text())["eos_token_id"]
    bridge = Bridge(args.model)
    results = [measure(policy, bridge, stops, args.episodes, args.seed, setting) for setting in SETTINGS]
    bridge.close()
    for result in results:
        print(json.dumps(result), flush=True)
    if args.output:
        args.output.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
