"""What a run must have for its next trial, checked before a server is launched."""

from collections.abc import Sequence

from tuner.errors import UserError
from tuner.ledger.folder import RunFolder
from tuner.ledger.lines import Ledger
from tuner.measure.samples_file import read_samples
from tuner.sweep.document import Document
from tuner.sweep.level import Level, at
from tuner.sweep.model import Sweep
from tuner.sweep.space import Space


def refuse_unusable(run: RunFolder, ledger: Ledger, sweep: Sweep, document: Document) -> None:
    """Raises UserError where a candidate is no point of the space or the baseline is no use."""
    if sweep.engine.kind == "endpoint":  # has its own point, and nothing to compare it with
        return
    _refuse_foreign_points(run, ledger, Space.from_sweep(sweep, document))
    _refuse_baseline(run, ledger, sweep.workload.levels)


def _refuse_foreign_points(run: RunFolder, ledger: Ledger, space: Space) -> None:
    known = set(space.points)
    settings = {its for point in space.points if (its := point.settings) is not None}
    for number, record in enumerate(ledger.records, start=1):
        if record.role in ("baseline", "abreast"):
            continue
        point = record.at
        if point in known or (record.role == "plain" and point in settings):
            continue
        what = "no point" if point is None else f"the point {point.label()}"
        raise UserError(
            f"trial {record.trial} has {what}, which is not in the sweep's space: restore the "
            "line or begin a new run",
            f"{run.trials_file}:{number}",
        )


def _refuse_baseline(run: RunFolder, ledger: Ledger, levels: Sequence[Level]) -> None:
    """Its samples are what candidates are compared with, level by level."""
    baseline = ledger.baseline
    if baseline is None:
        return
    where = f"{run.trials_file}:{ledger.records.index(baseline) + 1}"
    if baseline.samples is None:
        message = "the baseline has no samples to compare candidates with, begin a new run"
        raise UserError(message, where)
    path = run.within(baseline.samples)
    found = read_samples(path)
    missing = [str(level) for level in levels if not found.get(level)]
    if missing:
        message = f"these are the baseline's samples and have none {at(missing[0])}"
        raise UserError(f"{message}, restore them or begin a new run", path)
