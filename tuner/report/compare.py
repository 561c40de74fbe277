"""Runs side by side: baselines and best candidates, with ratios to a reference run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuner.errors import NotComparable, UserError
from tuner.ledger.run import Run
from tuner.measure.statistics import Interval, Metric, speedup
from tuner.report.comparability import (
    best_measured,
    differences,
    launch_note,
    refuse_unlike,
)
from tuner.report.compare_row import Row, cells_of
from tuner.report.findings import NO_SPECULATION, Findings, Measured
from tuner.report.text import code, escaped, markdown_table, text_table

BEST = "best candidate"
REFERENCE = "reference"
NOT_COMPARABLE = "not comparable: "
FASTER, SLOWER, SAME = "faster", "slower", "no difference seen"
CAVEAT = (
    "Intervals are 95 %, from the spread between windows and prompts within one launch; two "
    "launches of one configuration can differ by more."
)


@dataclass(frozen=True)
class Compared:
    """A run by its letter."""

    letter: str
    name: str
    """`sweep name/run id`."""
    path: str
    engine: str
    gpus: str
    best: str | None
    """The best candidate's label."""


@dataclass(frozen=True)
class Comparison:
    """Like runs held against the reference. Rows are grouped by concurrency, then by kind."""

    runs: tuple[Compared, ...]
    reference: str
    """Its letter."""
    metric: Metric
    simulated: bool
    differences: tuple[str, ...]
    """What differs between the runs and may explain a ratio."""
    notes: tuple[str, ...]
    """On the launches of best candidates that were measured again, or on a shared server."""
    rows: tuple[Row, ...]

    def regressions(self, threshold: float) -> tuple[Row, ...]:
        """Rows that are surely slower: their whole interval lies below 1 - threshold."""
        return tuple(
            row
            for row in self.rows
            if row.ratio is not None and row.ratio.high is not None
            if row.ratio.high < 1 - threshold
        )

    def refuse_incomparable(self) -> None:
        """Raises NotComparable, with the reasons, where no row holds one run against another."""
        verdicts = [(row, row.verdict) for row in self.rows if row.verdict != REFERENCE]
        if all(verdict.startswith(NOT_COMPARABLE) for _, verdict in verdicts):
            whys = [f"{r.what} of {r.run}: {v.removeprefix(NOT_COMPARABLE)}" for r, v in verdicts]
            reason = "; ".join(dict.fromkeys(whys)) or "no concurrency was measured in two runs"
            raise NotComparable(f"nothing is comparable: {reason}")

    def to_json(self) -> dict[str, Any]:
        """Everything, for `--json`."""
        return {
            "reference": self.reference,
            "metric": self.metric,
            "simulated": self.simulated,
            "runs": {
                run.letter: {
                    "path": run.path,
                    "name": run.name,
                    "engine": run.engine,
                    "gpus": run.gpus,
                    "best": run.best,
                }
                for run in self.runs
            },
            "differences": list(self.differences),
            "notes": list(self.notes),
            "rows": [row.to_json() for row in self.rows],
        }

    def render_text(self) -> str:
        """For a terminal."""
        lines = [f"{'simulated runs' if self.simulated else 'runs'}, reference {self.reference}:"]
        for run in self.runs:
            lines.append(f"  {run.letter}  {run.name}  ({run.engine}; GPUs: {run.gpus})")
            lines.append(f"     best candidate: {run.best or 'none'}")
        if self.differences:
            lines += ["they differ in:", *(f"  {line}" for line in self.differences)]
        if self.notes:
            lines += ["best candidates' launches:", *(f"  {note}" for note in self.notes)]
        for (level, what), rows in self._groups():
            short = [[*cells[:-1], cells[-1].split(":")[0]] for cells in map(cells_of, rows)]
            table = text_table(self._header(), short)
            lines += ["", f"concurrency {level}, {what} (times in ms)", table]
            lines += [f"  {row.run} is {row.verdict}" for row in rows if ":" in row.verdict]
        return "\n".join([*lines, "", CAVEAT])

    def render_markdown(self) -> str:
        """For a pull request or a page."""
        lines = [f"# Comparison{' (simulated)' if self.simulated else ''}", ""]
        if self.simulated:
            lines += ["> **Simulated.** None of these numbers was measured on hardware.", ""]
        rows = [
            [r.letter, code(r.name), escaped(r.engine), escaped(r.gpus), code(r.best or "")]
            for r in self.runs
        ]
        lines.append(markdown_table(["run", "name", "engine", "GPUs", BEST], rows, 5))
        if self.differences:
            lines += ["", "The runs differ in:", ""]
            lines += [f"- {escaped(line)}" for line in self.differences]
        if self.notes:
            lines += ["", "The best candidates' launches:", ""]
            lines += [f"- {escaped(note)}" for note in self.notes]
        for (level, what), found in self._groups():
            table = markdown_table(self._header(), [[*map(escaped, cells_of(r))] for r in found], 1)
            lines += ["", f"## Concurrency {level}, {what}", "", "Times in ms.", "", table]
        return "\n".join([*lines, "", CAVEAT]) + "\n"

    def _groups(self) -> list[tuple[tuple[int, str], list[Row]]]:
        groups: dict[tuple[int, str], list[Row]] = {}
        for row in self.rows:
            groups.setdefault((row.concurrency, row.what), []).append(row)
        return list(groups.items())

    def _header(self) -> list[str]:
        words = self.metric.removesuffix("_tok_s")
        header = ["run", f"{words} tok/s", f"ratio to {self.reference}", "TTFT p50/p99"]
        return [*header, "TPOT p50/p99", "accept length", "launch", "verdict"]


