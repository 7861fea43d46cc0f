"""A short GRPO run of the embedded policy in PyTorch: shows which learning rate, group size and step count teach it.

Not the project's trainer: it is the rehearsal by which the embedded run's settings were chosen.
Invariant: one use of each batch at ratio 1, so the gradient is that of the token-mean (dapo) policy-gradient loss.

usage: grpo.py MODEL_DIR [--steps 30 --groups 1 --members 8 --lr 5e-3 --rank 8 --alpha 16 --seed 1]
"""

import argparse
import json
import time
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence

from evaluate import measure
from policy import Policy
from rollout import Bridge, roll_out


def advantages_of(rewards: torch.Tensor) -> torch.Tensor:
    """[groups, members] -> the same: centred in the group, divided by its sample deviation + 1e-4."""
    centred = rewards - rewards.mean(dim=1, keepdim=True)
    return centred / (rewards.std(dim=1, keepdim=True) + 1e-4)


def logprobs_of(policy: Policy, prefix, rest, wanted, temperature: float) -> torch.Tensor:
    """Log-probs at `temperature` of those tokens of `rest` [rows, tokens] that `wanted` [rows, tokens - 1] marks."""
    hidden = policy.hidden_after_prefix(prefix, rest)[:, :-1]
    scores = (policy.logits(hidden[wanted]) / temperature).log_softmax(-1)
    return scores.gather(1, rest[:, 1:][wanted][:, None])[:, 0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--constant", action="store_true", help="no linear decay")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--alpha", type=float, default=16)
    parser.add_argument("--beta", type=float, default=0.0)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=128, help="of each evaluation")
    parser.add_argument("--reward", choices=["reward", "strict"], default="reward")
    args = parser.parse_args()
    torch.set_num_threads(1)
    policy = Policy.load(args.model)
    stops = json.loads((args.model / "generation_config.json").read_text())["eos_token_id"]
    bridge = Bridge(args.model)
    setting = {"temperature": args.temperature, "top_p": 1.0, "top_k": 0}
    before = measure(policy, bridge, stops, args.episodes, 5, setting)
    print(json.dumps({"before": before}), flush=True)
    parameters = policy.add_lora(args.rank, args.alpha, args.seed)
    optimizer = torch.optim.AdamW(parameters, lr=args.lr, weight_decay=0.0)
    generator = torch.Generator().manual_seed(args.seed)
    started, solved = time.time(), []
    for step in range(args.steps):
        requests = [
            {"stream": "rehearsal", "index": args.seed * 1009 + step * args.groups + group}
            for group in range(args.groups)
            for _ in range(args.members)
        ]
        rollouts = roll_out(policy, bridge, requests, stops=stops, budget=320, generator=generator, **setting)
        rewards = torch.tensor([float(r.verdict[args.reward]) for r in rollouts]).view(args.groups, args.members)
        advantages = advantages_of(rewards).flatten()
        ids = pad_sequence([torch.tensor(r.ids) for r in rollouts], batch_first=True)
        mask = pad_sequence([torch.tensor(r.mask) for r in rollouts], batch_first=True)
        shared = min(r.prompt for r in rollouts) - 1
        while not bool((ids[:, :shared] == ids[0, :shared]).all()):
            shared -= 1
        rest, wanted = ids[:, shared:], mask[:, shared + 1 :].bool()
        logp = logprobs_of(policy, ids[0, :shared], rest, wanted, args.temperature)
        weights = advantages[:, None].expand_as(wanted)[wanted]
        loss = -(weights * logp).mean()
        if args.beta:
            adapter, policy.lora = policy.lora, {}
            with torch.no_grad():
                reference = logprobs_of(policy, ids[0, :shared], rest, wanted, args.temperature)
            policy.lora = adapter
            difference = reference - logp
            loss = loss + args.beta * (difference.exp() - difference - 1).mean()
        for group in optimizer.param_groups:
            group["lr"] = args.lr if args.constant else args.lr * (args.steps - step) / args.steps
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        solved.append(sum(r.verdict["strict"] for r in rollouts) / len(rollouts))
        if step % 5 == 4:
            print(
                json.dumps(
                    {
                        "step": step + 1,
                        "strict": round(sum(solved[-5:]) / 5, 3),
                        "reward": round(rewards.mean().item(), 3),
                        "norm": round(norm.item(), 3),
                        "seconds": round(time.time() - started, 1),
                    }
                ),
                flush=True,
            )
    after = measure(policy, bridge, stops, args.episodes, 6, setting)
    sharp = measure(policy, bridge, stops, args.episodes, 6, {"temperature": 0.6, "top_p": 0.95, "top_k": 20})
    print(json.dumps({"afterAtTemperature0.6": sharp}), flush=True)
    print(
        json.dumps({"after": after, "gain": round(after["rate"] - before["rate"], 3), "args": vars(args)}, default=str)
    )
    bridge.close()


if __name__ == "__main__":
    main()
