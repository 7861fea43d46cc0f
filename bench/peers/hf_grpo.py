"""Peer: one GRPO optimizer step on transformers + peft, the work of TRL's GRPOTrainer, on random weights.

Reads a JSON object from argv[1]: config (a Hugging Face config.json), group, promptTokens, newTokens, rank, mode
("plain", "det" for deterministic algorithms, "compiled" for a static cache with torch.compile), and sampledTokens. A group
of rollouts (temperature 0.6, top-p 0.95, top-k 20, a fixed number of new tokens), reference and policy log-probs, backward
through LoRA on all linear layers, clip, AdamW. Prints a JSON line a step that counts; the last is the result. Before it, plain
and det run one that samples 16 tokens only and fills up with random ones, so that all kernels and the whole update are warm;
compiled runs two whole ones, because it compiles for the length of its cache. With sampledTokens below newTokens, plain and
det sample that many and fill up; their time is the first token's and the others' mean, as many times as tokens are wanted.
"""
import json
import os
import sys
import time

args = json.loads(sys.argv[1])
mode = args.get("mode", "plain")
if mode == "det":
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":16:8"
    os.environ["FLASH_ATTENTION_DETERMINISTIC"] = "1"

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

if mode == "det":
    torch.use_deterministic_algorithms(True, warn_only=True)
torch.manual_seed(0)
cuda = torch.cuda.is_available()
device = "cuda" if cuda else "cpu"
group, prompt, new = args["group"], args["promptTokens"], args["newTokens"]
sampled = min(new, args.get("sampledTokens") or new)
fields = {k: v for k, v in args["config"].items() if k not in ("model_type", "eos_token_id", "pad_token_id", "bos_token_id")}
config = AutoConfig.for_model(args["config"]["model_type"], **fields, eos_token_id=None, pad_token_id=0, bos_token_id=None)
# bf16 is the peer's usual type; CPUs without fast bf16 would be slowed by it.
dtype = torch.bfloat16 if cuda else torch.float32
torch.set_default_dtype(dtype)
with torch.device(device):
    model = AutoModelForCausalLM.from_config(config)
torch.set_default_dtype(torch.float32)
lora = LoraConfig(r=args["rank"], lora_alpha=2 * args["rank"], lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")
model = get_peft_model(model, lora)
parameters = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(parameters, lr=5e-6, weight_decay=0.0)
ids = torch.randint(0, config.vocab_size, (1, prompt), device=device).repeat(group, 1)
cache = dict(cache_implementation="static") if mode == "compiled" else {}


def now():
    if cuda:
        torch.cuda.synchronize()
    return time.perf_counter()


def logprobs(sequences, count):
    logits = model(sequences, logits_to_keep=count + 1).logits[:, :-1].float()
    return torch.gather(torch.log_softmax(logits / 0.6, -1), -1, sequences[:, -count:, None]).squeeze(-1)


def sample(count):
    generation = GenerationConfig(
        do_sample=True, temperature=0.6, top_p=0.95, top_k=20, max_new_tokens=count, min_new_tokens=count, use_cache=True, **cache
    )
    with torch.no_grad():
        return model.generate(ids, generation_config=generation)


def step(count, first=None):
    model.eval()
    t0 = now()
    sequences = sample(count)
    t1 = now()
    generate = t1 - t0
    if count < new and first is not None:
        generate = first + (generate - first) / (count - 1) * (new - 1)
    missing = prompt + new - sequences.shape[1]
    if missing > 0:
        sequences = torch.cat([sequences, torch.randint(0, config.vocab_size, (group, missing), device=device)], 1)
    with torch.no_grad(), model.disable_adapter():
        reference = logprobs(sequences, new)
    t2 = now()
    model.train()
    current = logprobs(sequences, new)
    advantages = torch.randn(group, device=device)
    ratio = torch.exp(current - current.detach())
    kl = torch.exp(reference - current) - (reference - current) - 1
    loss = (-(ratio * advantages[:, None]) + 0.1 * kl).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    optimizer.zero_grad()
    t3 = now()
    return {
        "mode": mode,
        "device": torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} threads",
        "dtype": str(dtype).removeprefix("torch."),
        "torch": torch.__version__,
        "newTokens": new,
        "sampledTokens": count,
        "decodeMs": generate / new * 1e3,
        "generateSeconds": generate,
        "referenceSeconds": t2 - t1,
        "trainSeconds": t3 - t1,
        "seconds": generate + t3 - t1,
        "peakBytes": torch.cuda.max_memory_allocated() if cuda else None,
    }


if mode == "compiled":
    for _ in range(3):
        print(json.dumps(step(new)), flush=True)
else:
    step(min(new, 16))
    t0 = now()
    sample(1)
    print(json.dumps(step(sampled, now() - t0)), flush=True)
