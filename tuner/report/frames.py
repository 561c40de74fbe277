"""A ledger as tidy pandas frames: one for each kind of thing that a line of it tells of.

`run_frames.RunFrames` says which columns each has, in which units.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import pandas as pd

from tuner.answer.objectives import objective_of
from tuner.ledger.record import TrialRecord
from tuner.ledger.side_by_side import held_in
from tuner.sweep.fields import UNSET
from tuner.sweep.level import Level, columns, level_in
from tuner.sweep.model import ObjectiveSpec
from tuner.sweep.point import Point

LEVEL = ("concurrency", "request_rate")
"""A level's columns; a row has one of both (`sweep.level.columns`)."""
_STEPS = ("num_steps", "eagle_topk", "num_draft_tokens")
_WHOLE = (
    *(*_STEPS, *LEVEL[:1], "window", "position", "verifies", "correct_drafts"),
    *("proposed_drafts", "prompt_tokens", "engine_tokens"),
)
"""Columns of whole numbers, of which some may be missing."""
_NUMBERS = (
    *("launch_s", "measured_s", "predicted", "predicted_low", "predicted_high", "objective"),
    *("accept_rate_given_before", "output_tok_s", "ttft_ms", "tpot_ms", "accept_length"),
    *("request_rate", "plain_step_ms", "predicted_ms", "predicted_ms_low", "predicted_ms_high"),
)
"""Columns of numbers of which all may be missing."""
_FACTS = ("outcome", "failure", "message", "engine", "engine_version", "launch_id")
_PLACE = ("place", "host", "alone")
_TIMES = ("launch_s", "measured_s", "started")
_PARTS = ("accept_rate_by_position", "by_kind", "by_length")
"""Metrics that are no single number; the first two have frames of their own."""
Row = dict[str, Any]


def trials_frame(records: Sequence[TrialRecord]) -> pd.DataFrame:
    """One row per trial."""
    env, flags = _names(records)
    rows = [
        {**_trial(r, env, flags), **_of(r, _FACTS), **_place(r), **_of(r, _TIMES)} for r in records
    ]
    columns = [*_trial_columns(env, flags), *_FACTS, *_PLACE, *_TIMES]
    frame = framed(rows, columns)
    frame["started"] = pd.to_datetime(frame["started"], utc=True, format="ISO8601")
    return frame


def _place(record: TrialRecord) -> Row:
    """Of a run with one place nothing: it was alone."""
    place = record.place
    if place is None:
        return {"place": None, "host": None, "alone": True}
    return {"place": place.name, "host": place.host, "alone": place.alone}


def metrics_frame(records: Sequence[TrialRecord]) -> pd.DataFrame:
    """One row per trial and level, with the trial's dimensions; metrics sorted by name."""
    env, flags = _names(records)
    rows: list[Row] = []
    for record in records:
        for level, figures in levels_of(record):
            single = {name: value for name, value in figures.items() if name not in _PARTS}
            rows.append({**_trial(record, env, flags), **columns(level), **single})
    dimensions = [*_trial_columns(env, flags), *LEVEL]
    metrics = sorted({name for row in rows for name in row} - set(dimensions))
    frame = framed(rows, [*dimensions, *metrics])
    frame[metrics] = frame[metrics].apply(pd.to_numeric)  # one that nobody has is a number, too
    return frame


def kinds_frame(records: Sequence[TrialRecord]) -> pd.DataFrame:
    """One row per trial, level and kind of prompt."""
    base = next((each for each in records if each.role == "baseline" and each.metrics), None)
    below = {} if base is None else dict(levels_of(base))
    rows: list[Row] = []
    for record in records:
        for level, metrics in levels_of(record):
            plain = below.get(level, {}).get("by_kind") or {}
            for kind, figures in (metrics.get("by_kind") or {}).items():
                speed, its = figures.get("decode_tok_s"), plain.get(kind, {}).get("decode_tok_s")
                row = {**_name(record), **_steps(record.at), **columns(level), "kind": kind}
                ratio = speed / its if speed and its else None
                if ratio is not None and (known := held_in(metrics)) is not None:
                    ratio /= known.value
                rows.append({**row, **figures, "decode_speedup": ratio})
    told = ("requests", "decode_tok_s", "decode_speedup", "accept_length", "accept_rate")
    names = ["trial", "role", "label", *_STEPS, *LEVEL, "kind", *told, "accept_rate_first"]
    return framed(rows, names)


