"""Trains the embedded policy's byte-level BPE tokenizer and writes it in Hugging Face format.

Not a general tokenizer: its merges are those that the transcripts' own text needs, in a vocabulary of a few hundred.
Invariant: normalizer, pre-tokenizer, decoder, special tokens and their flags, and chat template are Qwen3's own, read
from a copy of the published tokenizer; only vocabulary and merges differ.

usage: tokenizer.py CORPUS.jsonl QWEN3_DIR OUT_DIR [--vocab 656]
"""

import argparse
import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

# The tokens that the policy meets. Ids follow the vocabulary, in the order of the published tokenizer.
SPECIALS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
]


def corpus_texts(path: Path, specials: list[str]):
    """Yields the text of the transcripts, cut at special tokens: merges never cross one."""
    seen_prompt_parts: set[str] = set()
    for line in path.open(encoding="utf-8"):
        for segment in json.loads(line)["segments"]:
            parts = [segment["text"]]
            for token in specials:
                parts = [piece for part in parts for piece in part.split(token)]
            for part in parts:
                # The tools prompt is the same in every episode: counted a few hundred times it would take every merge
                # for itself, so it counts eight times.
                if segment["source"] == "prompt" and "# Tools" in part:
                    if part in seen_prompt_parts:
                        continue
                    seen_prompt_parts.add(part)
                    yield from [part] * 8
                else:
                    yield part


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("qwen3", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--vocab", type=int, default=656, help="size with the special tokens")
    args = parser.parse_args()

    published = json.loads((args.qwen3 / "tokenizer.json").read_text(encoding="utf-8"))
    published_config = json.loads((args.qwen3 / "tokenizer_config.json").read_text(encoding="utf-8"))
    flags = {token["content"]: token for token in published["added_tokens"]}
    pattern = published["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=args.vocab - len(SPECIALS),
        min_frequency=2,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[],
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus_texts(args.corpus, SPECIALS), trainer)
    for content in SPECIALS:
        token = AddedToken(
            content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=flags[content]["special"]
        )
        (tokenizer.add_special_tokens if flags[content]["special"] else tokenizer.add_tokens)([token])

    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(args.out / "tokenizer.json"))
    (args.out / "chat_template.jinja").write_text(published_config["chat_template"], encoding="utf-8")
    decoder = {
        str(token["id"]): {key: value for key, value in token.items() if key != "id"}
        for token in json.loads(tokenizer.to_str())["added_tokens"]
    }
    config = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": decoder,
        "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 1024,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    (args.out / "tokenizer_config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    print(
        json.dumps({"vocab": tokenizer.get_vocab_size(), "specials": {t: tokenizer.token_to_id(t) for t in SPECIALS}})
    )


if __name__ == "__main__":
    main()
