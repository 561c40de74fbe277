"""Damage to texts, bytes and JSON, as editors, crashes and other programs do it; by a seed."""

import json
import math
import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any

PIECES = [
    *"\"'{}[]:,#&*!|>%@`-?\\\n\t\r \x00\x07\ud800\ufeff\u20289x",
    *["unset", "1e999", "~", "!!str ", "<<: ", "- ", ": ", "\n  ", "9" * 18, "null", "...", "NaN"],
    *['"\\0"', '"\\ud800"', "\\u0000", "é", "[" * 3000, "-0", "1e308", "true", "data:", "\n\n"],
]
ODD: list[Any] = [
    *[None, True, False, 0, -1, 1, 2, 10**6, 10**19, 10**400, 0.5, -0.0, 1e308, math.nan, math.inf],
    *["", "x", "1", "é\u2028", "\x00", "a" * 5000, "unset", "../../etc/passwd"],
    *[[], [1], [None], {}, {"a": 1}, [[]], {"": {}}],
]


def text(draw: random.Random, original: str) -> str:
    """Up to four places taken out, put in, doubled, cut off."""
    for _ in range(draw.randint(1, 4)):
        start = draw.randint(0, len(original))
        match draw.randrange(5):
            case 0:
                original = original[:start] + original[start + draw.randint(1, 12) :]
            case 1:
                original = original[:start] + draw.choice(PIECES) + original[start:]
            case 2:
                original = original[:start]
            case what:
                lines = original.split("\n")
                at = original.count("\n", 0, start)
                lines[at : at + 1] = [] if what == 3 else [lines[at]] * 2
                original = "\n".join(lines)
    return original


def raw(draw: random.Random, original: bytes) -> bytes:
    """Bytes changed, cut off, or something else altogether."""
    match draw.randrange(6):
        case 0:
            return original[: draw.randint(0, len(original))]
        case 1:
            return draw.randbytes(draw.randint(0, 200))
        case 2:
            return b""
        case _:
            data = bytearray(original)
            for _ in range(draw.randint(1, 6)):
                if data:
                    data[draw.randrange(len(data))] = draw.randrange(256)
            return bytes(data)


def value(draw: random.Random, original: Any) -> Any:
    """A JSON value with one to three of its parts replaced, taken out or renamed."""
    for _ in range(draw.randint(1, 3)):
        original = _value(draw, original)
    return original


def _value(draw: random.Random, original: Any) -> Any:
    holders = list(_holders(original))
    if not holders or draw.random() < 0.02:
        return deepcopy(draw.choice(ODD))
    holder = draw.choice(holders)
    key = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    match draw.randrange(6):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[f"{key}{draw.choice(['', 'x', ' '])}"] = holder.pop(key)
        case 2 if isinstance(holder, list):
            holder.append(deepcopy(holder[key]))
        case 3 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
            holder[key] = draw.choice([-1, 0, 10**9, 2]) * holder[key]
        case _:
            holder[key] = deepcopy(draw.choice(ODD))
    return original


def _holders(found: Any) -> Any:
    if isinstance(found, dict | list) and found:
        yield found
        for each in found.values() if isinstance(found, dict) else found:
            yield from _holders(each)


def document(draw: random.Random, original: str) -> str:
    """A JSON text: a damaged value written anew, or damaged as text."""
    if draw.random() < 0.3:
        return text(draw, original)
    return json.dumps(value(draw, json.loads(original)))


def of_lines(draw: random.Random, original: str, damage: Callable[..., str] = document) -> str:
    """JSON lines, one of them damaged, or lines doubled, lost or out of order."""
    lines = original.splitlines(keepends=True)
    at = draw.randrange(len(lines))
    match draw.randrange(6):
        case 0:
            return text(draw, original)
        case 1:
            lines.insert(draw.randrange(len(lines) + 1), lines[at])
        case 2:
            del lines[at]
        case 3:
            draw.shuffle(lines)
        case _:
            lines[at] = damage(draw, lines[at]) + "\n"
    return "".join(lines)
