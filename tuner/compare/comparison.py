"""Runs and files side by side: their servers by concurrency, with ratios to the first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.analysis.summary import NO_SPECULATION, summarise_run
from tuner.compare.columns import FASTER, NOT_COMPARABLE, REFERENCE, SAME, SLOWER, Row, RowFigures
from tuner.compare.comparability import differences, launch_notes, refuse_unlike, refuse_unlike_file
from tuner.compare.sources import BEST, THE_SERVER, FileSource, RunSource, Source, SourceEntry
from tuner.config.load_level import Level, at, listed
from tuner.core.errors import NotComparable, UserError
from tuner.metrics.statistics import Interval, Metric, speedup
from tuner.runs.run import Run

GATED = (NO_SPECULATION, BEST, THE_SERVER)
"""Kinds of servers that a regression counts for."""


@dataclass(frozen=True)
class Compared:
    """A run or a file by its letter."""

    letter: str
    name: str
    """`sweep name/run id`, or the file and what was sent."""
    path: str
    engine: str
    """Or the benchmark that wrote the file."""
    gpus: str
    best: str | None
    """The label of the run's best candidate; None of a file."""
    foreign: bool


@dataclass(frozen=True)
class Comparison:
    """Like held against the reference. Rows are grouped by concurrency, then by kind."""

    runs: tuple[Compared, ...]
    reference: str
    """Its letter."""
    metric: Metric
    simulated: bool
    differences: tuple[str, ...]
    """What differs between the runs and may explain a ratio."""
    notes: tuple[str, ...]
    """On launches of best candidates, and on what files leave out or define otherwise."""
    rows: tuple[Row, ...]
    unshared: tuple[str, ...] = ()
    """Points that only some runs have, with their letters; () unless all points were asked for."""

    @property
    def gated(self) -> tuple[Row, ...]:
        """Servers that a gate judges."""
        rows = (row for row in self.rows if row.what in GATED and row.verdict != REFERENCE)
        return tuple(rows)

    def regressions(self, threshold: float) -> tuple[Row, ...]:
        """Servers that are surely slower: their whole interval lies below 1 - threshold."""
        return tuple(
            row
            for row in self.rows
            if row.what in GATED and row.ratio is not None and row.ratio.high is not None
            if row.ratio.high < 1 - threshold
        )

    def refuse_unjudged(self) -> None:
        """Raises NotComparable where a gate cannot tell of a server whether it is slower."""
        open_rows = [
            row
            for row in self.rows
            if row.what in GATED and row.verdict != REFERENCE and not row.compared
        ]
        if open_rows:
            raise NotComparable(f"whether it is slower is not known: {_whys(open_rows)}")

    def refuse_incomparable(self) -> None:
        """Raises NotComparable, with the reasons, where no row holds one run against another.

        A file that has no intervals was asked to be shown beside the runs, and is.
        """
        held = [row for row in self.rows if row.verdict != REFERENCE]
        foreign = {run.letter for run in self.runs if run.foreign}
        if any(row.compared or row.run in foreign or self.reference in foreign for row in held):
            return
        reason = _whys(held) or "no level was measured in two runs"
        raise NotComparable(f"nothing is comparable: {reason}")

    def to_json(self) -> dict[str, Any]:
        """Everything, for `--json`."""
        return {
            "reference": self.reference,
            "metric": self.metric,
            "simulated": self.simulated,
            "runs": {
                run.letter: {name: value for name, value in vars(run).items() if name != "letter"}
                for run in self.runs
            },
            "differences": list(self.differences),
            "notes": list(self.notes),
            "rows": [row.to_json() for row in self.rows],
            "unshared": list(self.unshared),
        }

    def groups(self) -> list[tuple[tuple[Level, str], list[Row]]]:
        """Rows by (concurrency, kind)."""
        groups: dict[tuple[Level, str], list[Row]] = {}
        for row in self.rows:
            groups.setdefault((row.concurrency, row.what), []).append(row)
        return list(groups.items())


def _whys(rows: Sequence[Row]) -> str:
    told = [
        f"{row.what} of {row.run} {at(row.concurrency)}: {row.verdict.removeprefix(NOT_COMPARABLE)}"
        for row in rows
    ]
    return "; ".join(told)


def compare(runs: Sequence[Run | Source], reference: int = 0, every: bool = False) -> Comparison:
    """Hold each run against `runs[reference]`; `every`: all points that the runs share, too.

    Raises NotComparable where a run is simulated and another is not, or has another model,
    workload, kind of engine or no concurrency in common; UserError where a run's files cannot be
    read.
    """
    if len(runs) < 2:
        raise UserError("a comparison needs two runs or more")
    sources = [RunSource(summarise_run(each)) if isinstance(each, Run) else each for each in runs]
    letters = [chr(ord("A") + i) if i < 26 else f"R{i + 1}" for i in range(len(sources))]
    table = _Table(dict(zip(letters, sources, strict=True)), letters[reference])
    table.refuse_unlike()
    own = {letter: each.summary for letter, each in table.runs.items()}
    rows = [row for level in table.levels for row in table.rows(level)]
    return Comparison(
        runs=tuple(map(_compared, letters, sources)),
        reference=table.letter,
        metric=table.metric,
        simulated=table.first.simulated,
        differences=tuple(differences(list(own.values()), list(own))),
        notes=tuple(table.notes()),
        rows=tuple(rows + ([*table.shared_rows()] if every else [])),
        unshared=tuple(table.unshared()) if every else (),
    )


