"""The embedded policy's architecture: a small Qwen3 in plain PyTorch, with a ragged key/value cache and optional LoRA.

Not a general model class: it knows one shape of checkpoint, and computes in float32 on the CPU.
Invariant: parameter names and arithmetic are those of transformers' Qwen3ForCausalLM (check.py compares the logits).
"""

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

LINEARS = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)


class Policy(nn.Module):
    """A Qwen3 decoder with tied embeddings. `shape` is config.json as transformers 5 spells it."""

    def __init__(self, shape: dict, seed: int = 0):
        super().__init__()
        self.shape = shape
        hidden, inner = shape["hidden_size"], shape["intermediate_size"]
        heads, groups, width = shape["num_attention_heads"], shape["num_key_value_heads"], shape["head_dim"]
        self.layers = shape["num_hidden_layers"]
        generator = torch.Generator().manual_seed(seed)

        def matrix(rows: int, columns: int, std: float) -> torch.Tensor:
            return torch.randn(rows, columns, generator=generator) * std

        out_std = 0.02 / (2 * self.layers) ** 0.5
        tensors = {"model.embed_tokens.weight": matrix(shape["vocab_size"], hidden, 0.02)}
        for i in range(self.layers):
            at = f"model.layers.{i}."
            tensors[at + "input_layernorm.weight"] = torch.ones(hidden)
            tensors[at + "self_attn.q_proj.weight"] = matrix(heads * width, hidden, hidden**-0.5)
            tensors[at + "self_attn.k_proj.weight"] = matrix(groups * width, hidden, hidden**-0.5)
            tensors[at + "self_attn.v_proj.weight"] = matrix(groups * width, hidden, hidden**-0.5)
            tensors[at + "self_attn.o_proj.weight"] = matrix(hidden, heads * width, out_std)
            tensors[at + "self_attn.q_norm.weight"] = torch.ones(width)
            tensors[at + "self_attn.k_norm.weight"] = torch.ones(width)
            tensors[at + "post_attention_layernorm.weight"] = torch.ones(hidden)
            tensors[at + "mlp.gate_proj.weight"] = matrix(inner, hidden, hidden**-0.5)
            tensors[at + "mlp.up_proj.weight"] = matrix(inner, hidden, hidden**-0.5)
            tensors[at + "mlp.down_proj.weight"] = matrix(hidden, inner, out_std)
        tensors["model.norm.weight"] = torch.ones(hidden)
        # ParameterDict refuses dots in names, so the dictionary of names lies beside a plain list.
        self.names = list(tensors)
        self.values = nn.ParameterList([nn.Parameter(value) for value in tensors.values()])
        self.index = {name: i for i, name in enumerate(self.names)}
        self.lora: dict[str, tuple[nn.Parameter, nn.Parameter]] = {}
        self.lora_scale = 0.0
        frequency = shape["rope_parameters"]["rope_theta"] ** (-torch.arange(0, width, 2).float() / width)
        angle = torch.arange(shape["max_position_embeddings"]).float()[:, None] * frequency[None, :]
        angle = torch.cat([angle, angle], dim=-1)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    @staticmethod
    def load(folder: Path) -> "Policy":
        policy = Policy(json.loads((folder / "config.json").read_text()))
        for name, tensor in load_file(folder / "model.safetensors").items():
            policy.tensor(name).data.copy_(tensor.float())
        return policy

    def tensor(self, name: str) -> nn.Parameter:
        return self.values[self.index[name]]

    def add_lora(self, rank: int, alpha: float, seed: int) -> list[nn.Parameter]:
        """Freezes the base and adds an adapter on every linear layer, initialised as PEFT does."""
        for value in self.values:
            value.requires_grad_(False)
        generator = torch.Generator().manual_seed(seed)
        for i in range(self.layers):
            for linear in LINEARS:
                name = f"model.layers.{i}.{linear}.weight"
                rows, columns = self.tensor(name).shape
                a = (torch.rand(rank, columns, generator=generator) * 2 - 1) * columns**-0.5
                self.lora[name] = (nn.Parameter(a), nn.Parameter(torch.zeros(rows, rank)))
        self.lora_scale = alpha / rank
        return [parameter for pair in self.lora.values() for parameter in pair]

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        y = F.linear(x, self.tensor(name))
        if name in self.lora:
            a, b = self.lora[name]
            y = y + F.linear(F.linear(x, a), b) * self.lora_scale
        return y

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.tensor(name), self.shape["rms_norm_eps"])

    def rotate(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """x: [..., tokens, heads, width]; positions: [..., tokens]."""
        half = x.shape[-1] // 2
        turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
        return x * self.cos[positions].unsqueeze(-2) + turned * self.sin[positions].unsqueeze(-2)

    def qkv(self, x: torch.Tensor, layer: int, positions: torch.Tensor):
        """x: [tokens, hidden] -> q [tokens, heads, width], k and v [tokens, kv heads, width]."""
        at, width = f"model.layers.{layer}.", self.shape["head_dim"]
        h = self.norm(x, at + "input_layernorm.weight")
        q, k, v = (self.linear(h, f"{at}self_attn.{p}_proj.weight").unflatten(-1, (-1, width)) for p in "qkv")
        q = self.rotate(self.norm(q, at + "self_attn.q_norm.weight"), positions)
        k = self.rotate(self.norm(k, at + "self_attn.k_norm.weight"), positions)
        return q, k, v

    def after_attention(self, x: torch.Tensor, mixed: torch.Tensor, layer: int) -> torch.Tensor:
        at = f"model.layers.{layer}."
        x = x + self.linear(mixed, at + "self_attn.o_proj.weight")
        h = self.norm(x, at + "post_attention_layernorm.weight")
        gate = F.silu(self.linear(h, at + "mlp.gate_proj.weight"))
        return x + self.linear(gate * self.linear(h, at + "mlp.up_proj.weight"), at + "mlp.down_proj.weight")

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(self.norm(x, "model.norm.weight"), self.tensor("model.embed_tokens.weight"))

    def hidden_after_prefix(self, prefix: torch.Tensor, rest: torch.Tensor) -> torch.Tensor:
        """The last hidden states [rows, tokens, hidden] of `rest` [rows, tokens], each row following `prefix` [length].

        The prefix that all rows share is computed once; padding at the end of a row needs no mask.
        """
        shared, (rows, tokens) = prefix.numel(), rest.shape
        positions = torch.cat([torch.arange(shared), torch.arange(shared, shared + tokens).repeat(rows)])
        x = F.embedding(torch.cat([prefix, rest.reshape(-1)]), self.tensor("model.embed_tokens.weight"))
        mask = torch.ones(tokens, shared + tokens, dtype=torch.bool).tril(shared)

        def split(t: torch.Tensor):
            head, tail = t[:shared], t[shared:].unflatten(0, (rows, tokens))
            return head.transpose(0, 1).unsqueeze(0), tail.transpose(1, 2)

        for layer in range(self.layers):
            (q0, q1), (k0, k1), (v0, v1) = (split(t) for t in self.qkv(x, layer, positions))
            head = F.scaled_dot_product_attention(q0, k0, v0, is_causal=True, enable_gqa=True)
            k1 = torch.cat([k0.expand(rows, -1, -1, -1), k1], dim=2)
            v1 = torch.cat([v0.expand(rows, -1, -1, -1), v1], dim=2)
            tail = F.scaled_dot_product_attention(q1, k1, v1, attn_mask=mask, enable_gqa=True)
            mixed = torch.cat([head[0].transpose(0, 1).flatten(1), tail.transpose(1, 2).reshape(rows * tokens, -1)])
            x = self.after_attention(x, mixed, layer)
        return x[shared:].unflatten(0, (rows, tokens))

    def new_cache(self, rows: int, length: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        size = (rows, length, self.shape["num_key_value_heads"], self.shape["head_dim"])
        return [(torch.zeros(size), torch.zeros(size)) for _ in range(self.layers)]

    def append(self, cache, rows: torch.Tensor, starts: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Appends ids [n, tokens] at `starts` [n] of the cache's `rows` [n]; returns hidden states [n, tokens, hidden].

        Padding may follow a row's own tokens: later appends write over it, and nothing before it sees it.
        """
        n, tokens = ids.shape
        positions = starts[:, None] + torch.arange(tokens)
        x = F.embedding(ids.reshape(-1), self.tensor("model.embed_tokens.weight"))
        reach = int(positions.max()) + 1
        mask = (torch.arange(reach) <= positions[:, :, None]).unsqueeze(1)
        for layer in range(self.layers):
            q, k, v = (t.unflatten(0, (n, tokens)) for t in self.qkv(x, layer, positions.reshape(-1)))
            keys, values = cache[layer]
            keys[rows[:, None], positions] = k
            values[rows[:, None], positions] = v
            mixed = F.scaled_dot_product_attention(
                q.transpose(1, 2),
                keys[rows, :reach].transpose(1, 2),
                values[rows, :reach].transpose(1, 2),
                attn_mask=mask,
                enable_gqa=True,
            )
            x = self.after_attention(x, mixed.transpose(1, 2).reshape(n * tokens, -1), layer)
        return x.unflatten(0, (n, tokens))
