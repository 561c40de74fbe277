"""What a run decides with several servers at a time, on a clock and with figures that are known."""

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.execution.played_slots import (
    LAUNCH_MIN,
    PlayedEngine,
    PlayedSlots,
    PlayedTime,
    load_played_sweep,
)
from tests.sweeps import Listener
from tuner import load_run
from tuner.analysis.baselines import settle
from tuner.analysis.summary import summarise_run
from tuner.analysis.winner import fastest_candidate
from tuner.cli.runs import read_status
from tuner.config.loader import LoadedSweep
from tuner.execution.progress import Phase
from tuner.report.report import write_report
from tuner.runner.context import Races
from tuner.runner.sweep_run import begin_run, measure_all, reopen_run
from tuner.runs.run import Run


class Interrupting(Listener):
    """Ctrl-C when so many candidates are in the ledger, and states as they are written."""

    def __init__(self, run: Run, after: int | None = None, *, looks: bool = False) -> None:
        super().__init__()
        self.run, self.after, self.looks = run, after, looks
        self.states: list[tuple[Phase, dict]] = []

    def phase(self, phase: Phase) -> None:
        super().phase(phase)
        if self.looks:
            self.states.append((phase, read_status(self.run)))

    def recorded(self, record, standing) -> None:
        super().recorded(record, standing)
        if standing.done == self.after:
            raise KeyboardInterrupt


@dataclass
class Played:
    """A run in slots, as often as it is called."""

    loaded: LoadedSweep
    run: Run
    time: PlayedTime = field(default_factory=PlayedTime)
    places: list[PlayedSlots] = field(default_factory=list)

    @classmethod
    def begin(cls, loaded: LoadedSweep) -> "Played":
        return cls(loaded, begin_run(loaded.path.parent / "runs", loaded, None))

    def go(
        self,
        slots: int,
        after: int | None = None,
        lose: tuple[int, ...] = (),
        listener: Interrupting | None = None,
    ) -> Interrupting:
        listener = listener or Interrupting(self.run, after, looks=bool(lose))
        sweep = self.loaded.sweep
        engine = PlayedEngine(sweep.engine, sweep.timeouts)

        def placed(rig, report) -> PlayedSlots:
            self.places.append(PlayedSlots(rig, report, slots, self.time, set(lose)))
            return self.places[-1]

        with self.run.locked():
            try:
                measure_all(self.loaded, self.run, engine, listener, self.time.clock, placed)
            except KeyboardInterrupt:
                assert after is not None
        return listener

    def roles(self) -> list[str]:
        return [each.role for each in self.run.records()]

    def resumed(self, more: int = 0) -> "Played":
        run = reopen_run(self.run.path, self.loaded, None)
        run.extend_to(run.settings.wanted + more)
        return Played(self.loaded, run, self.time)


def test_slots_are_busy_as_long_as_candidates_are_wanted(tmp_path: Path) -> None:
    """Otherwise several slots take no less time; and what decides is alone."""
    played = Played.begin(load_played_sweep(tmp_path, "sampler: grid, stages: []", baselines=3))
    played.go(2)
    assert played.roles() == [
        *("baseline", "abreast", "abreast"), *["candidate"] * 9, "baseline",
        *["candidate"] * 7, "baseline", "plain",
    ]  # fmt: skip
    assert played.places[0].busy == [1, 2, 1, *[2] * 8, 1, 1, *[2] * 6, 1, 1, 1]
    assert played.time.minutes == (1 + 1 + 5 + 1 + 4 + 1 + 1) * LAUNCH_MIN
    for each in played.run.records():
        assert each.place is not None
        assert each.place.alone == (each.role in ("baseline", "plain"))


def test_a_winner_s_launch_alone_bears_out_what_was_measured_beside_others(tmp_path: Path) -> None:
    """Or the report takes what neighbours do to a server for noise that is too large."""
    played = Played.begin(load_played_sweep(tmp_path, "trials: 6"))
    played.go(2)
    assert "confirm" in played.roles()
    settled = settle(played.run)
    best, _ = fastest_candidate(settled.ledger, played.loaded.sweep.search.objective)
    assert best is not None and best.place is not None and not best.place.alone
    alone = settled.ledger.confirmation(best)
    assert alone is not None
    both = settled.ratio(best, alone, 1, "output_tok_s")
    assert both is not None and both.value == pytest.approx(1, rel=0.005)
    kinds = load_run(played.run.path).kinds.set_index("trial")["decode_speedup"]
    assert kinds[best.trial] == pytest.approx(kinds[alone.trial], rel=0.02)
    (kind,) = summarise_run(played.run).by_kind[1]
    assert kind.speedup.value == pytest.approx(kinds[alone.trial], rel=0.02)


