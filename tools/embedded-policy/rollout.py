"""Rolls out the embedded policy against the project's own environment, which runs in transcripts.ts behind a pipe.

Not the project's sampler: it is the independent one by which the checkpoint is measured when it is made.
Invariant: token-in/token-out; the pipe gives and takes token ids, so text is encoded by the project's code alone.
"""

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import torch

from policy import Policy

HERE = Path(__file__).parent


class Bridge:
    """One transcripts.ts process; a request and its answer are one JSON line each."""

    def __init__(self, tokenizer: Path):
        command = ["node", "--import", "tsx", str(HERE / "transcripts.ts"), "serve", str(tokenizer)]
        self.process = subprocess.Popen(
            command, cwd=HERE.parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, request: dict) -> dict:
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("asking transcripts.ts: it ended without an answer; its own message stands above")
        return json.loads(line)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


@dataclass
class Rollout:
    episode: int
    ids: list[int]
    mask: list[int]
    prompt: int
    forced: list[int] = field(default_factory=list)
    turn: list[int] = field(default_factory=list)
    done: bool = False
    verdict: dict | None = None
    texts: list[str] = field(default_factory=list)
    outcome: str = ""
    capped: bool = False


def pick(logits: torch.Tensor, temperature: float, top_p: float, top_k: int, generator: torch.Generator):
    """Samples one id a row: temperature, then top-k, then top-p, as transformers orders them."""
    logits = logits / temperature
    if top_k > 0:
        floor = logits.topk(top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < floor, float("-inf"))
    if top_p < 1:
        ordered, order = logits.sort(dim=-1, descending=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
        ordered = ordered.masked_fill(before >= top_p, float("-inf"))
        logits = torch.full_like(logits, float("-inf")).scatter(1, order, ordered)
    return torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]


@torch.no_grad()
def roll_out(
    policy: Policy,
    bridge: Bridge,
    episodes: list[dict],
    *,
    stops: list[int],
    temperature: float,
    top_p: float,
    top_k: int,
    budget: int,
    generator: torch.Generator,
) -> list[Rollout]:
    """Plays `episodes` (requests for `open`) at once; `budget` caps the tokens after the prompt, observations too."""
    opened = bridge.ask({"do": "open", "episodes": episodes})["prompts"]
    rollouts = [Rollout(i, list(ids), [0] * len(ids), len(ids)) for i, ids in enumerate(opened)]
    longest = max(len(ids) for ids in opened)
    cache = policy.new_cache(len(rollouts), longest + budget + 1)
    everyone = torch.arange(len(rollouts))
    padded = torch.tensor([ids + [0] * (longest - len(ids)) for ids in opened])
    hidden = policy.append(cache, everyone, torch.zeros(len(rollouts), dtype=torch.long), padded)
    ends = torch.tensor([len(ids) - 1 for ids in opened])
    last = hidden[everyone, ends]
    active = list(range(len(rollouts)))
    while active:
        sampled = pick(policy.logits(last), temperature, top_p, top_k, generator).tolist()
        finished = []
        for row, token in zip(active, sampled):
            r = rollouts[row]
            if r.forced:
                token = r.forced.pop(0)
                r.mask.append(0)
            else:
                r.turn.append(token)
                r.mask.append(1)
                if token in stops or len(r.ids) + 1 - r.prompt >= budget:
                    finished.append(row)
            r.ids.append(token)
        if finished:
            turns = [
                {
                    "episode": row,
                    "ids": rollouts[row].turn,
                    "left": budget - (len(rollouts[row].ids) - rollouts[row].prompt),
                }
                for row in finished
            ]
            for row, answer in zip(finished, bridge.ask({"do": "turn", "turns": turns})["answers"]):
                r = rollouts[row]
                r.texts.append(answer["text"])
                r.turn = []
                if answer["done"]:
                    r.done, r.verdict, r.outcome, r.capped = (
                        True,
                        answer["verdict"],
                        answer["outcome"],
                        answer["capped"],
                    )
                else:
                    r.forced = answer["suffix"]
        active = [row for row in active if not rollouts[row].done]
        if active:
            rows = torch.tensor(active)
            starts = torch.tensor([len(rollouts[row].ids) - 1 for row in active])
            fed = torch.tensor([[rollouts[row].ids[-1]] for row in active])
            last = policy.append(cache, rows, starts, fed)[:, 0]
    return rollouts
