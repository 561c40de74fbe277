"""A ledger as tidy pandas frames: one for each kind of thing that a line of it tells of.

`run_frames.RunFrames` says which columns each has, in which units.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from tuner.analysis.cycle_breakdown import concurrent_streams
from tuner.analysis.winner import read_objective
from tuner.config.dimensions import DIMENSIONS
from tuner.config.field_types import UNSET
from tuner.config.load_level import Level, Rate, columns, level_in
from tuner.config.point import Point
from tuner.config.schema import ObjectiveSpec
from tuner.metrics.catalogue import CATALOGUE
from tuner.metrics.level_metrics import accept_length
from tuner.metrics.samples import RequestSample, Window
from tuner.metrics.statistics import decode_time, output_tok_s
from tuner.runs.ledger import is_simulated
from tuner.runs.raw_samples import RawSamples
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run
from tuner.runs.slot_interference import held_in
from tuner.search.cycle_time_fit import Cycle, CycleModel

LEVEL = ("concurrency", "request_rate")
"""A level's columns; a row has one of both (`sweep.level.columns`)."""
_STEPS = tuple(dimension.name for dimension in DIMENSIONS if dimension.is_draft_shape)
_OTHERS = tuple(dimension.name for dimension in DIMENSIONS if not dimension.is_draft_shape)
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
    """One row per trial and level, with the trial's dimensions; metrics sorted by name.

    Metrics that are not a single number have frames of their own.
    """
    env, flags = _names(records)
    parts = {entry.name for entry in CATALOGUE if not entry.is_number}
    rows: list[Row] = []
    for record in records:
        for level, figures in metrics_by_level(record):
            single = {name: value for name, value in figures.items() if name not in parts}
            rows.append({**_trial(record, env, flags), **columns(level), **single})
    dimensions = [*_trial_columns(env, flags), *LEVEL]
    metrics = sorted({name for row in rows for name in row} - set(dimensions))
    frame = framed(rows, [*dimensions, *metrics])
    frame[metrics] = frame[metrics].apply(pd.to_numeric)  # one that nobody has is a number, too
    return frame


def kinds_frame(records: Sequence[TrialRecord]) -> pd.DataFrame:
    """One row per trial, level and kind of prompt."""
    base = next((each for each in records if each.role == "baseline" and each.metrics), None)
    below = {} if base is None else dict(metrics_by_level(base))
    rows: list[Row] = []
    for record in records:
        for level, metrics in metrics_by_level(record):
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
        for level, figures in metrics_by_level(record):
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
        {**_name(r), **_of(r.decision, told), "objective": read_objective(r, spec)}
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


def metrics_by_level(record: TrialRecord) -> list[tuple[Level, dict[str, Any]]]:
    """(level, metrics), lowest first."""
    return sorted((level_in(name, record.metrics), each) for name, each in record.metrics.items())


def record_label(record: TrialRecord) -> str:
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
    yield from ("trial", "role", "label", *_STEPS, *_OTHERS)
    yield from (f"env.{name}" for name in env)
    yield from (f"flags.{name}" for name in flags)


def _trial(record: TrialRecord, env: list[str], flags: list[str]) -> Row:
    row: Row = {**_name(record), **_steps(record.at)}
    if (point := record.point) is None:
        return row
    others = {name: point.get(name) for name in _OTHERS}
    return {
        **row,
        **{name: None if value is None else str(value) for name, value in others.items()},
        **{f"env.{name}": point["env"].get(name, UNSET) for name in env},
        **{f"flags.{name}": _flag_text(point["flags"].get(name, False)) for name in flags},
    }


def _name(record: TrialRecord) -> Row:
    return {"trial": record.trial, "role": record.role, "label": record_label(record)}


def _steps(point: Point | None) -> Row:
    return {name: getattr(point, name, None) for name in _STEPS}


def _of(thing: object, names: Iterable[str]) -> Row:
    return {name: getattr(thing, name) for name in names}


def _flag_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_WINDOW = (
    *("trial", "role", "label", *LEVEL, "window", "wall_s", "client_cpu_s", "output_tok_s"),
    *("completion_tokens", "requests", "failed_requests", "stopped"),
)
_REQUEST = (
    *("trial", "role", "label", *LEVEL, "window", "prompt_id", "kind", "sent_s"),
    *("ttft_ms", "tpot_ms", "e2e_ms", "prompt_tokens", "completion_tokens", "engine_tokens"),
    *("requested_tokens", "verifies", "correct_drafts", "proposed_drafts", "accept_length"),
    *("finish_reason", "error", "timed_out"),
)
_CYCLE = (
    *("trial", "label", "num_steps", "eagle_topk", "num_draft_tokens", *LEVEL),
    *("cycle_ms", "plain_step_ms", "predicted_ms", "predicted_ms_low", "predicted_ms_high"),
)


