"""What the metrics of a ledger line must be."""

import math
from collections.abc import Mapping
from typing import Any

from tuner.ledger.figures import BY_NAME, LISTS
from tuner.sweep.level import level_of


def refuse_odd_metrics(metrics: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The metrics of a line themselves. Raises ValueError where they are none."""
    for level, figures in metrics.items():
        level_of(level)
        _refuse_odd(figures)
    return metrics


def _refuse_odd(figures: Mapping[str, Any]) -> None:
    """Raises ValueError where they are not the figures of one concurrency."""
    for name, figure in figures.items():
        _require_figure(name, figure)
    if figures.get("speedup") is not None and not {"speedup_low", "speedup_high"} <= {*figures}:
        raise ValueError("speedup has no speedup_low and speedup_high")


def _require_figure(name: str, figure: Any) -> None:
    """Raises ValueError for what is no finite number, or none of them where there are several."""
    if figure is None:
        return
    parts: list[Any] = [figure]
    if name in LISTS:
        if not isinstance(figure, list):
            raise ValueError(f"{name} is no list")
        parts = figure
    elif name in BY_NAME:
        if not isinstance(figure, dict) or not all(isinstance(x, dict) for x in figure.values()):
            raise ValueError(f"{name} is no object of objects")
        parts = [each for part in figure.values() for each in part.values() if each is not None]
    for part in parts:
        if not _is_number(part):
            raise ValueError(f"{name} is {str(part)[:40]!r}, not a number")


def _is_number(part: Any) -> bool:
    """Finite, and not larger than a float."""
    if isinstance(part, bool) or not isinstance(part, int | float):
        return False
    try:
        return math.isfinite(part)
    except OverflowError:
        return False
