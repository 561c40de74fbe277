"""Candidates of a ledger in memory: a few kilobytes each, the rest left where the line is."""

import json
from typing import Any

from pydantic import BaseModel

from tuner.runs.lazy_line import Later, Line, compact_figures
from tuner.runs.records import OutputsLine, TrialRecord

_WRITTEN: dict[frozenset[str], set[str]] = {}
_NONE: list[Any] = []
_SHARED: dict[str, dict[str, Any]] = {}
_MOST_SHARED = 10_000
"""Of what many lines have alike; nobody changes what a record holds."""


def _shared(value: dict[str, Any]) -> dict[str, Any]:
    """An equal one that another record has already, where that is known."""
    key = json.dumps(value)
    if len(_SHARED) >= _MOST_SHARED:
        return _SHARED.get(key, value)
    return _SHARED.setdefault(key, value)


def compact(record: TrialRecord, line: Line) -> TrialRecord:
    """The record itself, a candidate's made small; `line` is where it stands in the ledger.

    Figures and commands are then read-only mappings. The handful of other records stay as they are.
    """
    if record.role != "candidate":
        return record
    fields = record.__dict__
    fields["metrics"] = {
        level: compact_figures(figures, line, level) for level, figures in record.metrics.items()
    }
    if record.command is not None:
        fields["command"] = Later(line, "command", len(record.command), itself)
    if record.outputs and record.divergent_outputs is None:
        fields["outputs"] = Later(line, "outputs", len(record.outputs), OutputsLine.model_validate)
    fields["checks"] = [_shared(check) for check in record.checks]
    if record.point is not None:
        parts = {name: _shared(record.point[name]) for name in ("env", "flags")}
        fields["point"] = {**record.point, **parts}
    _share_empty(fields)
    _share_names(record)
    return record


def _share_empty(fields: dict[str, Any]) -> None:
    """Lists that most records have empty are one."""
    for name in ("checks", "warm_steps", "broken"):
        if not fields[name]:
            fields[name] = _NONE
    if (asked := fields["asked"]) is not None:
        its = asked.__dict__
        for name in ("along", "beside", "drawn"):
            if not its[name]:
                its[name] = _NONE
        _share_names(asked)


def _share_names(model: BaseModel) -> None:
    """The names of what was given are a set of 2 kB, which most have alike."""
    names = model.__pydantic_fields_set__
    object.__setattr__(
        model, "__pydantic_fields_set__", _WRITTEN.setdefault(frozenset(names), names)
    )


def itself(value: Any) -> Any:
    """As it is in the line."""
    return value


def _blank() -> dict[str, Any]:
    record = TrialRecord.__new__(TrialRecord)
    for name in TrialRecord.model_fields:
        object.__setattr__(record, name, None)
    return record.__dict__


_BLANK = _blank()
"""Of an object whose attributes were set one by one, so that copies of it share their keys: each
takes half the memory of another dictionary."""
_NAMES = {*TrialRecord.model_fields}


def small_record(fields: dict[str, Any]) -> TrialRecord:
    """A candidate of which every field is given, has been checked and is small already."""
    record = TrialRecord.__new__(TrialRecord)
    its = _BLANK.copy()
    its.update(fields)
    _share_empty(its)
    object.__setattr__(record, "__dict__", its)
    object.__setattr__(record, "__pydantic_extra__", None)
    object.__setattr__(record, "__pydantic_private__", None)
    object.__setattr__(record, "__pydantic_fields_set__", _NAMES)
    return record
