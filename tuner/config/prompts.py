"""Prompts: the built-in ones and the user's own files, and the order in which they are sent."""

import hashlib
import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import zip_longest
from pathlib import Path

from tuner.config.conversation import Prompt as Prompt
from tuner.config.conversation import Turns, first_turn, why_not_all
from tuner.config.datasets import (
    SHAREGPT,
    DatasetShape,
    LeftOutError,
    detect_shape,
)
from tuner.config.yaml_document import shortened
from tuner.core.errors import UserError, printable
from tuner.core.json_items import Item, read_items

BUILTIN_KINDS = ("chat", "code", "math", "summarise")
BUILTIN = (*BUILTIN_KINDS, "mixed")
MAX_KINDS_SHOWN = 12
MAX_PLACES_SHOWN = 3


@dataclass(frozen=True)
class Prompts:
    """What `workload.prompts` names."""

    prompts: tuple[Prompt, ...]
    read_as: str | None
    """The file's shape, what is taken of it and what is left out, in one line; None of the
    built-in prompts."""


def read_prompts(name: str, beside: Path, turns: Turns = "first") -> Prompts:
    """The prompts that a sweep file's `workload.prompts` names, and how they were read.

    `builtin:KIND` or a path, relative to the folder `beside`; a file's shape is told by its first
    item. With `turns` all, prompts are whole conversations; those of specbench's own shape are
    either way. Raises UserError: with FILE:LINE for what is in the file, without a place where the
    name itself is wrong.
    """
    if name.startswith("builtin:"):
        return Prompts(_builtin(name.removeprefix("builtin:")), None)
    return _read_file(beside / name, turns)


def load_prompts(name: str, beside: Path) -> tuple[Prompt, ...]:
    """The prompts of `read_prompts` alone."""
    return read_prompts(name, beside).prompts


def _builtin(kind: str) -> tuple[Prompt, ...]:
    if kind not in BUILTIN:
        raise UserError(f"there is no builtin:{kind}, there are {', '.join(BUILTIN)}")
    kinds = BUILTIN_KINDS if kind == "mixed" else (kind,)
    folder = resources.files("tuner.config") / "prompts"
    prompts = []
    for each in kinds:
        with resources.as_file(folder / f"{each}.jsonl") as file:
            prompts.append(_read_file(file).prompts)
    # Mixed prompts alternate between kinds, so that the first few hold some of each.
    return tuple(prompt for group in zip(*prompts, strict=True) for prompt in group)


def _read_file(path: Path, turns: Turns = "first") -> Prompts:
    known = ", ".join(f"builtin:{kind}" for kind in BUILTIN)
    with_kind = 0
    items = read_items(path, f"use a JSONL file, a JSON list or one of {known}")
    prompts, seen, shape, renamed = list[Prompt](), set[str](), None, 0
    left_out: dict[str, list[Item]] = {}
    for item in items:
        try:
            shape = shape or detect_shape(_object(item))
            prompt = _taken(shape.read(_object(item), item.name), shape, turns)
            if prompt.id in seen and shape.ids_repeat:
                prompt, renamed = replace(prompt, id=f"{prompt.id} ({item.name})"), renamed + 1
            if prompt.id in seen:
                raise UserError(f"id '{shortened(prompt.id)}' is there twice, make ids unique")
        except LeftOutError as error:
            left_out.setdefault(str(error), []).append(item)
            continue
        except UserError as error:
            raise item.wrong(_of_another_shape(item, shape) or error.message) from error
        seen.add(prompt.id)
        prompts.append(prompt)
        with_kind += bool(shape.kinds) and "kind" in _object(item)
    if shape is None or not prompts:
        why = next(iter(left_out), "write one JSON object a line, or a JSON list of them")
        raise UserError(printable(f"there is no prompt in this file: {why}"), f"{path}:1")
    read_as = _read_as(shape, prompts, turns, left_out)
    if renamed:
        repeated = "1 repeated id is" if renamed == 1 else f"{renamed:,} repeated ids are"
        read_as += f"; {repeated} made unique, ID (PLACE)"
    if with_kind:
        read_as += f"; 'kind' is ignored in {with_kind:,} of them: {shape.kinds}"
    return Prompts(tuple(prompts), read_as)


