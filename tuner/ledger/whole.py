"""Files that are there whole or not at all, whatever ends the program meanwhile."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tuner.secrets import hidden_values


@contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of `file` when the block is through.

    Whatever is raised in the block, `file` is as it was, and nothing lies beside it.
    """
    partial = file.with_name(file.name + ".partial")
    try:
        yield partial
        partial.replace(file)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def write_text(file: Path, text: str) -> None:
    """Write UTF-8. Raises OSError; `file` is then as it was."""
    with replacing(file) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(file: Path, data: object, *, ascii_only: bool = False) -> None:
    """Write a JSON object, without secrets. Raises OSError; `file` is then as it was."""
    text = hidden_values(json.dumps(data, indent=2, ensure_ascii=ascii_only))
    write_text(file, text + "\n")
