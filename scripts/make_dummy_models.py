#!/usr/bin/env python3
"""Write a Llama-shaped target and its EAGLE-3 draft without weights, to benchmark SGLang with.

Each folder holds config.json, generation_config.json and a byte-level tokenizer with a chat
template: about 5 MB for a pair, nothing downloaded, standard library only. SGLang fills the
weights at launch with `--load-format dummy`, so kernels, memory and communication cost what they
cost for a real model of that shape. What the models say is noise, and the draft is almost never
right: set the accept length yourself and send requests with `ignore_eos`.

    python scripts/make_dummy_models.py models
    SGLANG_SIMULATE_ACC_LEN=2.5 python -m sglang.launch_server --load-format dummy \\
        --model-path models/llama8b-target --tp 2 --speculative-algorithm EAGLE3 \\
        --speculative-draft-model-path models/llama8b-eagle3 --speculative-num-steps 3 \\
        --speculative-eagle-topk 1 --speculative-num-draft-tokens 4

SGLANG_SIMULATE_ACC_LEN counts the bonus token and lies in 1 .. num_steps + 1. The draft is loaded
as the target is; `--speculative-draft-load-format dummy` says it separately. Speeds measured
this way answer "how fast at this accept length", never "how often is this draft right".

llama-8b  Vocabulary 128,256, as Llama 3: the output head and its gather over TP ranks are a real
          share of a decode step, so a small vocabulary would flatter every speed. The draft's is
          32,000, as published EAGLE-3 heads for this model have it. 16 GB in bfloat16.
llama-8b-49k  The same with a vocabulary of 49,152, to see what the head's size changes.
tiny      Seconds on a CPU, to see whether a launch works at all; its speeds mean nothing.

The tokenizer maps each byte to the token of the same number and merges nothing: a prompt has as
many tokens as UTF-8 bytes, 4 or 5 times what a trained tokenizer gives. The special tokens follow.
Every further id is a word that no text is encoded to, there so that generated ids decode to text.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]

MARKER = ".made-by-make-dummy-models"  # says that a folder may be written again
SPECIALS = ("<|begin|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>")
BEGIN, END = 256, 257  # ids: the bytes come first

# Plain concatenation, as a trained template does it: roles, contents, the opening of the answer.
CHAT_TEMPLATE = (
    "{{ '<|begin|>' }}"
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

COMMON: Json = {
    "model_type": "llama",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "attention_bias": False,
    "mlp_bias": False,
    "max_position_embeddings": 8192,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "bos_token_id": BEGIN,
    "eos_token_id": END,
    "pad_token_id": END,
    "torch_dtype": "bfloat16",
    # The release whose layout this is. Without it transformers 5 warns that a tokenizer of this
    # size may be Mistral's.
    "transformers_version": "4.46.0",
}
LLAMA_8B: Json = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
}
# --shape: the folders' prefix, the target's config, the draft's vocabulary.
SHAPES: dict[str, tuple[str, Json, int]] = {
    "llama-8b": ("llama8b", LLAMA_8B, 32000),
    "llama-8b-49k": ("llama8b49k", LLAMA_8B | {"vocab_size": 49152}, 32000),
    # EAGLE-3 reads the hidden states of three layers, which are distinct from 8 layers up.
    "tiny": (
        "tiny",
        {
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 8,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "vocab_size": 512,
        },
        384,
    ),
}


def byte_alphabet() -> list[str]:
    """The character that byte-level tokenizers write for each byte 0..255.

    GPT-2's table: printable Latin-1 stands for itself, the other bytes take U+0100 upwards in turn.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    alphabet, shifted = [], 0x100
    for byte in range(256):
        if byte in printable:
            alphabet.append(chr(byte))
        else:
            alphabet.append(chr(shifted))
            shifted += 1
    return alphabet


def vocabulary(size: int) -> dict[str, int]:
    """Token to id, for every id below `size`: bytes, special tokens, then unreachable words."""
    alphabet = byte_alphabet()
    tokens = [*alphabet, *SPECIALS]
    space = alphabet[ord(" ")]
    tokens += [f"{space}w{index}" for index in range(len(tokens), size)]
    return {token: index for index, token in enumerate(tokens)}


def tokenizer(size: int) -> Json:
    """tokenizer.json: byte-level BPE without merges, so text becomes its bytes."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": index, "content": token, **plain, "special": True}
            for index, token in enumerate(SPECIALS, start=BEGIN)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,  # True would look whole words up
            "vocab": vocabulary(size),
            "merges": [],
        },
    }


def tokenizer_config(config: Json) -> Json:
    """tokenizer_config.json for transformers' AutoTokenizer."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIALS[0],
        "eos_token": SPECIALS[1],
        "pad_token": SPECIALS[1],
        "model_max_length": config["max_position_embeddings"],
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }


def configs(shape: str) -> dict[str, Json]:
    """Folder name to config.json: the target's and the draft's."""
    prefix, dimensions, draft_vocab = SHAPES[shape]
    target = {"architectures": ["LlamaForCausalLM"], **COMMON, **dimensions}
    draft = target | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        # Draft ids are target ids here: the table that maps them comes with real weights only.
        "draft_vocab_size": draft_vocab,
    }
    return {f"{prefix}-target": target, f"{prefix}-eagle3": draft}


def may_write(folder: Path) -> bool:
    """Whether `folder` is free, empty, or made by this script."""
    if not folder.exists():
        return True
    return folder.is_dir() and ((folder / MARKER).exists() or not any(folder.iterdir()))


def write_model(folder: Path, config: Json) -> None:
    """Write one model folder. Other files in it are left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text("No weights: launch with --load-format dummy.\n")
    generation = {"bos_token_id": BEGIN, "eos_token_id": END, "pad_token_id": END}
    files = {
        "config.json": config,
        "generation_config.json": generation,
        "tokenizer_config.json": tokenizer_config(config),
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    # One line: the vocabulary is long.
    (folder / "tokenizer.json").write_text(
        json.dumps(tokenizer(config["vocab_size"]), ensure_ascii=False), encoding="utf-8"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Write the folders and print their paths, one a line. Returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Write a Llama-shaped target and an EAGLE-3 draft for SGLang's "
        "--load-format dummy: configs and a byte-level tokenizer, no weights.",
        epilog="Prints the two folders, the target first.",
    )
    parser.add_argument("out", metavar="OUT", type=Path, help="the folder to write them in")
    parser.add_argument(
        "--shape", choices=tuple(SHAPES), default="llama-8b", help="default: %(default)s"
    )
    parser.add_argument(
        "--force", action="store_true", help="also write into folders that this script did not make"
    )
    arguments = parser.parse_args(argv)
    folders = {arguments.out / name: config for name, config in configs(arguments.shape).items()}
    if not arguments.force:
        for folder in folders:
            if not may_write(folder):
                parser.error(f"{folder} holds something else, name another OUT or use --force")
    try:
        for folder, config in folders.items():
            write_model(folder, config)
            print(folder)
    except OSError as error:
        parser.error(f"cannot write {error.filename}: {error.strerror}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
