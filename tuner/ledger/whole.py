"""Files that are there whole or not at all, whatever ends the program meanwhile."""

import json
from pathlib import Path

from tuner.secrets import hidden_values


def write_json(file: Path, data: object, *, ascii_only: bool = False) -> None:
    """Write a JSON object, without secrets. Raises OSError; `file` is then as it was."""
    partial = file.with_suffix(".partial")
    text = hidden_values(json.dumps(data, indent=2, ensure_ascii=ascii_only))
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(file)
