"""What several workers measure together, with searches and databases that are real and servers that
are played: as many candidates as were asked for, each once, and nothing that is found is lost."""

import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from tests.execution.played_slots import load_played_sweep
from tests.sweeps import Listener
from tests.workers.played import HEARTBEAT_S, IDENTITY, PlayedWorker, shared_file, together
from tuner.analysis.summary import summarise_run
from tuner.analysis.winner import fastest_candidate
from tuner.cli.result import _answer as show_answer
from tuner.cli.runs import _lines, read_status
from tuner.config.loader import LoadedSweep, with_trials
from tuner.config.point import Point
from tuner.report.answer import answer
from tuner.report.report import write_report
from tuner.runs.settings import FleetLine, OtherWorker, read_fleet
from tuner.search.observation import Observation
from tuner.workers import worker as joint
from tuner.workers.joining import join
from tuner.workers.shared_study import SharedStudy
from tuner.workers.worker import Worker

FOUND = Observation("ok", 1.25)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for others looks again at once."""
    monkeypatch.setattr(joint, "RETRY_S", 0.05)


def another(loaded: LoadedSweep, url: str, name: str = "other") -> SharedStudy:
    """A worker that does only what a test says."""
    return join(url, loaded.sweep.name, IDENTITY, name, loaded.space, HEARTBEAT_S)


def points_of(workers: Collection[PlayedWorker]) -> Counter[str]:
    return Counter(point for each in workers for point in each.points)


def best_of(worker: PlayedWorker) -> Point | None:
    best, _ = fastest_candidate(worker.run.ledger(), worker.loaded.sweep.search.objective)
    return None if best is None else best.at


@pytest.mark.parametrize(
    ("search", "switch", "slots", "count"),
    [
        ("trials: 9", "false", 1, 3),
        ("sampler: grid, stages: []", "false", 2, 3),
        ("sampler: grid, stages: []", "true", 2, 2),
        ("sampler: nsga2, trials: 9, stages: []", "false", 1, 2),
    ],
)
def test_each_point_once_and_as_many_as_one_worker_would(
    tmp_path: Path, search: str, switch: str, slots: int, count: int
) -> None:
    """And of all points the same winner as of one worker, launched alone by one of them."""
    loaded = load_played_sweep(tmp_path, search, switch=switch)
    url = shared_file(tmp_path)
    workers = [PlayedWorker.begin(loaded, url, name, slots) for name in "abc"[:count]]
    together(*workers)
    measured = points_of(workers)
    grid = "grid" in search
    assert set(measured.values()) == {1}
    assert len(measured) == (len(loaded.space.points) if grid else 9)
    closed = sum((each.roles for each in workers), Counter[str]())
    # Each that launches anything needs its own; on a busy machine one may come after the end.
    assert closed["baseline"] == sum(bool(each.roles) for each in workers) and closed["plain"] == 1
    if grid:
        (tmp_path / "alone").mkdir()
        alone = PlayedWorker.begin(loaded, shared_file(tmp_path / "alone"), "alone", slots)
        together(alone)
        (winner,) = [each for each in workers if each.roles["plain"]]
        assert best_of(alone) is not None and best_of(winner) == best_of(alone)


def test_a_search_that_others_fill_up_meanwhile_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several points in flight the worker asked for one more in vain, without an end."""
    loaded = load_played_sweep(tmp_path, "sampler: random, stages: [], trials: 8", switch="true")
    url = shared_file(tmp_path)
    other, claim = another(loaded, url), SharedStudy.claim
    taken: list[Point] = []

    def claim_late(fleet: SharedStudy, point: Point, most: int) -> bool:
        """The others come first, once this worker has a block in flight."""
        if fleet is not other and len(fleet._claims) == 4 and not taken:
            rest = [each for each in loaded.space.points if each not in fleet._claims]
            taken.extend(each for each in rest[:4] if claim(other, each, most))
        return claim(fleet, point, most)

    class Telling(Listener):
        def recorded(self, record, standing) -> None:
            for point in taken:
                other.publish(point, FOUND)

    monkeypatch.setattr(SharedStudy, "claim", claim_late)
    worker = PlayedWorker.begin(loaded, url, "one", slots=2)
    worker.listener = Telling()
    together(worker)
    assert len(taken) == 4 == len(worker.points)


