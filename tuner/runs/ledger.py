"""Reading trials.jsonl."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from tuner.config.schema import Sweep
from tuner.core.errors import UserError
from tuner.runs.records import SIMULATED, TrialRecord, read_record

Kept = TypeVar("Kept")


@dataclass(frozen=True)
class Ledger:
    """What trials.jsonl says. `note` tells of a last line that was cut off, None without one."""

    records: tuple[TrialRecord, ...]
    note: str | None = None
    size: int = 0
    """Bytes of the lines that are complete."""
    _known: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, what: Hashable, make: Callable[[], Kept]) -> Kept:
        """What `make` gives, made once for these lines: most of what is asked of a ledger goes
        through all of them. `what` tells it from everything else."""
        if what not in self._known:
            self._known[what] = make()
        return self._known[what]  # type: ignore[no-any-return]

    @property
    def baseline(self) -> TrialRecord | None:
        """The first baseline that was measured: the one that a run's searches go by."""
        return next(iter(self.baselines), None)

    @cached_property
    def baselines(self) -> tuple[TrialRecord, ...]:
        """Every launch of the baseline that was measured, in time."""
        return tuple(r for r in self.records if r.role == "baseline" and r.outcome == "ok")

    @cached_property
    def candidates(self) -> tuple[TrialRecord, ...]:
        """Candidates in the order in which they were measured."""
        return tuple(each for each in self.records if each.role == "candidate")

    @cached_property
    def _confirmations(self) -> tuple[TrialRecord, ...]:
        """A handful; asked for with every candidate, so not looked for in the whole each time."""
        return tuple(each for each in self.records if each.role == "confirm")

    def confirmation(self, of: TrialRecord) -> TrialRecord | None:
        """The last measurement of a candidate's point on a server of its own."""
        if not self._confirmations:
            return None
        found = [each for each in self._confirmations if each.point == of.point]
        return found[-1] if found else None

    def plain(self, of: TrialRecord) -> TrialRecord | None:
        """The last launch without speculation under a candidate's own settings."""
        its = None if of.at is None else of.at.settings
        found = [each for each in self.records if each.role == "plain" and each.at == its]
        return found[-1] if found else None

    @cached_property
    def next_trial(self) -> int:
        """The number of the next trial."""
        return max((each.trial for each in self.records), default=-1) + 1

    @cached_property
    def next_launch(self) -> int:
        """The number of the next launch, and so how many there were."""
        return max((each.launch_id for each in self.records), default=-1) + 1


def is_simulated(records: Sequence[TrialRecord], sweep: Sweep) -> bool:
    """A number here comes from a performance model: the sweep says so, or a server did."""
    return sweep.engine.is_simulated or any(each.engine == SIMULATED for each in records)


READ_BUFFER_BYTES = 1 << 18
"""A line alone is often longer than Python's own buffer of 8 kB."""


def parse_ledger(lines: Iterable[bytes], path: Path) -> Ledger:
    """Return the trials in the lines of trials.jsonl; `path` is for messages.

    A last line without a line break is left out with a note: the run ended while it was written.
    Raises UserError with FILE:LINE for any other line that is not a trial.
    """
    records: list[TrialRecord] = []
    note, size = None, 0
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        if not line.endswith(b"\n"):
            note = (
                f"{where}: the last line is not complete ({len(line)} bytes, from a "
                "run that ended while writing it); that trial is not counted"
            )
            break
        record = read_record(line, where)
        if records and record.trial <= records[-1].trial:
            last = records[-1].trial
            raise UserError(f"trial {record.trial} comes after {last}. Restore the file.", where)
        records.append(record)
        size += len(line)
    return Ledger(tuple(records), note, size)
