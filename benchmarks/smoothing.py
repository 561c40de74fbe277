"""How far off the search's estimates are, of two points that are close, and how far one launch of
each is: the rule of answers leaves room for it (`tuner.analysis.winner.LESS_SURELY`).

    python -m benchmarks.smoothing
"""

import math
from dataclasses import dataclass
from pathlib import Path

from benchmarks.landscape import FOLDER, Landscape
from benchmarks.search_efficiency import Clock, studied
from tuner.config.schema import SearchSpec

SEEDS = 8
CLOSE = 0.95
"""Of the choice's figure: what one launch puts lower is no rival."""


@dataclass(frozen=True)
class Errors:
    """Of the ratio of a measured point to the search's choice, as a logarithm, root mean square."""

    pairs: int
    together: float
    """By all measurements together."""
    single: float
    """By one launch of each."""


def errors(landscape: Landscape, seeds: int = SEEDS) -> Errors:
    """Over the searches of the first `seeds` seeds; nothing where none has a choice."""
    together, single = [], []
    for seed in range(seeds):
        clock = Clock(landscape, seed)
        studied(SearchSpec(seed=seed))(landscape, clock)
        if clock.recommended is None:
            continue
        choice, smoothed = clock.recommended[0], clock.recommended[1].smoothed
        own = landscape.measure(choice, seed).value or 1.0
        for point, value in smoothed.items():
            shown = (landscape.measure(point, seed).value or 0.0) / own
            if point != choice and shown >= CLOSE:
                true = landscape.truth(point).value / landscape.truth(choice).value
                together.append(math.log(value / smoothed[choice] / true))
                single.append(math.log(shown / true))
    return Errors(len(single), _rms(together), _rms(single))


def _rms(values: list[float]) -> float:
    return math.sqrt(math.fsum(each**2 for each in values) / max(1, len(values)))


def table(folder: Path = FOLDER) -> str:
    """Of each landscape with a model, as Markdown."""
    lines = [
        "| landscape | pairs | by all measurements | by one launch of each |",
        "|---|---:|---:|---:|",
    ]
    for path in sorted(folder.glob("*.yaml")):
        landscape = Landscape(path)
        if landscape.has_model and (found := errors(landscape)).pairs:
            told = f"{100 * found.together:.1f} % | {100 * found.single:.1f} %"
            lines.append(f"| {path.stem} | {found.pairs} | {told} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
