"""Runs that must be over by a time: what is begun ends in time, and the winner is confirmed."""

import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from click.testing import CliRunner, Result

from tests.played import known_windows
from tests.sweeps import Listener, tiny_sweep
from tuner.cli.commands import specbench
from tuner.config.field_types import refused, when
from tuner.config.loader import load_sweep
from tuner.config.point import Point
from tuner.config.schema import SearchSpec
from tuner.core.errors import UserError
from tuner.engines import make_engine
from tuner.preflight.plan import make_plan
from tuner.runner.budget import Budget, Clock, Pace, refuse_past
from tuner.runner.sweep_run import begin_run, run_sweep
from tuner.runs.run import Run

LAUNCH_MIN = 10
EVENING = datetime.fromisoformat("2026-11-30T22:00:00+01:00")
GRID = "sampler: grid, stages: [confirm]"


@dataclass
class Night(Listener):
    """A clock on which every launch takes ten minutes; `jump` puts it on after a candidate."""

    jump: dict[int, float] = field(default_factory=dict)
    minutes: float = 0.0

    def __post_init__(self) -> None:
        super().__init__()

    @property
    def clock(self) -> Clock:
        return Clock(lambda: 60 * self.minutes, self.now)

    def now(self) -> datetime:
        return EVENING + timedelta(minutes=self.minutes)

    def phase(self, phase) -> None:
        super().phase(phase)
        if phase.doing == "launching":
            self.minutes += LAUNCH_MIN

    def recorded(self, record, standing) -> None:
        super().recorded(record, standing)
        self.minutes += self.jump.get(standing.done, 0.0) if record.role == "candidate" else 0.0

    @property
    def roles(self) -> list[str]:
        return [each.role for each in self.records]


def spent(folder: Path, search: str, night: Night) -> Run:
    loaded = tiny_sweep(folder, search=f"{GRID}, {search}", steps="1, 2, 3, 4, 5, 6", baselines=2)
    run = begin_run(folder / "runs", loaded, None)
    windows = known_windows(night.phases, tok_s=_tok_s)
    with patch("tuner.execution.launch.run_window", windows):
        run_sweep(loaded, run, make_engine(loaded.sweep), night, night.clock)
    return run


def _tok_s(point: Point | None) -> float:
    """What wins has settings of its own, however busy this machine is."""
    if point is None or point.num_steps is None:
        return 50.0
    return (80.0 if dict(point.env) else 60.0) - abs(point.num_steps - 2)


def test_candidates_leave_time_for_the_launches_that_close_a_run(tmp_path: Path) -> None:
    """At nine there is an answer that was measured twice, not one more candidate."""
    night = Night()
    spent(tmp_path, 'deadline: "23:15"', night)
    assert night.roles == [
        "baseline", "candidate", "candidate", "candidate", "baseline", "confirm", "plain"
    ]  # fmt: skip
    assert night.minutes == 7 * LAUNCH_MIN
    (note,) = (each for each in night.notes if "no new candidate is begun" in each)
    assert "leaves 35 min and what is to come takes about 40 min" in note


def test_where_time_runs_out_the_winner_s_own_launch_comes_first(tmp_path: Path) -> None:
    """A machine that was suspended, a launch that hung: the one launch that is left is his."""
    night = Night(jump={2: 32.0})
    spent(tmp_path, "time_budget: 75m", night)
    assert night.roles == ["baseline", "candidate", "candidate", "confirm"]
    assert night.now() <= datetime.fromisoformat("2026-11-30T23:15:00+01:00")
    said = "; ".join(night.notes)
    assert "the baseline is not launched again" in said
    assert "settings are not launched without speculation" in said