def _taken(prompt: Prompt, shape: DatasetShape, turns: Turns) -> Prompt:
    """What is kept of an item. Raises UserError without a place, LeftOutError."""
    if turns == "first":
        return first_turn(prompt) if shape.in_turns else prompt
    if (why := why_not_all(prompt, answered=not shape.asks_only)) is None:
        return prompt
    if shape is SHAREGPT:
        raise LeftOutError(why)
    raise UserError(f"{why}, write it, or workload.turns: first")


def _object(item: Item) -> dict[str, object]:
    if not isinstance(item.value, dict):
        what = "line" if item.number is None else "item"
        raise UserError(f'this {what} is not an object, write {{"prompt": "..."}}')
    return item.value


def _of_another_shape(item: Item, shape: DatasetShape | None) -> str | None:
    """That an item is of another shape than the file's first; None where it is not, or of none."""
    if shape is None or not isinstance(item.value, dict):
        return None
    try:
        its = detect_shape(item.value)
    except UserError:
        return None
    if its.right == shape.right:
        return None
    what = "line" if item.number is None else "item"
    return (
        f"this {what} has another shape ({its.name}'s) than the first ({shape.name}'s), write "
        f"{shape.right}, or put it into a file of its own"
    )


def _read_as(
    shape: DatasetShape,
    prompts: Sequence[Prompt],
    turns: Turns,
    left_out: Mapping[str, Sequence[Item]],
) -> str:
    counts = Counter(prompt.kind for prompt in prompts)
    shown = [f"{kind} {count:,}" for kind, count in counts.most_common(MAX_KINDS_SHOWN)]
    if len(counts) > MAX_KINDS_SHOWN:
        shown.append(f"{len(counts) - MAX_KINDS_SHOWN} kinds more")
    words = f"{shape.name}: {len(prompts):,} prompt{'s' if len(prompts) > 1 else ''}"
    words += f" ({', '.join(shown)})"
    if turns == "all":
        asked = sum(role == "user" for prompt in prompts for role, _ in prompt.messages)
        words += f", {asked:,} turn{'s' * (asked != 1)} after "
        by_server = "what the server without speculation answers"
        words += by_server if shape.asks_only else "the file's own answers"
    elif shape.in_turns:
        words += ", the first turn of each"
    words += "".join(
        f"; {len(items):,} left out, {why} ({_places(items)})" for why, items in left_out.items()
    )
    return printable(words)


def _places(items: Sequence[Item]) -> str:
    """`line-2`, `line-2, line-5, line-9, ...`, as items without an id are called."""
    shown = [item.name for item in items[:MAX_PLACES_SHOWN]]
    return ", ".join([*shown, "..."] if len(items) > len(shown) else shown)


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


def held_out(
    prompts: Sequence[Prompt], count: int, seed: int, used: int | None = None
) -> tuple[Prompt, ...]:
    """`count` prompts, round and round, that are not among the first `used` that `pick` chooses;
    None: of all `count`.

    () where those are fewer than HELD_OUT and than `used`.
    """
    used = count if used is None else used
    left = _order(prompts, seed)[used:]
    if len(left) < min(used, HELD_OUT):
        return ()
    return tuple(left[index % len(left)] for index in range(count))


def needed_to_hold_out(used: int) -> int:
    """Prompts from which `held_out` has some, where windows send the first `used` of them."""
    return used + min(used, HELD_OUT)


def _order(prompts: Sequence[Prompt], seed: int) -> list[Prompt]:
    draw = random.Random(seed)
    by_kind: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_kind.setdefault(prompt.kind, []).append(prompt)
    for group in by_kind.values():
        draw.shuffle(group)
    turns = zip_longest(*by_kind.values())
    return [prompt for turn in turns for prompt in turn if prompt is not None]
