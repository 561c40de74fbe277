"""Prompts: the built-in ones and the user's own JSONL, and the order in which they are sent."""

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tuner.errors import UserError
from tuner.sweep.shown import no_text, one_line, shortened

BUILTIN_KINDS = ("chat", "code", "math", "summarise")
BUILTIN = (*BUILTIN_KINDS, "mixed")


@dataclass(frozen=True)
class Prompt:
    """One prompt: a conversation of role and content pairs, the last one the user's."""

    id: str
    kind: str
    messages: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """The contents alone, for models without a chat template."""
        return "\n\n".join(content for _, content in self.messages)


def load_prompts(name: str, beside: Path) -> tuple[Prompt, ...]:
    """The prompts that a sweep file's `workload.prompts` names.

    `builtin:KIND` or a path, relative to the folder `beside`. Raises UserError: with FILE:LINE for
    what is in the file, without a place where the name itself is wrong.
    """
    if name.startswith("builtin:"):
        return _builtin(name.removeprefix("builtin:"))
    path = beside / name
    known = ", ".join(f"builtin:{kind}" for kind in BUILTIN)
    return _parse(_read(path, f"use a JSONL file or one of {known}"), path)


def read_objects(path: Path, remedy: str) -> Iterator[tuple[int, Any]]:
    """Line number and value of each line of a JSONL file that is not empty.

    Raises UserError: with FILE:LINE for a line, with `remedy` where the file cannot be read.
    """
    for number, line in enumerate(_read(path, remedy).split("\n"), start=1):
        if line.strip():
            try:
                yield number, _object(line)
            except UserError as error:
                raise _wrong(error.message, path, number) from error


def _read(path: Path, remedy: str) -> str:
    """The file's text. Raises UserError."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise UserError(f"{path}: this is a pipe or a device; {remedy}")
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; {remedy}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise _wrong("this is not UTF-8 text, save the prompts as UTF-8", path, line) from error


def _wrong(message: str, path: Path, line: int) -> UserError:
    return UserError(one_line(message), one_line(f"{path}:{line}"))


def _builtin(kind: str) -> tuple[Prompt, ...]:
    if kind not in BUILTIN:
        raise UserError(f"there is no builtin:{kind}, there are {', '.join(BUILTIN)}")
    kinds = BUILTIN_KINDS if kind == "mixed" else (kind,)
    folder = resources.files("tuner.sweep") / "prompts"
    files = [(folder / f"{each}.jsonl").read_text(encoding="utf-8") for each in kinds]
    prompts = [_parse(text, Path(f"{each}.jsonl")) for text, each in zip(files, kinds, strict=True)]
    # Mixed prompts alternate between kinds, so that the first few hold some of each.
    return tuple(prompt for group in zip(*prompts, strict=True) for prompt in group)


def _parse(text: str, path: Path) -> tuple[Prompt, ...]:
    prompts: list[Prompt] = []
    seen: set[str] = set()
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            prompt = _prompt(_object(line), number)
            if prompt.id in seen:
                raise UserError(f"id '{shortened(prompt.id)}' is there twice, make ids unique")
        except UserError as error:
            raise _wrong(error.message, path, number) from error
        seen.add(prompt.id)
        prompts.append(prompt)
    if not prompts:
        raise _wrong("there is no prompt in this file, write one JSON object a line", path, 1)
    return tuple(prompts)


def _object(line: str) -> Any:
    """A line of JSON whose keys are there once. Raises UserError without a place."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise UserError(f"key '{shortened(twice)}' is there twice, keep one")
        return found

    try:
        return json.loads(line, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise UserError("this line is not JSON, write one object a line") from error


def _prompt(data: Any, number: int) -> Prompt:
    """A prompt of a line's object. Raises UserError without a place."""
    shape = 'write {"prompt": "..."} or {"messages": [{"role": "user", "content": "..."}]}'
    if not isinstance(data, dict):
        raise UserError(f"this line is not an object, {shape}")
    if unknown := sorted(set(data) - {"id", "kind", "prompt", "messages"}):
        name = shortened(unknown[0])
        raise UserError(f"unknown key '{name}', {shape}, with id and kind if you like")
    identity, kind = data.get("id", f"line-{number}"), data.get("kind", "other")
    if not isinstance(identity, str) or not isinstance(kind, str):
        raise UserError("id and kind are texts, put them in quotes")
    messages = data.get("messages", [{"role": "user", "content": data.get("prompt")}])
    if ("prompt" in data) == ("messages" in data) or not isinstance(messages, list) or not messages:
        raise UserError(f"a prompt has either prompt or messages, {shape}")
    pairs = []
    for message in messages:
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            raise UserError(f"a message has role and content, {shape}")
        role, content = message["role"], message["content"]
        if role not in ("system", "user", "assistant") or not isinstance(content, str):
            raise UserError(f"role is system, user or assistant, content is text, {shape}")
        pairs.append((role, content))
    if not any(content.strip() for _, content in pairs):
        raise UserError("this prompt is empty")
    for text in (identity, kind, *(content for _, content in pairs)):
        if (why := no_text(text)) is not None:
            raise UserError(why)
    return Prompt(identity, kind, tuple(pairs))


def content_hash(prompts: Sequence[Prompt]) -> str:
    """A hash of what the prompts say, equal across runs and machines."""
    text = json.dumps([[p.id, p.kind, p.messages] for p in prompts], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


HELD_OUT = 8
"""Prompts that a winner is at least confirmed on, where windows have as many."""


def pick(prompts: Sequence[Prompt], count: int, seed: int) -> tuple[Prompt, ...]:
    """`count` prompts in an order drawn from `seed`, kinds taking turns, round and round."""
    order = _order(prompts, seed)
    return tuple(order[index % len(order)] for index in range(count))


def held_out(prompts: Sequence[Prompt], count: int, seed: int) -> tuple[Prompt, ...]:
    """`count` prompts, round and round, that `pick` does not choose for the same count.

    () where those are fewer than HELD_OUT and than `count`.
    """
    left = _order(prompts, seed)[count:]
    if len(left) < min(count, HELD_OUT):
        return ()
    return tuple(left[index % len(left)] for index in range(count))


def _order(prompts: Sequence[Prompt], seed: int) -> list[Prompt]:
    draw = random.Random(seed)
    by_kind: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_kind.setdefault(prompt.kind, []).append(prompt)
    for group in by_kind.values():
        draw.shuffle(group)
    turns = zip_longest(*by_kind.values())
    return [prompt for turn in turns for prompt in turn if prompt is not None]
