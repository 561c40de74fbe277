"""A candidate's line as a record, decoded and checked in one go.

Nearly every line of a long ledger is a usual candidate's. Such a line is never a tree of Python
objects that pydantic walks through, which takes three times as long. Whatever is unusual about a
line, right or wrong, is not decided here.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, MsgspecError, Raw
from msgspec.json import Decoder
from msgspec.structs import asdict
from pydantic import TypeAdapter

from tuner.config.load_level import parse_level
from tuner.config.point import Point, PointJson
from tuner.runs.compact import itself, small_record
from tuner.runs.lazy_line import LARGEST, Later, LazyFigures, Line, shared_layout
from tuner.runs.records import (
    AskedLine,
    BrokenLimit,
    CommandShape,
    DecisionLine,
    HeldOut,
    OutputsLine,
    PlaceLine,
    PointShape,
    TaskLine,
    TrialRecord,
    in_the_folder,
)
from tuner.runs.structs import struct_of

_Whole = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
_Number = _Whole | float
_Part = dict[str, dict[str, _Number | None]]
_Line = struct_of(
    TrialRecord,
    role=Literal["candidate"],
    point=struct_of(PointShape, env=Raw, flags=Raw) | None,
    command=struct_of(CommandShape) | None,
    metrics=dict[str, dict[str, _Number | list[_Number] | _Part | None]],
    samples=str | None,
    checks=list[Raw],
    outputs=Raw,
    broken=list[Any],
    smoothed=None,
    **dict.fromkeys(("decision", "held_out", "place", "asked", "task"), Any),
)
_decode = Decoder(_Line).decode
_PARTS: Mapping[str, Callable[[Any], Any]] = {
    "decision": DecisionLine.model_validate,
    "broken": TypeAdapter(list[BrokenLimit]).validate_python,
    "held_out": HeldOut.model_validate,
    "place": PlaceLine.model_validate,
    "asked": AskedLine.model_validate,
    "task": TaskLine.model_validate,
}
"""Parts that lines seldom have, or that are small; pydantic takes them."""
_IN_A_COMMAND = len(CommandShape.model_fields)


class _Repeated:
    """Values that many lines have alike, each decoded once; nobody changes what a record holds."""

    def __init__(self, kind: Any, made: Callable[[Any], Any], most: int = 10_000) -> None:
        """`made`: what is kept of a value; of so many different ones at most."""
        self._decode, self._made, self._most = Decoder(kind).decode, made, most
        self._known: dict[bytes, Any] = {}

    def __call__(self, raw: Raw) -> Any:
        data = bytes(raw)
        if (found := self._known.get(data)) is None:
            found = self._made(self._decode(data))
            if len(self._known) < self._most:
                self._known[data] = found
        return found


def _with_pairs(values: dict[str, Any]) -> tuple[dict[str, Any], tuple[tuple[str, Any], ...]]:
    return values, tuple(sorted(values.items()))


def _counted(outputs: dict[str, Any]) -> int:
    """How many levels they are of. Raises ValueError where they speak against the candidate: such
    ones are not left in the line."""
    if any(each.stops for each in outputs.values()):
        raise ValueError("outputs that are kept")
    return len(outputs)


_Outputs: Any = dict[str, struct_of(OutputsLine)]  # type: ignore[misc]
_outputs = _Repeated(_Outputs, _counted, most=1000)
_check = _Repeated(dict[str, str], itself)
_env = _Repeated(dict[str, str], _with_pairs)
_flags = _Repeated(dict[str, bool | _Number | str], _with_pairs)


def read_candidate(data: bytes, line: Line) -> TrialRecord | None:
    """The record of a line with these bytes, made small as by `compact`, and equal to what
    `TrialRecord` reads; None where that must judge."""
    try:
        return _record(_decode(data), line)
    except (MsgspecError, ValueError, OverflowError, RecursionError):
        return None


def _record(found: Any, line: Line) -> TrialRecord | None:
    """Raises ValueError or OverflowError where it is none, or an unusual one."""
    datetime.fromisoformat(found.started)
    if found.samples is not None:
        in_the_folder(found.samples)
    fields = asdict(found)
    fields["point"] = None if found.point is None else _point(found.point)
    fields["metrics"] = {name: _figures(each, line, name) for name, each in found.metrics.items()}
    if found.command is not None:
        fields["command"] = Later(line, "command", _IN_A_COMMAND, itself)
    if isinstance(found.outputs, Raw):
        count = _outputs(found.outputs)
        fields["outputs"] = (
            Later(line, "outputs", count, OutputsLine.model_validate) if count else {}
        )
    fields["checks"] = list(map(_check, found.checks))
    for name, validated in _PARTS.items():
        if fields[name] is not None:
            fields[name] = validated(fields[name])
    return small_record(fields)


def _point(its: Any) -> PointJson:
    (env, pairs), (flags, set_flags) = _env(its.env), _flags(its.flags)
    shape = its.num_steps, its.eagle_topk, its.num_draft_tokens, its.draft_tp
    return PointJson(Point(*shape, pairs, set_flags), env, flags)


def _figures(figures: dict[str, Any], line: Line, level: str) -> LazyFigures:
    parse_level(level)
    layout = shared_layout(figures)
    if not layout.is_plain:
        raise ValueError("figures of other kinds than usual")
    return LazyFigures(layout, figures, line, level)