def test_what_a_shared_launch_did_not_measure_is_free_for_others(tmp_path: Path) -> None:
    """Else nobody else can have these points while this worker lives, and fewer are measured."""
    loaded = load_played_sweep(tmp_path, "sampler: random, stages: [], trials: 6", switch="true")
    url = shared_file(tmp_path)
    other, free = another(loaded, url), list[bool]()

    class Looking(Listener):
        def recorded(self, record, standing) -> None:
            super().recorded(record, standing)
            if record.role == "candidate" and not free:
                left = [each for each in loaded.space.points if each.family == record.at.family]
                left.remove(record.at)
                free.append(other.look().live.keys().isdisjoint(left))

    worker = PlayedWorker.begin(loaded, url, "one")
    worker.listener = Looking()
    worker.lose = {1, 2}
    together(worker)
    assert free == [True]
    assert len(worker.points) == len(set(worker.points)) == 6


def test_a_point_that_two_have_measured_counts_once(tmp_path: Path) -> None:
    """After an outage both have it; as two it would take a candidate from the search."""
    loaded = load_played_sweep(tmp_path, "sampler: random, stages: [], trials: 6")
    url = shared_file(tmp_path)
    other, told = another(loaded, url), list[Point]()

    class Late(Listener):
        def recorded(self, record, standing) -> None:
            if record.role == "candidate" and not told:
                told.append(record.at)
                other.publish(record.at, FOUND)

    worker = PlayedWorker.begin(loaded, url, "one")
    worker.listener = Late()
    together(worker)
    assert told and len(set(worker.points)) == 6


def test_what_was_told_without_an_answer_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others count a worker's candidates by what it told: twice told is one too many."""
    loaded = load_played_sweep(tmp_path, "sampler: random, stages: [], trials: 3")
    url = shared_file(tmp_path)
    publish, lost = SharedStudy.publish, list[Point]()

    def publish_and_lose(fleet: SharedStudy, point: Point, verdict: Observation) -> None:
        publish(fleet, point, verdict)
        if point not in lost:
            lost.append(point)
            raise joint.StorageUnusable("the connection was lost")

    monkeypatch.setattr(SharedStudy, "publish", publish_and_lose)
    worker = PlayedWorker.begin(loaded, url, "one")
    together(worker)
    told = [each.point for each in another(loaded, url).look().told]
    assert len(lost) == 3 and sorted(map(repr, told)) == sorted(map(repr, lost))


def test_a_resumed_worker_that_finds_no_database_at_first_tells_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_played_sweep(tmp_path, "sampler: random, stages: [], trials: 3")
    url = shared_file(tmp_path)
    worker = PlayedWorker.begin(loaded, url, "one")
    together(worker)
    look, away = SharedStudy.look, [True]

    def first_in_vain(fleet: SharedStudy) -> object:
        if away:
            away.pop()
            raise joint.StorageUnusable("it is away")
        return look(fleet)

    monkeypatch.setattr(SharedStudy, "look", first_in_vain)
    again = worker.again()
    together(again)
    assert not away and len(another(loaded, url).look().told) == len(again.points) == 3


def test_what_was_measured_as_ctrl_c_came_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the ledger; without a word of it another worker measures it again."""
    loaded = load_played_sweep(tmp_path, "sampler: random, stages: [], trials: 3")
    url = shared_file(tmp_path)
    publish, struck = Worker.publish, list[bool]()

    def interrupted(self: Worker, *words: Any) -> None:
        if not struck:
            struck.append(True)
            raise KeyboardInterrupt
        publish(self, *words)

    monkeypatch.setattr(Worker, "publish", interrupted)
    worker = PlayedWorker.begin(loaded, url, "one")
    worker.go()
    assert isinstance(worker.error, KeyboardInterrupt) and len(worker.points) == 1
    seen = another(loaded, url).look()
    assert [each.point.key for each in seen.told] == worker.points and not seen.live


def taking_part(loaded: LoadedSweep, url: str, *names: str) -> list[Worker]:
    """Workers that only look and tell."""
    found = []
    for name in names:
        worker = PlayedWorker.begin(loaded, url, name)
        line = FleetLine(study=loaded.sweep.name, worker=name)
        found.append(Worker(another(loaded, url, name), worker.run, line, print, print))
    return found


@pytest.mark.parametrize(("one", "other"), [(1.5, 1.4), (1.4, 1.5), (1.5, 1.5), (1.5, 0.9)])
def test_one_worker_has_the_winner(tmp_path: Path, one: float, other: float) -> None:
    """Exactly one launches it once more: not both, also of equals, and not none of them, as where
    each goes by its own ledger, whose figures a later baseline has moved."""
    loaded = load_played_sweep(tmp_path, "trials: 4")
    workers = taking_part(loaded, shared_file(tmp_path), "one", "other")
    for worker, value, point in zip(workers, (one, other), loaded.space.points, strict=False):
        worker.publish({point: Observation("ok", value)})
    for worker in workers:
        worker.look()
    elsewhere = [each.fastest_elsewhere() for each in workers]
    assert elsewhere.count(None) == 1
    assert elsewhere[int(other > one)] is None
    assert "1.500 times its own baseline, of worker" in (elsewhere[0] or elsewhere[1] or "")


def test_what_breaks_a_limit_is_nobody_s_best(tmp_path: Path) -> None:
    loaded = load_played_sweep(tmp_path, "trials: 4")
    one, other = taking_part(loaded, shared_file(tmp_path), "one", "other")
    fast, slow = loaded.space.points[:2]
    other.publish({fast: Observation("ok", 1.9, excess=0.1), slow: Observation("ok", 1.2)})
    one.look()
    assert "1.200 times" in (one.fastest_elsewhere() or "")
    line = read_fleet(one.run.fleet_file)
    assert line is not None and line.others == [
        OtherWorker(name="other", candidates=2, best=slow.label(), best_value=1.2)
    ]


def test_a_database_that_is_only_read_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is full, or a copy took over: a line each two seconds for a night hides the rest."""
    monkeypatch.setattr(joint, "RETRY_S", 0.01)
    loaded = load_played_sweep(tmp_path, "sampler: random, stages: [], trials: 4")
    url = shared_file(tmp_path)
    real, tries = SharedStudy.claim, list[Point]()

    def refused(fleet: SharedStudy, point: Point, most: int) -> bool:
        tries.append(point)
        if 2 < len(tries) < 20:
            raise joint.StorageUnusable("attempt to write a readonly database")
        return real(fleet, point, most)

    monkeypatch.setattr(SharedStudy, "claim", refused)
    waits: list[float] = []
    worker = PlayedWorker.begin(loaded, url, "one")
    monkeypatch.setattr(joint.Worker, "may_change", counting(waits))
    together(worker)
    assert len(worker.points) == 4
    said = [each for each in worker.listener.notes if "shared study can" in each]
    assert [" be reached again" in each for each in said] == [False, True]
    assert len(waits) >= 17  # it waits between two tries


