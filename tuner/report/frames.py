"""Trials as a tidy pandas frame, for notebooks, figures and CSV.

Columns of `trials_frame`, one row per trial and concurrency level:

    trial, role, outcome, failure, message     as in trials.jsonl
    engine, engine_version, launch_id          as in trials.jsonl
    launch_s, measured_s                       seconds
    started                                    UTC time stamp
    concurrency                                streams held open; missing without numbers
    num_steps, eagle_topk, num_draft_tokens    whole numbers; missing without speculation
    draft_tp                                   "target" or a whole number, as text
    env.NAME, flags.NAME                       one column for each name that some point sets, as
                                               text: "unset" and "false" where a point leaves it,
                                               missing without speculation
    every metric                               under its name in trials.jsonl (output_tok_s,
                                               ttft_ms_p50, ...); missing where it was not measured

`kinds_frame` has one row per trial, concurrency level and kind of prompt: the columns up to the
flags, then

    kind                                       as the file of prompts says
    requests                                   of that kind, over all windows
    decode_tok_s                               of one stream
    decode_speedup                             decode_tok_s over the first baseline's on that kind
    accept_length, accept_rate, accept_rate_first
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from tuner.ledger.record import TrialRecord
from tuner.sweep.fields import UNSET

_WHOLE = ("concurrency", "num_steps", "eagle_topk", "num_draft_tokens")
_OF_A_KIND = (
    "kind", "requests", "decode_tok_s", "decode_speedup", "accept_length", "accept_rate",
    "accept_rate_first",
)  # fmt: skip
_SECONDS = ("launch_s", "measured_s")
_FACTS = (
    "trial",
    "role",
    "outcome",
    "failure",
    "message",
    "engine",
    "engine_version",
    "launch_id",
    "launch_s",
    "measured_s",
    "started",
)


def trials_frame(records: Sequence[TrialRecord]) -> pd.DataFrame:
    """One row per trial and concurrency level; a trial without numbers has one row.

    The columns are those of the module's description, in that order, metrics sorted by name.
    """
    points = [record.point for record in records if record.point is not None]
    env = sorted({name for point in points for name in point["env"]})
    flags = sorted({name for point in points for name in point["flags"]})
    metrics = sorted({name for r in records for level in r.metrics.values() for name in level})
    dimensions = [f"env.{name}" for name in env] + [f"flags.{name}" for name in flags]
    columns = [*_FACTS, *_WHOLE, "draft_tp", *dimensions, *metrics]
    rows = [
        {**_facts(record), **_dimensions(record, env, flags), "concurrency": level, **values}
        for record in records
        for level, values in _levels(record)
    ]
    frame = pd.DataFrame(rows, columns=columns)
    for column in _WHOLE:
        frame[column] = frame[column].astype("Int64")
    for column in _SECONDS:
        frame[column] = frame[column].astype("float64")
    frame["started"] = pd.to_datetime(frame["started"], utc=True, format="ISO8601")
    return frame


def kinds_frame(records: Sequence[TrialRecord]) -> pd.DataFrame:
    """One row per trial, concurrency level and kind; trials without numbers have none."""
    first = next((each for each in records if each.role == "baseline" and each.metrics), None)
    below = {} if first is None else first.metrics
    frame = trials_frame(records)
    shared = [*_FACTS, *_WHOLE, "draft_tp"]
    shared += [name for name in frame.columns if name.startswith(("env.", "flags."))]
    rows = []
    for place, record in enumerate([r for r in records for _ in _levels(r)]):
        facts = frame.loc[place, shared].to_dict()
        level = "" if pd.isna(facts["concurrency"]) else str(facts["concurrency"])
        told = record.metrics.get(level, {}).get("by_kind") or {}
        base = below.get(level, {}).get("by_kind") or {}
        for kind, figures in sorted(told.items()):
            speed, other = figures.get("decode_tok_s"), base.get(kind, {}).get("decode_tok_s")
            ratio = speed / other if speed and other else None
            rows.append({**facts, "kind": kind, **figures, "decode_speedup": ratio})
    kinds = pd.DataFrame(rows, columns=[*shared, *_OF_A_KIND])
    for column in (*_WHOLE, "requests"):
        kinds[column] = kinds[column].astype("Int64")
    return kinds


def _levels(record: TrialRecord) -> list[tuple[int | None, dict[str, Any]]]:
    levels = sorted((int(level), values) for level, values in record.metrics.items())
    return [*levels] if levels else [(None, {})]


def _facts(record: TrialRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in _FACTS}


def _dimensions(record: TrialRecord, env: list[str], flags: list[str]) -> dict[str, Any]:
    point = record.point
    if point is None:
        return {}
    draft_tp = point["draft_tp"]
    return {
        **{name: point[name] for name in ("num_steps", "eagle_topk", "num_draft_tokens")},
        "draft_tp": None if draft_tp is None else str(draft_tp),
        **{f"env.{name}": point["env"].get(name, UNSET) for name in env},
        **{f"flags.{name}": _flag_text(point["flags"].get(name, False)) for name in flags},
    }


def _flag_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
