"""Candidates of a ledger in memory: a few kilobytes each, the rest left where the line is."""

from typing import Any

from tuner.ledger.figures import Later, Line, compact_figures
from tuner.ledger.judged import OutputsLine
from tuner.ledger.record import TrialRecord

_WRITTEN: dict[frozenset[str], set[str]] = {}
_NONE: list[Any] = []
_SHARED: dict[tuple[Any, ...], dict[str, Any]] = {}
_MOST_SHARED = 10_000
"""Of what many lines have alike; nobody changes what a record holds."""


def _shared(value: dict[str, Any]) -> dict[str, Any]:
    """An equal one that another record has already, where that is known."""
    key = tuple((name, type(each), each) for name, each in value.items())
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
        fields["command"] = Later(line, "command", len(record.command), _itself)
    if record.outputs and record.far_outputs is None:
        fields["outputs"] = Later(line, "outputs", len(record.outputs), OutputsLine.model_validate)
    fields["checks"] = [_shared(check) for check in record.checks] or _NONE
    if record.point is not None:
        parts = {name: _shared(record.point[name]) for name in ("env", "flags")}
        fields["point"] = {**record.point, **parts}
    for each in (record, record.asked):
        if each is not None:
            each.__dict__.update((k, _NONE) for k, v in each.__dict__.items() if v == [])
    for each in (record, record.asked):
        if each is not None:  # a set of 2 kB each, all alike
            names = each.__pydantic_fields_set__
            shared = _WRITTEN.setdefault(frozenset(names), names)
            object.__setattr__(each, "__pydantic_fields_set__", shared)
    return record


def _itself(value: Any) -> Any:
    return value
