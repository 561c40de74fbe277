"""A launch as a script that a person can run."""

import shlex
from collections.abc import Sequence
from dataclasses import replace

from tuner.core.secrets import flag_in, spans_of_word, variable_in
from tuner.server.base import Command

PORT = "PORT"
"""The word that stands for the port in `Engine.command`."""


_RANK, _NODES = "--node-rank", "--nnodes"
_OF_RANKS = {
    _RANK: '"${NODE_RANK:?this node, 0 to the number of nodes less one}"',
    "--dist-init-addr": '"${DIST_INIT_ADDR:?HOST:PORT of node 0, the same on every node}"',
}


def of_every_rank(command: Command) -> tuple[Command, ...]:
    """The command on each node of a server that spans several; the command alone of any other."""
    words = command.argv
    if _RANK not in words:
        return (command,)
    nodes, at = int(words[words.index(_NODES) + 1]), words.index(_RANK) + 1
    return tuple(
        replace(command, argv=(*words[:at], str(rank), *words[at + 1 :])) for rank in range(nodes)
    )


def launch_script(command: Command, comment: Sequence[str] = ()) -> str:
    """A launch as a bash script; PORT comes from the environment, 30000 without one, and so do
    NODE_RANK and DIST_INIT_ADDR of a server that spans nodes.

    Secrets come from the environment too: the script has their variables' names, and says which
    one is not set.
    """
    command = command.hidden()
    lines = ["#!/usr/bin/env bash", *(f"# {' '.join(line.split())}" for line in comment), "set -eu"]
    lines += [f"unset {name}" for name in sorted(command.unset)]
    for name, value in sorted(command.env.items()):
        lines.append(f"export {name}={shell_word(value, name)}")
    before = (None, *map(flag_in, command.argv))
    after = ("", *command.argv)
    words = [_word(*each) for each in zip(command.argv, before, after, strict=False)]
    return "\n".join([*lines, "exec " + _folded(words)]) + "\n"


def shell_line(command: Command) -> str:
    """A command as one line of a shell: `env -u NAME NAME=value words...`, without secrets."""
    command = command.hidden()
    words = [word for name in sorted(command.unset) for word in ("-u", name)]
    words += [f"{k}={shell_word(v, k)}" for k, v in sorted(command.env.items())]
    before = (None, *map(flag_in, command.argv))
    argv = [shell_word(word, name) for word, name in zip(command.argv, before, strict=False)]
    return " ".join([*(["env", *words] if words else []), *argv])


def difference(command: Command, base: Command) -> str:
    """What a launch has beside another one: `-u NAME`, `NAME=value` and flags, as in `shell_line`;
    in brackets what it lacks of that one. Without secrets."""
    command, base = command.hidden(), base.hidden()
    flags, known = _flags(command.argv), _flags(base.argv)
    own = [word for each in flags if each not in known for word in each]
    names = {each[0] for each in flags}
    env = {k: v for k, v in command.env.items() if base.env.get(k) != v}
    gone = (set(base.env) - set(command.env)) | (command.unset - base.unset)
    text = shell_line(Command(tuple(own), env, frozenset(gone))).removeprefix("env ")
    lacks = [word for each in known if each[0] not in names for word in each]
    less = f"(without {shell_line(Command(tuple(lacks), {}, frozenset()))})" if lacks else ""
    return " ".join(part for part in (text, less) if part)


def _flags(argv: Sequence[str]) -> list[tuple[str, ...]]:
    """A command's flags, each with its values; the program and its own words are the first."""
    found: list[tuple[str, ...]] = [()]
    for word in argv:
        if word.startswith("--"):
            found.append((word,))
        else:
            found[-1] = (*found[-1], word)
    return [each for each in found if each]


def shell_word(word: str, name: str | None = None) -> str:
    """A word in the shell's quotes; `${NAME}` in the place of a secret is the variable NAME."""
    parts, end = [], 0
    for span in spans_of_word(word, name):
        if (variable := variable_in(word[span.start : span.end])) is not None:
            parts += [word[end : span.start], f'"${{{variable}:?set it, it is a secret}}"']
            end = span.end
    if not parts:
        return shlex.quote(word)
    parts.append(word[end:])
    return "".join(
        shlex.quote(part) if part and index % 2 == 0 else part for index, part in enumerate(parts)
    )


def _word(word: str, name: str | None, before: str) -> str:
    if before in _OF_RANKS:
        return _OF_RANKS[before]
    return '"${PORT:-30000}"' if word == PORT else shell_word(word, name)


def _folded(words: Sequence[str]) -> str:
    """One flag a line, its value beside it."""
    text = ""
    for word in words:
        text += (" \\\n  " if word.startswith("--") else " ") + word if text else word
    return text