def counting(calls: list[float]) -> Any:
    real = joint.Worker.may_change

    def may_change(self: Worker, wanted: int) -> bool:
        calls.append(time.monotonic())
        return real(self, wanted)

    return may_change


def test_a_worker_to_which_nothing_is_left_has_not_failed(tmp_path: Path) -> None:
    """A fleet's script takes exit code 1 for a broken host; and its report must not say that there
    is no answer, or, of one with slow candidates, that no speculation is fastest."""
    loaded = load_played_sweep(tmp_path, "sampler: random, stages: [], trials: 4")
    url = shared_file(tmp_path)
    late, slow = PlayedWorker.begin(loaded, url, "late"), PlayedWorker.begin(loaded, url, "slow")
    other = another(loaded, url)
    for point in loaded.space.points[:3]:
        other.publish(point, Observation("ok", 3.25))
    together(slow)
    together(late)
    assert (len(slow.points), len(late.points)) == (1, 0)
    found = summarise_run(late.run)
    assert found.exit_code == 0 and "other workers came first" in found.verdict
    for run in (late.run, slow.run):
        first = answer(summarise_run(run))
        assert "another worker has a faster candidate, 3.250 times its own baseline" in first[1]
        assert "another worker has a faster" in show_answer(summarise_run(run))
    assert "No candidate was measured here" in answer(summarise_run(late.run))[0]


def test_a_worker_that_comes_after_the_end_launches_nothing(tmp_path: Path) -> None:
    """A baseline of ten minutes that nothing is compared with; and a fleet's script goes on."""
    loaded = load_played_sweep(tmp_path, "sampler: random, trials: 4")
    url = shared_file(tmp_path)
    together(*[PlayedWorker.begin(loaded, url, name) for name in "ab"])
    late = PlayedWorker.begin(loaded, url, "late")
    together(late)
    assert late.run.records() == () and not late.run.log_files()
    (note,) = late.listener.notes
    assert note.startswith("the search has ended: other workers have measured what there was")
    found = summarise_run(late.run)
    assert found.exit_code == 0 and found.worker is not None and found.worker.elsewhere == 4
    text = write_report(summarise_run(late.run)).read_text()
    assert "**No candidate was measured here.** Other workers came first" in text
    assert "another worker has a faster candidate" in text
    assert read_status(late.run)["is_due"] is False
    # More candidates are wanted of this one: its search has not ended.
    more = PlayedWorker.begin(with_trials(loaded, 5), url, "more")
    together(more)
    assert len(more.points) == 1