def _compared(letter: str, source: Source) -> Compared:
    return Compared(
        letter=letter,
        name=source.name,
        path=str(source.path),
        engine=source.engine,
        gpus=source.gpus,
        best=source.best,
        foreign=isinstance(source, FileSource),
    )


class _Table:
    """The sources by letter, held against one of them."""

    def __init__(self, sources: dict[str, Source], letter: str) -> None:
        self.sources, self.letter = sources, letter
        self.first = sources[letter]
        self.runs = {n: each for n, each in sources.items() if isinstance(each, RunSource)}
        foreign = len(self.runs) < len(sources)  # files have no other throughput
        self.metric: Metric = "output_tok_s"
        if isinstance(self.first, RunSource) and not foreign:
            self.metric = self.first.summary.metric

    def refuse_unlike(self) -> None:
        """Raises NotComparable where one of them asks another question."""
        others = [each for each in self.sources.values() if each is not self.first]
        like = [each for each in [self.first, *others] if isinstance(each, RunSource)]
        if like:
            refuse_unlike([each.summary for each in like])
        for other in others:
            if not (isinstance(self.first, RunSource) and isinstance(other, RunSource)):
                refuse_unlike_file(self.first, other)

    @property
    def levels(self) -> list[Level]:
        """Concurrencies of the reference that another one measured, or was to measure."""
        others = [each for each in self.sources.values() if each is not self.first]
        found = {level for each in others for level in (*each.levels, *each.asked)}
        return [level for level in self.first.levels if level in found]

    def rows(self, level: Level) -> Iterator[Row]:
        """The servers at one concurrency; kinds that nobody measured are left out."""
        attached = any(each.attached for each in self.runs.values())
        for what in (THE_SERVER,) if attached else (NO_SPECULATION, BEST):
            there = {
                letter: each.entry(what, level, self.metric)
                for letter, each in self.sources.items()
                if isinstance(each, RunSource) or level in each.levels
            }
            if any(entry is not None for entry in there.values()):
                yield from self._group(level, what, there)

    def shared_rows(self) -> Iterator[Row]:
        """A group for each point that all runs measured at a concurrency, the best first."""
        if not isinstance(self.first, RunSource):
            raise UserError("--all needs a run as the first, a file has no points to share")
        for level in self.levels:
            measured = {letter: each.points(level) for letter, each in self.runs.items()}
            for point in measured[self.letter]:
                if all(point in each for each in measured.values()):
                    there = {
                        letter: each.told(measured[letter][point], level, self.metric)
                        for letter, each in self.runs.items()
                    }
                    yield from self._group(level, point.label(), there)

    def unshared(self) -> Iterator[str]:
        """`3 steps, 4 tokens at concurrency 1, 8: only in A, C`."""
        found: dict[tuple[str, str], list[Level]] = {}
        for level in self.levels:
            measured = {letter: each.points(level) for letter, each in self.runs.items()}
            for point in dict.fromkeys(point for each in measured.values() for point in each):
                having = [letter for letter, each in measured.items() if point in each]
                if len(having) < len(self.runs):
                    found.setdefault((point.label(), ", ".join(having)), []).append(level)
        for (label, letters), levels in found.items():
            yield f"{label} at {listed(levels)}: only in {letters}"

    def notes(self) -> Iterator[str]:
        """What to know of each source's figures."""
        for letter, each in self.sources.items():
            if isinstance(each, RunSource):
                yield from launch_notes(each.summary, letter)
            elif isinstance(each, FileSource):
                yield from (f"{letter}: {note}" for note in each.run.notes)

    def _group(
        self, level: Level, what: str, there: dict[str, SourceEntry | None]
    ) -> Iterator[Row]:
        base = there[self.letter]
        for letter, entry in there.items():
            bounds, verdict = None, REFERENCE
            if letter != self.letter:
                bounds, verdict = _held_against(base, entry, self.metric)
            yield Row(
                run=letter,
                concurrency=level,
                what=what,
                configuration=entry.configuration if entry else None,
                tok_s=entry.tok_s if entry else None,
                ratio=bounds,
                verdict=verdict,
                figures=entry.figures if entry else RowFigures(),
            )


def _held_against(
    base: SourceEntry | None, entry: SourceEntry | None, metric: Metric
) -> tuple[Interval | None, str]:
    """The ratio to the reference's entry, and the verdict."""
    if entry is None:
        return None, f"{NOT_COMPARABLE}not measured here"
    if base is None:
        return None, f"{NOT_COMPARABLE}not measured in the reference"
    if entry.tok_s is None or base.tok_s is None or not base.tok_s.value:
        lacking = base.lacking if entry.tok_s is not None else entry.lacking
        return None, f"{NOT_COMPARABLE}{lacking}"
    plain = Interval(entry.tok_s.value / base.tok_s.value, None, None)
    if not entry.windows or not base.windows:
        return plain, NOT_COMPARABLE + (base.lacking if entry.windows else entry.lacking)
    if entry.prompts != base.prompts:
        return plain, f"{NOT_COMPARABLE}the prompts are not known to be the same"
    bounds = speedup(base.windows, entry.windows, metric)
    if bounds is None or bounds.low is None or bounds.high is None:
        return plain, f"{NOT_COMPARABLE}no prompts in common, so no interval"
    if bounds.low > 1:
        return bounds, FASTER
    return bounds, SLOWER if bounds.high < 1 else SAME