def compare(runs: Sequence[Run], reference: int = 0) -> Comparison:
    """Hold each run against `runs[reference]`.

    Raises NotComparable where a run is simulated and another is not, or has another model,
    workload or no concurrency in common; UserError where a run's files cannot be read.
    """
    if len(runs) < 2:
        raise UserError("a comparison needs two runs or more")
    found = [Findings(run) for run in runs]
    letters = [chr(ord("A") + i) if i < 26 else f"R{i + 1}" for i in range(len(found))]
    first = found[reference]
    refuse_unlike([first, *(each for each in found if each is not first)])
    others = {level for each in found if each is not first for level in each.levels}
    rows = [
        _row(letter, each, first, (level, what))
        for level in first.levels
        if level in others
        for what in (NO_SPECULATION, BEST)
        for letter, each in zip(letters, found, strict=True)
    ]
    return Comparison(
        runs=tuple(map(_compared, letters, found)),
        reference=letters[reference],
        metric=first.metric,
        simulated=first.simulated,
        differences=tuple(differences(found, letters)),
        notes=tuple(note for note in map(launch_note, found, letters) if note is not None),
        rows=tuple(rows),
    )


def _compared(letter: str, findings: Findings) -> Compared:
    version = ", ".join(findings.versions())
    return Compared(
        letter=letter,
        name=f"{findings.sweep.name}/{findings.run.id}",
        path=str(findings.run.path),
        engine=f"{findings.sweep.engine.kind} {version}".strip(),
        gpus=findings.gpus(),
        best=findings.best.label if findings.best else None,
    )


def _row(letter: str, findings: Findings, first: Findings, place: tuple[int, str]) -> Row:
    level, what = place
    mine, metric = _measured(findings, what), first.metric
    bounds, why = (None, None) if findings is first else _ratio(findings, first, place)
    get = mine.metric if mine is not None else lambda _level, _name: None
    value = get(level, metric)
    tok_s = None
    if value is not None:
        tok_s = Interval(value, get(level, f"{metric}_low"), get(level, f"{metric}_high"))
    return Row(
        run=letter,
        concurrency=level,
        what=what,
        configuration=mine.label if mine else None,
        tok_s=tok_s,
        ratio=bounds,
        ttft_ms=(get(level, "ttft_ms_p50"), get(level, "ttft_ms_p99")),
        tpot_ms=(get(level, "tpot_ms_p50"), get(level, "tpot_ms_p99")),
        accept_length=get(level, "accept_length"),
        launch_s=mine.record.launch_s if mine else None,
        verdict=REFERENCE if findings is first else _verdict(bounds, why),
    )


def _measured(findings: Findings, what: str) -> Measured | None:
    return findings.baseline if what == NO_SPECULATION else best_measured(findings)


def _ratio(
    findings: Findings, first: Findings, place: tuple[int, str]
) -> tuple[Interval | None, str | None]:
    """The ratio, and why it has no interval where it has none."""
    level, what = place
    metric = first.metric
    mine, theirs = _measured(findings, what), _measured(first, what)
    above = mine.metric(level, metric) if mine else None
    below = theirs.metric(level, metric) if theirs else None
    if mine is None or above is None:
        return None, "not measured here"
    if theirs is None or not below:
        return None, "not measured in the reference"
    base, windows = first.windows(theirs, level), findings.windows(mine, level)
    if not base or not windows:
        return Interval(above / below, None, None), "no raw samples, so no interval"
    bounds = speedup(base, windows, metric)
    if bounds is None or bounds.low is None:
        return Interval(above / below, None, None), "no prompts in common, so no interval"
    return bounds, None


def _verdict(bounds: Interval | None, why: str | None) -> str:
    if bounds is None or bounds.low is None or bounds.high is None:
        return f"{NOT_COMPARABLE}{why}"
    if bounds.low > 1:
        return FASTER
    return SLOWER if bounds.high < 1 else SAME
