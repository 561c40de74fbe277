"""What tells a model folder from the same one with other files in it."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tuner.engine.models import WEIGHTS

_FORMAT = "2"
"""Of the digest: what it covers. Digests of two formats say nothing about each other."""
_SMALL = (
    "*config*.json",
    "*.index.json",
    "params.json",
    "tokenizer*",
    "tekken.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges*",
    "*.model",
    "*.tiktoken",
    "chat_template*",
    "*.jinja",
    "*.py",
)
"""Configs, tokenizer, chat template, and code for --trust-remote-code: read whole."""
_SAMPLES, _SAMPLE_BYTES, _APART = 16, 2**16, 2**26
"""Of each weight file: whole checkpoints have up to a terabyte."""


def digest_of(model: Path) -> str | None:
    """`2:` and 16 hex digits of a model's folder, or of a model that is one file.

    Small files count whole, weight files, also those one level below, by name, size and samples:
    64 KiB at least every 64 MiB, and 16 at least, the beginning and the end among them. No times:
    a copy of a folder is the same model. None where a file cannot be read.
    """
    found = hashlib.sha256()
    try:
        small = set(_files(model, _SMALL))
        below = tuple(f"*/{pattern}" for pattern in WEIGHTS)
        weights = set(_files(model, WEIGHTS + below)) if model.is_dir() else {model}
        for path in sorted(small | weights):
            size = path.stat().st_size
            name = os.fsencode(path.relative_to(model))
            found.update(name + f"\0{size}\0".encode())
            if path in small:
                found.update(path.read_bytes())
            else:
                _add_samples(found, path, size)
    except OSError:
        return None
    return f"{_FORMAT}:{found.hexdigest()[:16]}"


def is_comparable(one: str, other: str) -> bool:
    """False for digests of two formats: an older specbench covered other files."""
    return one.rpartition(":")[0] == other.rpartition(":")[0]


def _files(folder: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    """Regular files, less those of tools (`.git`, `.cache`)."""
    for pattern in patterns:
        for path in folder.glob(pattern):
            hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
            if not hidden and path.is_file():
                yield path


def _add_samples(found: Any, path: Path, size: int) -> None:
    count = max(_SAMPLES, size // _APART + 2)
    with path.open("rb") as file:
        for index in range(count):
            file.seek(max(0, size - _SAMPLE_BYTES) * index // (count - 1))
            found.update(file.read(_SAMPLE_BYTES))