@pytest.mark.parametrize("slots", [2, 3])
def test_a_run_of_slots_ends_by_its_deadline(tmp_path: Path, slots: int) -> None:
    """What runs side by side ends in time, and so do the winner's own launches."""
    search = 'sampler: grid, stages: [confirm], deadline: "23:35"'
    played = Played.begin(load_played_sweep(tmp_path, search, baselines=2))
    listener = played.go(slots)
    assert played.time.minutes <= 95
    candidates = (95 - 5 * LAUNCH_MIN) // LAUNCH_MIN * slots  # besides what runs alone
    assert played.roles().count("candidate") == candidates
    assert played.roles()[-3:] == ["baseline", "confirm", "plain"]
    assert sum("no new candidate is begun" in each for each in listener.notes) == 1


@pytest.mark.parametrize(("minutes", "slots"), [(121, 1), (131, 1), (91, 2), (101, 2)])
def test_a_baseline_in_the_middle_takes_no_time_from_the_closing_launches(
    tmp_path: Path, minutes: int, slots: int
) -> None:
    """It comes between what was reckoned and the candidate that it was reckoned for."""
    search = f"sampler: grid, stages: [confirm], time_budget: {minutes}m"
    played = Played.begin(load_played_sweep(tmp_path, search, baselines=3))
    played.go(slots)
    assert played.time.minutes <= minutes
    assert played.roles()[-3:] == ["baseline", "confirm", "plain"]


def test_chain_lengths_share_launches_in_slots(tmp_path: Path) -> None:
    """Each point is measured once, whole blocks at a time, and a run that is ended goes on so."""
    loaded = load_played_sweep(
        tmp_path, "trials: 16, stages: [anchors, model]", switch="true", repeats=2
    )
    played = Played.begin(loaded)
    played.go(2, after=4)
    assert played.roles().count("candidate") in (4, 8)
    first = played.run.records()
    again = played.resumed()
    again.go(3)
    records = again.run.records()
    assert records[: len(first)] == first
    candidates = again.run.ledger().candidates
    assert len({each.at for each in candidates}) == len(candidates) == 16
    assert {each.warm_steps for each in map(_Warm, candidates)} == {(1, 2, 3, 4)}
    assert len({each.launch_id for each in candidates}) == 4


@dataclass(frozen=True)
class _Warm:
    record: object

    @property
    def warm_steps(self) -> tuple[int, ...]:
        return tuple(self.record.warm_steps)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("cut", "slots"), [(0, 3), (1, 2), (2, 1), (3, 2)])
def test_lines_that_a_crash_cut_off_are_measured_again(
    tmp_path: Path, cut: int, slots: int
) -> None:
    """Of several launches in flight, whichever lines are lost, also in the middle of a block."""
    loaded = load_played_sweep(
        tmp_path, "trials: 16, stages: [anchors, model]", switch="true", repeats=2
    )
    played = Played.begin(loaded)
    played.go(2, after=8)
    lines = played.run.trials_file.read_bytes().splitlines(keepends=True)
    played.run.trials_file.write_bytes(b"".join(lines[: len(lines) - cut]) + b'{"trial": 1')
    again = played.resumed()
    again.go(slots)
    candidates = again.run.ledger().candidates
    assert len({each.at for each in candidates}) == len(candidates) == 16


