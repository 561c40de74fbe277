"""A draft small enough to keep beside its tests: weights of 8 bits, with one scale for each row.

    config.json             as SGLang reads it
    packed.safetensors      NAME int8 and NAME.scale float32 of each matrix; vectors in bfloat16;
                            draft_ids int32, the target's ids of the draft vocabulary

What is served is what `unpack` makes of it, in bfloat16: the same bits wherever it runs.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

FILE = "packed.safetensors"


def pack(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """An EAGLE-3 draft's state, packed. A value is off by half of its row's highest / 127."""
    packed: dict[str, Tensor] = {}
    for name, values in weights.items():
        values = values.detach().cpu()
        if name == "d2t":
            packed["draft_ids"] = (values + torch.arange(len(values))).int()
        elif name == "t2d":
            continue  # the ids say it, too
        elif values.dim() == 1:
            packed[name] = values.bfloat16()
        else:
            scale = values.float().abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
            packed[name] = (values.float() / scale).round().to(torch.int8)
            packed[f"{name}.scale"] = scale
    return packed


def unpack(packed: dict[str, Tensor], vocabulary: int) -> dict[str, Tensor]:
    """The weights in bfloat16, with d2t and t2d as SGLang reads them."""
    weights: dict[str, Tensor] = {}
    for name, values in packed.items():
        if name == "draft_ids":
            ids = values.long()
            weights["d2t"] = ids - torch.arange(len(ids))
            weights["t2d"] = torch.zeros(vocabulary, dtype=torch.bool).index_fill(0, ids, True)
        elif values.dtype == torch.int8:
            weights[name] = (values.float() * packed[f"{name}.scale"]).bfloat16()
        elif not name.endswith(".scale"):
            weights[name] = values
    return weights


def is_packed(folder: Path) -> bool:
    return (folder / FILE).is_file()


def write(folder: Path, config: dict[str, Any], weights: dict[str, Tensor]) -> None:
    """Packs a draft into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file(pack(weights), folder / FILE, {"format": "pt"})


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The config and the unpacked weights of such a folder."""
    config = json.loads((folder / "config.json").read_text())
    return config, unpack(load_file(folder / FILE), config["vocab_size"])


def write_unpacked(folder: Path, to: Path) -> None:
    """An ordinary draft folder, as SGLang loads it."""
    config, weights = read(folder)
    to.mkdir(parents=True, exist_ok=True)
    (to / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file(weights, to / "model.safetensors", {"format": "pt"})
