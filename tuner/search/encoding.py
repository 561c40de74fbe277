"""The points of a space as numbers, a row a point: what the models of the search compute with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tuner.config.dimensions import DIMENSIONS, DRAFT_TP
from tuner.config.point import Point
from tuner.search.priors import expected_effect
from tuner.server.all_reduce import is_nccl, without_nccl

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

PLACEMENT = DRAFT_TP.name
_SETTINGS = tuple(dimension for dimension in DIMENSIONS if not dimension.is_draft_shape)
_LABELS = {dimension.name: dimension.label for dimension in _SETTINGS}


@dataclass(frozen=True)
class EncodedSpace:
    """Arrays with a row for each point."""

    points: tuple[Point, ...]
    names: tuple[str, ...]
    """Settings that vary: dimensions that do not shape the draft, `env.NAME`, `flags.NAME`."""
    steps: Floats
    topk: Floats
    tokens: Floats
    """Draft tokens, the root included."""
    settings: Indices
    """(points, names): which of its values a setting has; 0 is that of the first point."""
    expected: Floats
    """What the settings are believed to add before any launch, as a share of a cycle."""
    timed: Floats
    """The part of `expected` that a benchmark of all-reduces found."""
    known: tuple[bool, ...]
    """For each name, whether that benchmark timed it."""
    plainness: Floats
    """How many settings differ from doing nothing, and have not been seen to work."""

    @classmethod
    def of(
        cls, points: Sequence[Point], timed: Mapping[Point, float] | None = None
    ) -> "EncodedSpace":
        """All points have steps. `timed` holds what all-reduces were found to add where they were
        timed; of these points NCCL's settings are not guessed at."""
        timed = timed or {}
        columns: dict[str, list[object]] = {
            dimension.name: [getattr(point, dimension.name) for point in points]
            for dimension in _SETTINGS
        }
        for kind in ("env", "flags"):
            tables = [dict(getattr(point, kind)) for point in points]
            for name in sorted({name for table in tables for name in table}):
                columns[f"{kind}.{name}"] = [table.get(name) for table in tables]
        names = tuple(name for name, column in columns.items() if len(set(column)) > 1)
        codes = np.zeros((len(points), len(names)), dtype=np.int64)
        shares = np.array([timed.get(point, 0.0) for point in points])
        expected = shares.copy()
        for place, name in enumerate(names):
            known: dict[object, int] = {}
            for row, value in enumerate(columns[name]):
                codes[row, place] = known.setdefault(value, len(known))
            kind, _, key = name.partition(".")
            if key:
                expected += [
                    0.0
                    if point in timed and kind == "env" and is_nccl(key)
                    else expected_effect(kind, key, value)
                    for point, value in zip(points, columns[name], strict=True)
                ]
        moved = [p.draft_tp not in (None, "target") for p in points]
        return cls(
            tuple(points),
            names,
            np.array([p.num_steps or 0 for p in points], dtype=float),
            np.array([p.eagle_topk or 1 for p in points], dtype=float),
            np.array([p.num_draft_tokens or (p.num_steps or 0) + 1 for p in points], dtype=float),
            codes,
            expected,
            shares,
            tuple(bool(timed) and is_nccl(name.partition(".")[2]) for name in names),
            np.array([_settings(p, p in timed) for p in points], dtype=float) + moved,
        )

    @cached_property
    def index(self) -> dict[Point, int]:
        """The row of each point."""
        return {point: row for row, point in enumerate(self.points)}

    def like(self, row: int, places: Sequence[int]) -> Mask:
        """Points whose settings at these places are those of a row."""
        wanted = list(places)
        found: Mask = (self.settings[:, wanted] == self.settings[row, wanted]).all(axis=1)
        return found

    def new_settings(self, row: int, measured: Sequence[int]) -> tuple[str, ...]:
        """Settings of a point with a value that no measured point has, as a reader writes them."""
        point = self.points[row]
        found = []
        for place, name in enumerate(self.names):
            if (
                measured
                and (self.settings[list(measured), place] == self.settings[row, place]).any()
            ):
                continue
            kind, _, key = name.partition(".")
            if name in _LABELS:
                found.append(_LABELS[name](getattr(point, name)))
            else:
                value = dict(getattr(point, kind)).get(key)
                found.append(f"no {key}" if value is None else f"{key}={value}")
        return tuple(found)


def _settings(point: Point, timed: bool) -> int:
    """Those of NCCL do not count where all-reduces ran under them."""
    env = without_nccl(point).env if timed else point.env
    return len(env) + len(point.flags)
