"""Reading trials.jsonl."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import NoReturn

from tuner.errors import UserError
from tuner.ledger.record import SIMULATED, TrialRecord, read_record
from tuner.sweep.model import Sweep


@dataclass(frozen=True)
class Ledger:
    """What trials.jsonl says. `note` tells of a last line that was cut off, None without one."""

    records: tuple[TrialRecord, ...]
    note: str | None = None

    @property
    def baseline(self) -> TrialRecord | None:
        """The first baseline that was measured: the one that a run's searches go by."""
        return next(iter(self.baselines), None)

    @property
    def baselines(self) -> tuple[TrialRecord, ...]:
        """Every launch of the baseline that was measured, in time."""
        return tuple(r for r in self.records if r.role == "baseline" and r.outcome == "ok")

    @property
    def candidates(self) -> tuple[TrialRecord, ...]:
        """Candidates in the order in which they were measured."""
        return tuple(each for each in self.records if each.role == "candidate")

    @cached_property
    def _confirmations(self) -> tuple[TrialRecord, ...]:
        """A handful; asked for with every candidate, so not looked for in the whole each time."""
        return tuple(each for each in self.records if each.role == "confirm")

    def confirmation(self, of: TrialRecord) -> TrialRecord | None:
        """The last measurement of a candidate's point on a server of its own."""
        found = [each for each in self._confirmations if each.point == of.point]
        return found[-1] if found else None

    def plain(self, of: TrialRecord) -> TrialRecord | None:
        """The last launch without speculation under a candidate's own settings."""
        its = None if of.at is None else of.at.settings
        found = [each for each in self.records if each.role == "plain" and each.at == its]
        return found[-1] if found else None

    @property
    def recommended(self) -> TrialRecord | None:
        """The candidate that the search took for the fastest by all measurements, at its end, and
        launched once more; None where its choice is the highest figure, or is out of date: there
        are further candidates. Others may have been launched once more since."""
        ended = takewhile(lambda each: each.role != "candidate", reversed(self.records))
        last = next((e for e in ended if e.role == "confirm" and e.decision is not None), None)
        if last is None or last.outcome != "ok":
            return None
        found = [r for r in self.candidates if r.point == last.point and r.outcome == "ok"]
        return found[-1] if found else None

    @property
    def next_trial(self) -> int:
        """The number of the next trial."""
        return max((each.trial for each in self.records), default=-1) + 1

    @property
    def next_launch(self) -> int:
        """The number of the next launch, and so how many there were."""
        return max((each.launch_id for each in self.records), default=-1) + 1


def is_simulated(records: Sequence[TrialRecord], sweep: Sweep) -> bool:
    """A number here comes from a performance model: the sweep says so, or a server did."""
    return sweep.engine.kind == SIMULATED or any(each.engine == SIMULATED for each in records)


def parse_ledger(data: bytes, path: Path) -> Ledger:
    """The content of trials.jsonl; `path` is for messages. Raises UserError with FILE:LINE."""
    *lines, rest = data.split(b"\n")
    records: list[TrialRecord] = []
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        try:
            found = json.loads(line, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            raise UserError("this line is not JSON, restore it or remove it", where) from error
        if not isinstance(found, dict):
            raise UserError("this line is no JSON object, restore it or remove it", where)
        record = read_record(found, where)
        if records and record.trial <= records[-1].trial:
            message = f"trial {record.trial} comes after {records[-1].trial}, restore the file"
            raise UserError(message, where)
        records.append(record)
    note = None
    if rest:
        note = (
            f"{path}:{len(lines) + 1}: the last line is not complete ({len(rest)} bytes, from a "
            "run that ended while writing it); that trial is not counted"
        )
    return Ledger(tuple(records), note)


def _no_number(word: str) -> NoReturn:
    """JSON has no NaN; Python would read one and every comparison with it would be false."""
    raise ValueError(word)
