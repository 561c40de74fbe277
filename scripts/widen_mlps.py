"""The same model at the cost of a larger one: real answers and real acceptance at real speeds.

    python scripts/widen_mlps.py TARGET OUT --intermediate-size 98304

TARGET is a Llama's folder (config.json, model.safetensors), such as scripts/make_real_pair.py
makes. OUT gets the same model with wider MLPs: each gate_proj and up_proj has rows of noise added,
each down_proj columns of zeros, so that what is added is read and computed for every token and
adds nothing. Its answers are the narrow model's, but for the rounding of longer sums, and so is
what a draft of the narrow model gets accepted; its decode step takes the time of its own weights:
SmolLM2-135M with MLPs of 98,304 has 5.1 billion parameters, 10.3 GB in bfloat16.

One file a layer, so that no more than a layer is in memory. Needs torch and safetensors.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

MLP = {"mlp.gate_proj.weight": 0, "mlp.up_proj.weight": 0, "mlp.down_proj.weight": 1}
"""The weights that get wider, and along which dimension."""

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"


def layer_of(name: str) -> str:
    """The file that a tensor goes to: its layer's, or the one of all that is in no layer."""
    parts = name.split(".")
    return f"layer-{int(parts[2]):03d}" if parts[:2] == ["model", "layers"] else "outside-layers"


def wider(name: str, weight: torch.Tensor, size: int) -> torch.Tensor:
    """`weight` (rows, columns), where it is an MLP's, with that many intermediate features."""
    dimension = next((MLP[end] for end in MLP if name.endswith(end)), None)
    if dimension is None:
        return weight
    more = list(weight.shape)
    more[dimension] = size - more[dimension]
    added = torch.zeros(more, dtype=weight.dtype)
    if dimension == 0:
        # Noise, since a GPU draws less power for zeros and clocks higher.
        added.normal_(std=0.02, generator=torch.Generator().manual_seed(0))
    return torch.cat([weight, added], dimension)


def widen(target: Path, out: Path, size: int) -> None:
    config = json.loads((target / CONFIG).read_text())
    files: dict[str, str] = {}
    with safe_open(target / WEIGHTS, framework="pt") as weights:
        by_layer: dict[str, list[str]] = {}
        for name in sorted(weights.keys()):
            by_layer.setdefault(layer_of(name), []).append(name)
        for layer, names in by_layer.items():
            held = {name: wider(name, weights.get_tensor(name), size) for name in names}
            file = f"{layer}.safetensors"
            save_file(held, out / file, {"format": "pt"})
            files.update(dict.fromkeys(names, file))
    (out / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": files}, indent=1) + "\n")
    for each in target.iterdir():
        if each.is_file() and each.name not in (WEIGHTS, CONFIG):
            shutil.copyfile(each, out / each.name)
    # Last: a folder without it is no model, should this be ended half-way.
    config["intermediate_size"] = size
    (out / CONFIG).write_text(json.dumps(config, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Widen the MLPs of a Llama; its answers stay.")
    parser.add_argument("target", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--intermediate-size", type=int, required=True)
    arguments = parser.parse_args()
    target, out, size = arguments.target, arguments.out, arguments.intermediate_size
    for name in (CONFIG, WEIGHTS):
        if not (target / name).is_file():
            parser.error(f"{target} has no {name}, give the folder of a model in one file")
    config = json.loads((target / CONFIG).read_text())
    if config.get("architectures") != ["LlamaForCausalLM"]:
        parser.error(f"{target} is no Llama: {CONFIG} says {config.get('architectures')}")
    if size <= config["intermediate_size"]:
        now = config["intermediate_size"]
        parser.error(f"--intermediate-size {size} widens nothing, {target} has {now}")
    if out.exists() and any(out.iterdir()):
        sys.exit(f"{out} is not empty, name a new folder")
    out.mkdir(parents=True, exist_ok=True)
    widen(target, out, size)
    print(out)


if __name__ == "__main__":
    main()