def test_more_candidates_with_another_number_of_slots(tmp_path: Path) -> None:
    """What servers do to each other is another figure then, and is measured once for each."""
    played = Played.begin(load_played_sweep(tmp_path, "trials: 4, stages: [anchors, model]"))
    played.go(2)
    more = played.resumed(4)
    more.go(3)
    last = more.resumed(4)
    last.go(2)
    records = last.run.records()
    beside = [each.place.slots for each in records if each.role == "abreast" and each.place]
    assert beside == [2, 2, 3, 3, 3]
    candidates = last.run.ledger().candidates
    assert len({each.at for each in candidates}) == len(candidates) == 12
    for each in candidates:
        assert each.place is not None
        assert ("interference" in each.metrics["1"]) is not each.place.alone
    report = write_report(summarise_run(last.run)).read_text()
    assert "measured in 3 places at the same time" in report
    for place in ("slot 1 of 2", "slot 2 of 3"):
        assert re.search(rf"^\| {place} \| 0\.\d+ \(0\.\d+ to [\d.]+\)", report, re.M), place


def test_neighbours_are_not_measured_where_the_time_is_needed_for_candidates(
    tmp_path: Path,
) -> None:
    search = "sampler: grid, stages: [confirm], time_budget: 51m"
    played = Played.begin(load_played_sweep(tmp_path, search, baselines=2))
    listener = played.go(2)
    assert played.roles() == ["baseline", "candidate", "candidate", "baseline", "confirm"]
    assert played.time.minutes == 4 * LAUNCH_MIN
    assert any("what servers side by side do to each other" in each for each in listener.notes)


def test_a_half_measured_figure_of_neighbours_is_measured_again(tmp_path: Path) -> None:
    played = Played.begin(load_played_sweep(tmp_path, "trials: 2, stages: []"))
    played.go(3)
    lines = played.run.trials_file.read_bytes().splitlines(keepends=True)
    played.run.trials_file.write_bytes(b"".join(lines[:3]))
    again = played.resumed()
    again.go(2)
    names = [each.place.name for each in again.run.records() if each.role == "abreast"]
    assert sorted(names[2:]) == ["slot 0", "slot 1"]


def test_a_race_is_against_no_speculation_with_others_beside_it(tmp_path: Path) -> None:
    """Or a candidate that is a little faster, and slowed by others, is given up as slower."""
    played = Played.begin(load_played_sweep(tmp_path, "trials: 1, stages: []", repeats=3))
    played.go(2)
    lines = played.run.trials_file.read_bytes().splitlines(keepends=True)
    played.run.trials_file.write_bytes(b"".join(lines[:3]))
    run = reopen_run(played.run.path, played.loaded, None)
    race = Races(run, played.loaded.sweep, {}).next(None, None)
    assert race is not None and race.name == "no speculation with others beside it"
    assert race.rival


def test_the_status_shows_no_place_where_nothing_goes_on(tmp_path: Path) -> None:
    """A launch that was lost is tried again elsewhere: its first place says nothing more."""
    played = Played.begin(load_played_sweep(tmp_path, "trials: 6, stages: []"))
    listener = played.go(2, lose=(4, 6))
    assert [each.outcome for each in played.run.records()] == ["ok"] * 10
    retried = [c for each in played.run.records() for c in each.checks if c["check"] == "retried"]
    assert len(retried) == 2
    for phase, state in listener.states:
        shown = set(state["now"]["places"] or {})
        assert phase.place is not None
        if phase.doing == "over":
            assert phase.place not in shown
        elif phase.role in ("baseline", "plain"):
            assert shown == {phase.place}


def test_no_more_fail_in_a_row_than_may(tmp_path: Path) -> None:
    """After a first failure only as many run as may still fail."""
    played = Played.begin(load_played_sweep(tmp_path, "trials: 8, stages: [], max_failures: 3"))
    listener = played.go(2, lose=tuple(range(3, 40)))
    assert [each.failure for each in played.run.ledger().candidates] == ["LOST"] * 3
    assert any("3 trials in a row failed" in note for note in listener.notes)
    assert played.roles()[-1] == "candidate"


def test_what_is_in_flight_when_a_run_is_stopped_is_the_last(tmp_path: Path) -> None:
    """It is measured to its end, and nothing more is."""
    played = Played.begin(load_played_sweep(tmp_path, "trials: 8"))
    listener = Interrupting(played.run)
    look = listener.phase

    def looking(phase: Phase) -> None:
        look(phase)
        if phase.role == "candidate":
            played.run.stop_file.touch()

    listener.phase = looking  # type: ignore[method-assign]
    played.go(2, listener=listener)
    assert played.roles() == ["baseline", "abreast", "abreast", "candidate", "candidate"]