class RunFrames:
    """A run folder, read. Each property is a frame of its own, made when it is first asked for.

    Rows are joined by `trial` (the number in trials.jsonl). Every frame has besides `role`
    (baseline, candidate, confirm, plain or abreast) and `label` (the point in words), `left_out`
    aside. What was not measured is missing (NaN or NA), never 0. Rates and shares are of 1; `_ms`
    is milliseconds, `_s` seconds, `tok_s` tokens per second, `_low` and `_high` a 95 % interval.
    """

    def __init__(self, path: Path) -> None:
        """Raises UserError where `path` is no run folder, or its ledger cannot be read."""
        self._run = Run.open(path)
        self._samples = RawSamples(self._run)
        self.path = path
        """The run folder."""
        self.sweep = self._run.sweep()
        """The sweep file as it ran; `sweep.workload.concurrency` and all other keys."""
        self.machine = self._run.machine()
        """machine.json: driver, GPUs, versions."""
        self.simulated = is_simulated(self._records, self.sweep)
        """A performance model answered, not a GPU."""

    @cached_property
    def _records(self) -> tuple[TrialRecord, ...]:
        return self._run.records()

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per trial, also of those that failed.

        trial, role, label
        num_steps, eagle_topk, num_draft_tokens    whole; missing without speculation
        draft_tp                                   text: "target" or a number
        env.NAME, flags.NAME                       text, one column for each name that some point
                                                   sets; "unset" and "false" where it is left
        outcome                                    ok, infeasible, failed or pruned
        failure, message                           label (OOM, HANG, ...) and sentence
        engine, engine_version, launch_id          trials of one launch share `launch_id`
        place, host, alone                         which of several slots or nodes, and whether
                                                   no other one could be at work meanwhile
        launch_s, measured_s                       seconds
        started                                    UTC time stamp
        """
        return trials_frame(self._records)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """One row per trial and level (a concurrency, or a rate) that has numbers.

        trial ... flags.NAME                       as in `trials`
        concurrency                                streams held open; missing at a request rate
        request_rate                               that rate, requests that come in a second;
                                                   missing otherwise
        every metric of the ledger                 docs/metrics.md has formulas and units
        """
        return metrics_frame(self._records)

    @cached_property
    def kinds(self) -> pd.DataFrame:
        """One row per trial, level and kind of prompt (chat, code, ...).

        requests, decode_tok_s, accept_length,     as in `metrics`, of that kind; accept_rate is
        accept_rate, accept_rate_first             missing in runs of older versions
        decode_speedup                             over the first baseline's, of that kind
        """
        return kinds_frame(self._records)

    @cached_property
    def acceptance(self) -> pd.DataFrame:
        """One row per trial, level and position of the draft.

        position                                   1 to num_steps
        accept_rate                                share of verifies that accepted as far or farther
        accept_rate_given_before                   the same, of those that accepted the one before
        accept_length_so_far                       tokens a verify, bonus included, of a chain cut
                                                   here (docs/cycle_model.md says how exact)
        """
        return acceptance_frame(self._records)

    @cached_property
    def decisions(self) -> pd.DataFrame:
        """One row per trial that the search gave a reason for.

        stage                                      anchors, model, check, sampler or confirm
        why                                        the sentence
        predicted, predicted_low, predicted_high   objective expected: a ratio to the baseline
        objective                                  the one measured; missing where it was not
        """
        return decisions_frame(self._records, self.sweep.search.objective)

    @cached_property
    def left_out(self) -> pd.DataFrame:
        """One row per decision and reason: `points` that were not launched at `trial`."""
        return left_out_frame(self._records)

    @cached_property
    def checks(self) -> pd.DataFrame:
        """One row per doubt or note: check, level (doubt or note), message, remedy."""
        return checks_frame(self._records)

    @cached_property
    def windows(self) -> pd.DataFrame:
        """One row per trial, level and window, from the raw samples.

        window                                     1 is the first one measured
        wall_s                                     seconds from the first request to the last token
        client_cpu_s                               CPU seconds of the load client
        output_tok_s                               completion tokens / wall_s
        completion_tokens, requests, failed_requests
        stopped                                    why the rest was not sent; missing: all was

        Trials whose samples file is not there have no rows. Raises UserError where one is broken.
        """
        return framed([_window(*each) for each in self._windows()], _WINDOW)

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row per request, from the raw samples.

        window, prompt_id, kind
        sent_s                                     seconds since the window began
        ttft_ms, tpot_ms, e2e_ms                   first token, each token after it, whole answer;
                                                   at a rate from when the request came
        prompt_tokens, completion_tokens           the latter by the client's count
        engine_tokens, requested_tokens            completion tokens by the engine; asked for
        verifies, correct_drafts, proposed_drafts  the engine's counts; missing without speculation
        accept_length                              1 + correct_drafts / verifies
        finish_reason, error, timed_out            error: why it is not whole

        Trials whose samples file is not there have no rows. Raises UserError where one is broken.
        """
        rows = [
            _request(record, level, number, sample)
            for record, level, number, window in self._windows()
            for sample in window.samples
        ]
        return framed(rows, _REQUEST)

    @cached_property
    def cycles(self) -> pd.DataFrame:
        """One row per candidate and level: the cycle beside what the cycle model says of it.

        num_steps, eagle_topk, num_draft_tokens
        cycle_ms                                   measured: milliseconds of a draft-verify cycle
        plain_step_ms                              the baseline's decode step at this level,
                                                   the mean over its launches
        predicted_ms, predicted_ms_low, predicted_ms_high
                                                   by a model fitted to all OTHER configurations;
                                                   missing where they do not determine it
        """
        measured = [
            (record, level, Cycle(record.at, concurrent_streams(level), ms))
            for record in self._records
            if record.role == "candidate" and record.at is not None
            for level, figures in metrics_by_level(record)
            if (ms := figures.get("cycle_ms")) is not None
        ]
        everything = [(_sort(level), cycle) for _, level, cycle in measured]
        others = {
            (point, sort): CycleModel(
                cycle for its, cycle in everything if cycle.point != point and its == sort
            )
            for sort, point in {(sort, cycle.point) for sort, cycle in everything}
        }
        return framed(
            [
                self._cycle(record, level, each, others[each.point, _sort(level)])
                for record, level, each in measured
            ],
            _CYCLE,
        )

    def _cycle(self, record: TrialRecord, level: Level, cycle: Cycle, others: CycleModel) -> Row:
        told = others.cycle(cycle.point, cycle.concurrency)
        return {
            "trial": record.trial,
            "label": record_label(record),
            "num_steps": cycle.point.num_steps,
            "eagle_topk": cycle.point.eagle_topk,
            "num_draft_tokens": cycle.point.num_draft_tokens,
            **columns(level),
            "cycle_ms": cycle.ms,
            "plain_step_ms": self._plain_steps.get(level),
            "predicted_ms": told and told.value,
            "predicted_ms_low": told and told.low,
            "predicted_ms_high": told and told.high,
        }

    @cached_property
    def _plain_steps(self) -> dict[Level, float]:
        """The baseline's decode step by level, the mean over its launches."""
        found: dict[Level, list[float]] = {}
        for record in self._records:
            for level, figures in metrics_by_level(record) if record.role == "baseline" else ():
                if (ms := figures.get("cycle_ms")) is not None:
                    found.setdefault(level, []).append(ms)
        return {level: fmean(each) for level, each in found.items()}

    def _windows(self) -> Iterator[tuple[TrialRecord, Level, int, Window]]:
        for record in self._records:
            for level, windows in sorted(self._samples.of(record).items()):
                for number, window in enumerate(windows, 1):
                    yield record, level, number, window


