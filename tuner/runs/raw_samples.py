"""The raw samples of a run's trials, each file read once."""

from collections.abc import Mapping

from tuner.config.load_level import Level
from tuner.metrics.samples import Window
from tuner.metrics.samples_file import read_samples
from tuner.metrics.statistics import Interval, Metric, speedup
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run


def recorded_samples(run: Run, record: TrialRecord) -> Mapping[Level, list[Window]]:
    """A trial's windows by concurrency; {} where none are on disk. Raises UserError where the file
    is broken, or is not in the run folder."""
    return _read(run, record.samples)


def held_out_samples(run: Run, record: TrialRecord) -> Mapping[Level, list[Window]]:
    """As `recorded_samples`, of the prompts that no candidate was chosen on."""
    return _read(run, None if record.held_out is None else record.held_out.samples)


def _read(run: Run, recorded: str | None) -> Mapping[Level, list[Window]]:
    if recorded is None or not (run.path / recorded).exists():  # a quick look first
        return {}
    return read_samples(run.within(recorded))


class RawSamples:
    """What `recorded_samples` gives, by trial; kept. Raises UserError where a file is broken."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._read: dict[int, Mapping[Level, list[Window]]] = {}

    def of(self, record: TrialRecord) -> Mapping[Level, list[Window]]:
        """A trial's windows by concurrency; {} where none are on disk."""
        if record.trial not in self._read:
            self._read[record.trial] = recorded_samples(self._run, record)
        return self._read[record.trial]

    def ratio(
        self, one: TrialRecord, other: TrialRecord, level: Level, metric: Metric
    ) -> Interval | None:
        """`other` over `one` at one concurrency; None where samples are missing."""
        first, second = self.of(one).get(level), self.of(other).get(level)
        return speedup(first, second, metric) if first and second else None