def test_nothing_is_begun_that_would_end_after_the_deadline(tmp_path: Path) -> None:
    """The machine is somebody else's at nine."""
    night = Night(jump={2: 40.0})
    run = spent(tmp_path, 'deadline: "23:15"', night)
    assert night.roles == ["baseline", "candidate", "candidate"]
    assert "the winner has no launch of its own" in "; ".join(night.notes)
    # Another call may have another end; what it takes is known from the ledger.
    pace = Pace(run.sweep())
    pace.know(run.ledger())
    assert 0 < pace.expected() < pace.expected(2) < pace.expected(3)
    assert pace.expected(2) == pytest.approx(pace.expected(held_out=True))


def test_a_budget_without_an_end_refuses_nothing(tmp_path: Path) -> None:
    budget = Budget(SearchSpec(), tmp_path / "stop")
    assert (budget.why_not(1e9), budget.left_s, budget.ends) == (None, None, None)
    (tmp_path / "stop").touch()
    assert budget.why_not() == "somebody asked this run to stop"


def test_the_nearer_end_counts() -> None:
    """Both may be given: a share of a machine, and the hour at which it goes back."""
    night = Night()
    budget = Budget(SearchSpec(time_budget=3600.0, deadline="22:30"), clock=night.clock)
    assert budget.left_s == 1800
    assert "the deadline 2026-11-30 22:30 +0100 leaves 30 min" in str(budget.why_not(1900))
    night.minutes = 31
    assert budget.why_not() == "the deadline 2026-11-30 22:30 +0100 has come"


@pytest.mark.parametrize(
    ("text", "now", "moment"),
    [
        ("07:30", "2026-11-30T22:00+01:00", "2026-12-01T07:30+01:00"),
        ("7:30", "2026-11-30T07:29+01:00", "2026-11-30T07:30+01:00"),
        ("07:30", "2026-11-30T07:30+01:00", "2026-12-01T07:30+01:00"),
        ("2026-12-01T07:30Z", "2026-11-30T22:00+01:00", "2026-12-01T08:30+01:00"),
        ("2026-12-01 07:30:00+01:00", "2026-11-30T22:00+01:00", "2026-12-01T07:30+01:00"),
    ],
)
def test_a_time_of_day_is_the_next_one(text: str, now: str, moment: str) -> None:
    """07:30 of a call in the evening is tomorrow's."""
    assert when(text, datetime.fromisoformat(now)) == datetime.fromisoformat(moment)


def test_a_time_of_day_is_on_the_wall_also_in_the_night_of_the_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Summer time ends in that night, and 07:30 is ten hours and a half after 22:00."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        now = datetime.fromisoformat("2026-10-24T22:00").astimezone()
        assert when("07:30", now).isoformat() == "2026-10-25T07:30:00+01:00"
        assert when("07:30", now) - now == timedelta(hours=10.5)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "24:00", "07:60", "2026-12-01T07:30", "2026-12-01"]
)
def test_what_is_no_deadline_is_refused_with_what_is(text: str) -> None:
    assert 'write "07:30"' in str(refused(text))


def test_a_deadline_that_is_over_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    """A run of nothing would be found in the morning; with --deadline its sweep file may stay."""
    with pytest.raises(UserError, match="is over"):
        refuse_past(SearchSpec(deadline="2026-11-30T21:00+01:00"), EVENING)
    refuse_past(SearchSpec(deadline="21:00"), EVENING)
    file = tiny_sweep(tmp_path, search='trials: 1, deadline: "2020-01-01T07:30+01:00"').path

    def sweep(*words: str) -> Result:
        out = str(tmp_path / "out")
        return CliRunner().invoke(specbench, ["sweep", str(file), "--out", out, *words])

    done = sweep()
    assert "search.deadline 2020-01-01T07:30+01:00 is over" in str(done.exception)
    assert any("07:30+01:00 is over" in note for note in make_plan(load_sweep(file)).notes)
    assert not (tmp_path / "out").exists()
    assert "'soon' is no time" in sweep("--deadline", "soon").output
    later = (datetime.now().astimezone() + timedelta(days=1)).isoformat()
    done = sweep("--deadline", later)
    assert done.exit_code == 0, done.output
    assert "nothing is begun that is not expected to end before" in done.output