def _sort(level: Level) -> Level | None:
    """Levels whose cycles one model explains: concurrencies, or a rate alone."""
    return level if isinstance(level, Rate) else None


def _where(record: TrialRecord, level: Level, number: int) -> Row:
    named = {"trial": record.trial, "role": record.role, "label": record_label(record)}
    return {**named, **columns(level), "window": number}


def _window(record: TrialRecord, level: Level, number: int, window: Window) -> Row:
    return {
        **_where(record, level, number),
        "wall_s": window.wall_s,
        "client_cpu_s": window.client_cpu_s,
        "output_tok_s": output_tok_s([window]),
        "completion_tokens": sum(sample.tokens for sample in window.samples),
        "requests": len(window.samples),
        "failed_requests": sum(sample.error is not None for sample in window.samples),
        "stopped": window.stopped,
    }


def _request(record: TrialRecord, level: Level, number: int, sample: RequestSample) -> Row:
    tokens, seconds = decode_time(sample)
    first = sample.chunk_times[0] if sample.chunk_times else None
    spec = sample.spec
    return {
        **_where(record, level, number),
        "prompt_id": sample.prompt_id,
        "kind": sample.kind,
        "sent_s": sample.sent,
        "ttft_ms": None if first is None else (first - sample.began) * 1000,
        "tpot_ms": seconds / tokens * 1000 if tokens else None,
        "e2e_ms": (sample.ended - sample.began) * 1000,
        "prompt_tokens": sample.prompt_tokens,
        "completion_tokens": sample.tokens,
        "engine_tokens": sample.engine_tokens,
        "requested_tokens": sample.requested_tokens,
        "verifies": None if spec is None else spec.verify_ct,
        "correct_drafts": None if spec is None else spec.correct_drafts,
        "proposed_drafts": None if spec is None else spec.proposed_drafts,
        "accept_length": accept_length([sample]),
        "finish_reason": sample.finish_reason,
        "error": sample.error,
        "timed_out": sample.timed_out,
    }
