"""A launch as a script that a person can run."""

import shlex
from collections.abc import Sequence

from tuner.engine.base import Command

PORT = "PORT"
"""The word that stands for the port in `Engine.command`."""


def launch_script(command: Command, comment: Sequence[str] = ()) -> str:
    """A launch as a bash script; PORT comes from the environment, 30000 without one."""
    lines = ["#!/usr/bin/env bash", *(f"# {' '.join(line.split())}" for line in comment), "set -eu"]
    lines += [f"unset {name}" for name in sorted(command.unset)]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(command.env.items())]
    words = [_word(word) for word in command.argv]
    return "\n".join([*lines, "exec " + _folded(words)]) + "\n"


def _word(word: str) -> str:
    return '"${PORT:-30000}"' if word == PORT else shlex.quote(word)


def _folded(words: Sequence[str]) -> str:
    """One flag a line, its value beside it."""
    text = ""
    for word in words:
        text += (" \\\n  " if word.startswith("--") else " ") + word if text else word
    return text
