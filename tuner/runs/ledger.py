"""Reading trials.jsonl."""

import gc
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pydantic_core import from_json

from tuner.config.schema import Sweep
from tuner.core.errors import UserError
from tuner.runs.candidate_line import read_candidate
from tuner.runs.compact import compact
from tuner.runs.lazy_line import Line
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


AT_ONCE = 1 << 18
"""Bytes of the file to read at a time: a line alone is often longer than Python's own number."""


def parse_ledger(data: bytes | BinaryIO, path: Path) -> Ledger:
    """The content of trials.jsonl; `path` is where it lies, for messages and for what is left
    there. Raises UserError with FILE:LINE."""
    with _collecting_nothing():
        found = _parsed(BytesIO(data) if isinstance(data, bytes) else data, path)
        if len(found.records) >= MANY:
            gc.freeze()
        return found


@contextmanager
def _collecting_nothing() -> Iterator[None]:
    """Records are no garbage; to look through the ones so far again and again takes longer than to
    read them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


MANY = 10_000
"""Records that are left out of every later collection as well."""


def _parsed(lines: Iterable[bytes], path: Path) -> Ledger:
    records: list[TrialRecord] = []
    note, start = None, 0
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            note = (
                f"{path}:{number}: the last line is not complete ({len(line)} bytes, from a "
                "run that ended while writing it); that trial is not counted"
            )
            break
        place = Line.of(line, path, start)
        record = read_candidate(line, place) or _record(line, place, f"{path}:{number}")
        if records and record.trial <= records[-1].trial:
            message = f"trial {record.trial} comes after {records[-1].trial}, restore the file"
            raise UserError(message, f"{path}:{number}")
        records.append(record)
        start += len(line)
    return Ledger(tuple(records), note, start)


def _record(line: bytes, place: Line, where: str) -> TrialRecord:
    """Raises UserError with what is wrong with a line. JSON has no NaN; one that was read would
    make every comparison with it false."""
    try:
        found = from_json(line, allow_inf_nan=False)
    except ValueError as error:
        raise UserError("this line is not JSON, restore it or remove it", where) from error
    if not isinstance(found, dict):
        raise UserError("this line is no JSON object, restore it or remove it", where)
    return compact(read_record(found, where), place)
