"""Raw samples on disk: gzipped JSON lines, from which every summary can be recomputed.

    {"format": 1}                                     once, first
    {"window": {"concurrency", "wall_s", "client_cpu_s", "stopped", "gpus", "engine"}}
    {"request": {every field of RequestSample}}       the requests of the window line above them

`level` of a window is there only where the sweep has several request rates (`4/s`; `concurrency` is
then how many were open at most). `due` is there only where requests came at a rate, `output_ids`
and `text` where an answer was kept, `cached_tokens` where it is known.

Times are seconds since the window began, to the microsecond. `gpus` (NVML's readings, a GpuTrace
for each GPU) and `engine` (an EngineCounters) are there only where they were read.
"""

import gzip
import json
import math
import zlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn

from tuner.config.load_level import Level, Rate, parse_level
from tuner.core.errors import UserError
from tuner.core.files import opened, replacing
from tuner.metrics.samples import EngineCounters, GpuTrace, RequestSample, SpecCounts, Window

FORMAT = 1
"""Format 1: the first one."""


def write_samples(path: Path, windows_by_level: Mapping[Level, Sequence[Window]]) -> None:
    """Write all windows to `path`; the file is there whole or not at all.

    Raises UserError where the place cannot be written to, or is full.
    """
    try:
        with replacing(path) as partial:
            _write(partial, windows_by_level)
    except OSError as error:
        message = f"{error.strerror}, make it writable with space left and resume the run"
        raise UserError(message, path) from error


def _write(path: Path, windows_by_level: Mapping[Level, Sequence[Window]]) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(json.dumps({"format": FORMAT}) + "\n")
        for level, windows in windows_by_level.items():
            for window in windows:
                facts = _window_json(window)
                if isinstance(level, Rate):
                    facts["level"] = str(level)
                file.write(json.dumps({"window": facts}) + "\n")
                for sample in window.samples:
                    file.write(json.dumps({"request": _request_json(sample)}) + "\n")


def read_samples(path: Path) -> dict[Level, list[Window]]:
    """What `write_samples` wrote, equal to it. Raises UserError where the file is not whole."""
    try:
        with opened(path) as packed, gzip.open(packed, "rt", encoding="utf-8") as file:
            lines = [json.loads(line, parse_constant=_no_number) for line in file]
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"these samples cannot be read: {reason}, restore them", path) from error
    except (EOFError, ValueError, RecursionError, zlib.error) as error:
        raise UserError(f"these samples cannot be read: {error}, restore them", path) from error
    if not lines or lines[0] != {"format": FORMAT}:
        raise UserError(f"this is not a samples file of format {FORMAT}", path)
    try:
        return _by_level(lines[1:])
    except (KeyError, TypeError, IndexError, ValueError, OverflowError) as error:
        raise UserError(f"this is no samples file of format {FORMAT}: {error}", path) from error


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


def _require_numbers(*values: float) -> None:
    """Raises TypeError for what is no number, ValueError for one that is not finite."""
    if not all(map(math.isfinite, values)):
        raise ValueError("a number is not finite")


def _by_level(lines: Sequence[Mapping[str, Any]]) -> dict[Level, list[Window]]:
    groups: list[tuple[Mapping[str, Any], list[RequestSample]]] = []
    for line in lines:
        if "window" in line:
            groups.append((line["window"], []))
        else:
            groups[-1][1].append(_sample(line["request"]))
    levels: dict[Level, list[Window]] = {}
    for facts, samples in groups:
        known = dict(facts)
        level = known.pop("level", None)
        window = Window(**{**known, **_beside(known)}, samples=tuple(samples))
        _require_numbers(window.concurrency, window.wall_s, window.client_cpu_s)
        at = window.concurrency if level is None else parse_level(level)
        levels.setdefault(at, []).append(window)
    return levels


def _beside(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What was read beside the requests, as far as the line has it."""
    found: dict[str, Any] = {}
    if facts.get("gpus") is not None:
        found["gpus"] = tuple(map(GpuTrace.from_json, facts["gpus"]))
        for trace in found["gpus"]:
            columns = (trace.at, trace.sm_mhz, trace.temperature_c, trace.power_w, trace.energy_j)
            _require_numbers(*(each for column in columns for each in column if each is not None))
    if facts.get("engine") is not None:
        found["engine"] = counters = EngineCounters.from_json(facts["engine"])
        said = (*counters.accept_lengths, *counters.throughputs)
        _require_numbers(*(each for each in said if each is not None))
    return found


def _window_json(window: Window) -> dict[str, Any]:
    beside: dict[str, Any] = {}
    if window.gpus is not None:
        beside["gpus"] = [trace.to_json() for trace in window.gpus]
    if window.engine is not None:
        beside["engine"] = window.engine.to_json()
    return {
        **beside,
        "concurrency": window.concurrency,
        "wall_s": window.wall_s,
        "client_cpu_s": window.client_cpu_s,
        "stopped": window.stopped,
    }


def _request_json(sample: RequestSample) -> dict[str, Any]:
    facts = asdict(replace(sample, output_ids=None))
    facts["output_ids"] = None if sample.output_ids is None else sample.output_ids.tolist()
    absent = [
        name for name in ("due", "cached_tokens", "output_ids", "text") if facts[name] is None
    ]
    return {name: value for name, value in facts.items() if name not in absent}


def _sample(facts: Mapping[str, Any]) -> RequestSample:
    counts = facts["spec"]
    spec = None
    if counts is not None:
        histogram = counts["histogram"]
        _require_numbers(counts["verify_ct"], counts["correct_drafts"], *(histogram or ()))
        spec = SpecCounts(
            **{**counts, "histogram": None if histogram is None else tuple(histogram)}
        )
    ids, text = facts.get("output_ids"), facts.get("text")
    if text is not None and not isinstance(text, str):
        raise TypeError("text is no text")
    sample = RequestSample(
        **{
            **facts,
            "chunk_times": tuple(facts["chunk_times"]),
            "chunk_tokens": tuple(facts["chunk_tokens"]),
            "spec": spec,
            "output_ids": None if ids is None else array("I", ids),
        }
    )
    if not isinstance(sample.prompt_id, str) or not isinstance(sample.kind, str):
        raise TypeError("prompt_id and kind are no texts")
    if not isinstance(sample.engine_figures, Mapping):
        raise TypeError("engine_figures is no object")
    _require_numbers(sample.sent, sample.ended, sample.requested_tokens)
    _require_numbers(*sample.chunk_times, *sample.chunk_tokens)
    _require_numbers(
        *(
            n
            for n in (sample.prompt_tokens, sample.engine_tokens, sample.cached_tokens)
            if n is not None
        )
    )
    _require_numbers(*(() if sample.due is None else (sample.due,)))
    if len(sample.chunk_times) != len(sample.chunk_tokens):
        raise ValueError("chunk_times and chunk_tokens differ in length")
    if not all(type(tokens) is int and 0 < tokens < 2**31 for tokens in sample.chunk_tokens):
        raise ValueError("a chunk has no whole number of tokens")
    return sample