def acceptance_frame(records: Sequence[TrialRecord]) -> pd.DataFrame:
    """One row per trial, level and position of the draft."""
    rows: list[Row] = []
    for record in records:
        for level, figures in levels_of(record):
            rates = figures.get("accept_rate_by_position") or []
            for place, (rate, sofar) in enumerate(zip(rates, accumulate(rates), strict=True), 1):
                before = rates[place - 2] if place > 1 else 1.0
                rows.append(
                    {
                        **_name(record),
                        **_steps(record.at),
                        **columns(level),
                        "position": place,
                        "accept_rate": rate,
                        "accept_rate_given_before": rate / before if before else None,
                        "accept_length_so_far": 1 + sofar,
                    }
                )
    rates_of = ("accept_rate", "accept_rate_given_before", "accept_length_so_far")
    return framed(rows, ["trial", "role", "label", *_STEPS, *LEVEL, "position", *rates_of])


def decisions_frame(records: Sequence[TrialRecord], spec: ObjectiveSpec) -> pd.DataFrame:
    """One row per trial that the search gave a reason for, with what came of it."""
    told = ("stage", "why", "predicted", "predicted_low", "predicted_high")
    rows = [
        {**_name(r), **_of(r.decision, told), "objective": objective_of(r, spec)}
        for r in records
        if r.decision is not None
    ]
    return framed(rows, ["trial", "role", "label", *told, "objective"])


def left_out_frame(records: Sequence[TrialRecord]) -> pd.DataFrame:
    """One row per decision and reason why points were not launched then."""
    rows = [
        {"trial": record.trial, "reason": reason, "points": points}
        for record in records
        if record.decision is not None
        for reason, points in record.decision.excluded.items()
    ]
    return framed(rows, ["trial", "reason", "points"])


def checks_frame(records: Sequence[TrialRecord]) -> pd.DataFrame:
    """One row per doubt or note of a trial."""
    rows = [{**_name(record), **check} for record in records for check in record.checks]
    return framed(rows, ["trial", "role", "label", "check", "level", "message", "remedy"])


def framed(rows: Sequence[Row], columns: Sequence[str]) -> pd.DataFrame:
    """A frame with these columns, also where there is no row; whole numbers stay whole."""
    frame = pd.DataFrame(rows, columns=list(columns))
    for name in frame.columns:
        if name in _WHOLE:
            frame[name] = frame[name].astype("Int64")
        elif name in _NUMBERS:
            frame[name] = frame[name].astype("float64")
    return frame


def levels_of(record: TrialRecord) -> list[tuple[Level, dict[str, Any]]]:
    """(level, metrics), lowest first."""
    return sorted((level_in(name, record.metrics), each) for name, each in record.metrics.items())


def label_of(record: TrialRecord) -> str:
    """The point in words; `no speculation` without one."""
    if record.at is not None:
        return record.at.label()
    return record.label


def _names(records: Iterable[TrialRecord]) -> tuple[list[str], list[str]]:
    """Variables and flags that some point sets."""
    points = [record.point for record in records if record.point is not None]
    env = sorted({name for point in points for name in point["env"]})
    return env, sorted({name for point in points for name in point["flags"]})


def _trial_columns(env: list[str], flags: list[str]) -> Iterator[str]:
    yield from ("trial", "role", "label", *_STEPS, "draft_tp")
    yield from (f"env.{name}" for name in env)
    yield from (f"flags.{name}" for name in flags)


def _trial(record: TrialRecord, env: list[str], flags: list[str]) -> Row:
    row: Row = {**_name(record), **_steps(record.at)}
    if (point := record.point) is None:
        return row
    draft_tp = point["draft_tp"]
    return {
        **row,
        "draft_tp": None if draft_tp is None else str(draft_tp),
        **{f"env.{name}": point["env"].get(name, UNSET) for name in env},
        **{f"flags.{name}": _flag_text(point["flags"].get(name, False)) for name in flags},
    }


def _name(record: TrialRecord) -> Row:
    return {"trial": record.trial, "role": record.role, "label": label_of(record)}


def _steps(point: Point | None) -> Row:
    return {name: getattr(point, name, None) for name in _STEPS}


def _of(thing: object, names: Iterable[str]) -> Row:
    return {name: getattr(thing, name) for name in names}


def _flag_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
