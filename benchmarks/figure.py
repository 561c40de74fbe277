"""Draws what search_efficiency has found: launches by landscape and method.

python -m benchmarks.search_efficiency --quick --json > found.json
python -m benchmarks.figure found.json docs/search_efficiency.svg
"""

import argparse
import json
import sys
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from tuner.report.figures.style import MARKERS, SERIES, style

CAP = 200
TICKS = (1, 2, 5, 10, 20, 50, 100, 200)

Results = dict[str, dict[str, dict[str, float | None]]]


def draw(results: Results, out: Path) -> None:
    """A row for each landscape, the fewest launches of `specbench` at the top."""
    order = sorted(results, key=lambda name: -(results[name]["specbench"]["median_launches"] or 0))
    methods = [m for m in next(iter(results.values())) if _told(results, m)]
    with style():
        figure = Figure(figsize=(7.2, 0.28 * len(order) + 1.1), layout="constrained")
        ax = figure.subplots()
        for row in range(len(order)):
            ax.axhline(row, color="#e3e3e3", linewidth=0.6, zorder=0)
        for number, method in reversed(list(enumerate(methods))):
            launches = {
                row: each
                for row, name in enumerate(order)
                if (each := results[name][method]["median_launches"]) is not None
            }
            # One above the other where methods need as many.
            shifted = [row + 0.11 * (number - (len(methods) - 1) / 2) for row in launches]
            ax.plot(
                list(launches.values()),
                shifted,
                MARKERS[number % len(MARKERS)],
                color=SERIES[number % len(SERIES)],
                markersize=6 if number == 0 else 4,
                label=method,
            )
        ax.set_xscale("log")
        ax.set_xticks(TICKS, [*map(str, TICKS[:-1]), f"{CAP}: not found"])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_yticks(range(len(order)), order)
        ax.grid(visible=False, axis="y")
        ax.set_xlabel("launches until within 1 % of the best, median over seeds")
        handles, labels = ax.get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside upper center", ncols=len(methods))
        figure.savefig(out, metadata={"Date": None})


def _told(results: Results, method: str) -> bool:
    return any(each[method]["median_launches"] is not None for each in results.values())


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("found", type=Path, help="what --json printed")
    parser.add_argument("out", type=Path, help="an .svg or .png")
    asked = parser.parse_args(words)
    try:
        results = json.loads(asked.found.read_text())
        draw(results, asked.out)
    except (OSError, ValueError, KeyError) as error:
        parser.error(f"{asked.found}: {error!r}; give what search_efficiency --json printed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