def test_what_is_told_after_the_end_opens_a_search_again(tmp_path: Path) -> None:
    """Its model saw that nothing is worth a launch, by what was known then and was wanted then."""
    loaded = load_played_sweep(tmp_path, "trials: 60")
    url = shared_file(tmp_path)
    one, other = another(loaded, url, "one"), another(loaded, url)
    first, second, third = loaded.space.points[:3]
    one.publish(first, FOUND)
    assert not other.is_concluded(60)
    one.conclude(60)
    assert other.is_concluded(60) and not other.is_concluded(61)
    assert one.claim(second, 60) and not other.is_concluded(60)
    one.publish(second, FOUND)
    assert not other.is_concluded(60)
    one.conclude(60)
    other.publish(third, FOUND)
    assert not one.is_concluded(60)


def test_a_search_that_was_stopped_has_not_ended(tmp_path: Path) -> None:
    """Nor where a worker was given too little time: whoever comes later goes on with it."""
    loaded = load_played_sweep(tmp_path, "sampler: random, stages: [], trials: 4")
    url = shared_file(tmp_path)
    one, late = (PlayedWorker.begin(loaded, url, name) for name in ("one", "late"))

    class Stopping(Listener):
        def recorded(self, record, standing) -> None:
            one.run.stop_file.touch()

    one.listener = Stopping()
    together(one)
    together(late)
    assert (len(one.points), len(late.points)) == (0, 4)


def test_a_broken_host_ends_itself_and_takes_nothing_from_the_others(tmp_path: Path) -> None:
    """A driver that is gone there says nothing of the points: they are measured elsewhere."""
    loaded = load_played_sweep(tmp_path, "sampler: random, stages: [], trials: 6")
    url = shared_file(tmp_path)
    broken, well = (PlayedWorker.begin(loaded, url, name) for name in ("broken", "well"))
    broken.lose = set(range(1, 100))
    together(broken)
    assert [each.outcome for each in broken.run.ledger().candidates] == ["failed"] * 3
    assert "3 trials in a row failed, the run stops" in broken.listener.notes
    assert summarise_run(broken.run).exit_code == 1
    seen = another(loaded, url).look()
    assert not seen.told and not seen.live
    together(well)
    assert len(well.points) == 6 and set(broken.points) <= {e.key for e in loaded.space.points}
    assert {each.outcome for each in well.run.ledger().candidates} == {"ok"}
    # Mended, it still tells nothing of them, and nothing is left to it.
    again = broken.again()
    together(again)
    assert len(again.points) == 3
    assert {each.worker for each in another(loaded, url).look().told} == {"well"}


def test_two_hosts_beside_a_broken_one_measure_all(tmp_path: Path) -> None:
    loaded = load_played_sweep(tmp_path, "sampler: random, stages: [], trials: 6")
    url = shared_file(tmp_path)
    workers = [PlayedWorker.begin(loaded, url, name) for name in ("broken", "one", "other")]
    workers[0].lose = set(range(1, 100))
    together(*workers)
    measured = points_of(workers[1:])
    assert set(measured.values()) == {1} and len(measured) == 6


def test_a_point_that_fails_by_itself_is_told_and_not_tried_again(tmp_path: Path) -> None:
    """Only failures in a row are a host's, or end a run; also where nothing comes after one."""
    loaded = load_played_sweep(tmp_path, "sampler: random, stages: [], trials: 7")
    url = shared_file(tmp_path)
    one, other = (PlayedWorker.begin(loaded, url, name) for name in ("one", "other"))
    outcomes = ["failed", "failed", "ok", "failed", "failed", "ok", "failed"]
    launch = 1
    for outcome in outcomes:
        if outcome == "failed":
            one.lose |= {launch, launch + 1}
        launch += 2 if outcome == "failed" else 1
    together(one)
    assert [each.outcome for each in one.run.ledger().candidates] == outcomes
    told = another(loaded, url).look().told
    assert [each.observation.outcome for each in told] == outcomes
    together(other)
    assert other.points == []


def test_the_status_says_whom_a_worker_waits_for(tmp_path: Path) -> None:
    """Else a worker that waits for hours looks like one that hangs."""
    loaded = load_played_sweep(tmp_path, "sampler: random, stages: [], trials: 2")
    url = shared_file(tmp_path)
    other, states = another(loaded, url), list[dict[str, Any]]()
    theirs = loaded.space.points[1]
    assert other.claim(theirs, 2)
    worker = PlayedWorker.begin(loaded, url, "one")

    class Looking(Listener):
        def step(self, message) -> None:
            states.append(read_status(worker.run))
            other.publish(theirs, FOUND)

    worker.listener = Looking()
    together(worker)
    (state,) = states
    words = f"waiting for other workers: other measures {theirs.label()}"
    assert state["now"]["doing"] == words
    assert state["worker"]["study"] == loaded.sweep.name
    assert "one of" in "\n".join(_lines(state)) or "only worker" in "\n".join(_lines(state))
