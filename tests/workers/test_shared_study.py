"""Workers on one study: each point is measured by one of them, whoever dies meanwhile."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from optuna.trial import FrozenTrial
from sqlalchemy.exc import DisconnectionError, OperationalError

from tests.databases import Postgres, missing_postgres, postgres, running_postgres
from tests.sweeps import tiny_sweep
from tuner.config.load_level import Rate
from tuner.config.space import Space
from tuner.search import optuna_storage
from tuner.search.observation import LevelFigures, Observation
from tuner.search.optuna_storage import StorageUnusable, database_reason, open_storage
from tuner.workers import joining
from tuner.workers.joining import GRACE, UnlikeWorkersError, join
from tuner.workers.shared_study import SharedStudy, observation_from, observation_json

IDENTITY = {"the release": "0.5.17", "the GPUs": ["H200"]}
FOUND = Observation("ok", 1.25, None, {1: LevelFigures(2.5, 2.0, (0.5, 0.25), 1.25)}, 0.0, 0.01)


server = pytest.fixture(scope="module")(running_postgres)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shared.db'}"
    return request.getfixturevalue("server").url


@pytest.fixture
def space(tmp_path: Path) -> Space:
    return tiny_sweep(tmp_path, steps="1, 2, 3, 4").space


Joined = Callable[[str], SharedStudy]


@pytest.fixture
def joined(url: str, space: Space, request: pytest.FixtureRequest) -> Iterator[Joined]:
    fleets: list[SharedStudy] = []

    def one(worker: str) -> SharedStudy:
        fleets.append(join(url, request.node.name, IDENTITY, worker, space, 1))
        return fleets[-1]

    yield one
    for each in fleets:
        each.close()


def test_a_point_is_claimed_by_one_of_many(joined: Joined, space: Space) -> None:
    """Two servers for one point are one launch too many."""
    fleets = [joined(name) for name in "abc"]
    won: list[tuple[str, int]] = []

    def claim_all(fleet: SharedStudy) -> None:
        for number, point in enumerate(space.points):
            if fleet.claim(point, 99):
                won.append((fleet.worker, number))

    threads = [threading.Thread(target=claim_all, args=(fleet,)) for fleet in fleets]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    numbers = [number for _, number in won]
    assert len(set(numbers)) == len(numbers)
    assert set(fleets[0].look().live) == {space.points[number] for number in numbers}


def test_workers_that_begin_together_make_the_tables_once(space: Space, tmp_path: Path) -> None:
    """A scheduler starts all hosts in the same second, on a new database."""
    if (why := missing_postgres()) is not None:
        pytest.skip(why)
    found: list[int] = []
    with postgres() as empty:

        def one(name: str) -> None:
            fleet = join(empty.url, "first", IDENTITY, name, space, 1)
            found.append(fleet.study._study_id)
            fleet.storage.remove_session()
            fleet.storage.engine.dispose()

        threads = [threading.Thread(target=one, args=(name,)) for name in "abcd"]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert len(found) == 4 and len(set(found)) == 1


def test_no_more_are_claimed_than_wanted(joined: Joined, space: Space) -> None:
    fleets = [joined(name) for name in "abc"]
    won: list[bool] = []

    def claim_some(fleet: SharedStudy, first: int) -> None:
        won.extend(fleet.claim(point, 2) for point in space.points[first::3])

    threads = [
        threading.Thread(target=claim_some, args=(fleet, n)) for n, fleet in enumerate(fleets)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sum(won) == len(fleets[0].look().live) <= 2


def test_what_one_found_the_others_are_told(joined: Joined, space: Space) -> None:
    one, other = joined("one"), joined("other")
    point, failing = space.points[:2]
    assert one.claim(point, 9) and one.claim(failing, 9)
    assert other.look().live == {point: "one", failing: "one"}
    one.publish(point, FOUND)
    one.publish(failing, Observation("failed", reason="CRASH: ended"))
    told = other.look().told
    assert [(each.worker, each.point, each.observation) for each in told] == [
        ("one", point, FOUND),
        ("one", failing, Observation("failed", reason="CRASH: ended")),
    ]
    assert not other.claim(point, 9) and not other.claim(failing, 9)


def test_a_dead_worker_s_point_is_free_again_and_a_live_one_s_is_not(
    joined: Joined, space: Space
) -> None:
    dead, alive, other = joined("dead"), joined("alive"), joined("other")
    assert dead.claim(space.points[0], 9) and alive.claim(space.points[1], 9)
    dead._over.set()  # as with SIGKILL: it says nothing any more, and gives nothing back
    end = time.monotonic() + 20 * GRACE
    while space.points[0] in other.look().live and time.monotonic() < end:
        time.sleep(0.2)
    assert other.look().live == {space.points[1]: "alive"}
    assert other.claim(space.points[0], 9)
    # It was not dead but slow: what it found is not lost, and not told twice to itself.
    dead.publish(space.points[0], FOUND)
    assert [each.observation for each in other.look().told] == [FOUND]
    other.publish(space.points[0], FOUND)
    assert {each.worker for each in other.look().told} == {"dead", "other"}


def test_a_worker_that_ends_gives_back_what_it_did_not_measure(
    joined: Joined, space: Space
) -> None:
    one, other = joined("one"), joined("other")
    assert one.claim(space.points[0], 9)
    one.close()
    assert other.look().live == {}
    assert other.claim(space.points[0], 9)


def test_another_question_is_refused(joined: Joined, url: str, space: Space, request) -> None:
    joined("one")
    with pytest.raises(UnlikeWorkersError, match=r"the GPUs .*H200.*, this one has .*A100"):
        join(url, request.node.name, {**IDENTITY, "the GPUs": ["A100"]}, "two", space, 1)


def test_a_study_of_somebody_else_is_left_alone(joined: Joined, url: str, space: Space) -> None:
    open_storage(url)
    import optuna

    optuna.create_study(storage=optuna_storage._with_driver(url), study_name="mine").ask()
    with pytest.raises(UnlikeWorkersError, match="no study of specbench workers"):
        join(url, "mine", IDENTITY, "one", space, 1)


def test_a_database_that_is_away_loses_nothing(
    joined: Joined, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = joined("one"), joined("other")
    assert one.claim(space.points[0], 9)
    with monkeypatch.context() as patch:

        def away(*_: object, **__: object) -> None:
            raise OperationalError("SELECT 1", {}, Exception("the server closed the connection"))

        patch.setattr(one.storage, "set_trial_user_attr", away)
        for name in ("get_trials", "add_trial"):
            patch.setattr(one.study, name, away)
        for act in (one.look, lambda: one.publish(space.points[0], FOUND)):
            with pytest.raises(StorageUnusable, match="closed the connection"):
                act()
        with pytest.raises(StorageUnusable):
            one.claim(space.points[1], 9)
    one.publish(space.points[0], FOUND)
    assert [each.observation for each in other.look().told] == [FOUND]


def test_a_verdict_travels_whole() -> None:
    verdict = Observation(
        "ok",
        1.5,
        "limits: x",
        {8: LevelFigures(1.0), Rate(2.5): LevelFigures(2.0, 3.0, (0.5,))},
        0.25,
    )
    assert observation_from(observation_json(verdict)) == verdict


def test_postgres_without_its_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optuna_storage, "find_spec", lambda _: None)
    with pytest.raises(StorageUnusable, match=r"pip install 'sglang-specbench\[postgres\]'"):
        open_storage("postgresql://somebody@somewhere/db")


def test_a_worker_that_is_resumed_at_once_has_its_own_point_back(
    joined: Joined, space: Space
) -> None:
    """After SIGKILL it would ask for its own point in vain until the dead call's claim is stale,
    and leave a row in the database each time."""
    killed, other = joined("one"), joined("other")
    assert killed.claim(space.points[0], 9) and other.claim(space.points[1], 9)
    killed._over.set()
    again = joined("one")
    assert again.look().live == {space.points[1]: "other"}
    assert again.claim(space.points[0], 9) and not again.claim(space.points[1], 9)
    assert again.look().live == {space.points[0]: "one", space.points[1]: "other"}


def test_a_verdict_whose_worker_died_while_telling_it_stands(
    joined: Joined, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = joined("one")
    assert killed.claim(space.points[0], 9)
    with monkeypatch.context() as patch:
        patch.setattr(killed.study, "tell", _lost)
        with pytest.raises(StorageUnusable):
            killed.publish(space.points[0], FOUND)
    killed._over.set()
    told = joined("one").look().told
    assert [each.observation for each in told] == [FOUND]


def test_a_claim_whose_answer_is_lost_is_no_claim(
    joined: Joined, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database goes away in the moment of a claim: it is written, and nobody knows."""
    one, other = joined("one"), joined("other")
    add = one.study.add_trial

    def add_and_lose(trial: FrozenTrial) -> None:
        add(trial)
        _lost()

    with monkeypatch.context() as patch:
        patch.setattr(one.study, "add_trial", add_and_lose)
        with pytest.raises(StorageUnusable):
            one.claim(space.points[0], 9)
    assert one.look().live == {}
    assert other.claim(space.points[0], 9) and not one.claim(space.points[0], 9)


def test_a_claim_of_a_worker_that_died_before_its_first_heartbeat_is_freed(
    joined: Joined, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the others wait for it for ever, and its point is never measured."""
    killed, other = joined("killed"), joined("other")
    with monkeypatch.context() as patch:
        patch.setattr(killed.storage, "record_heartbeat", _lost)
        with pytest.raises(StorageUnusable):
            killed.claim(space.points[0], 9)
    end = time.monotonic() + 20 * GRACE
    while other.look().live and time.monotonic() < end:
        time.sleep(0.2)
    assert other.claim(space.points[0], 9)


def _lost(*_: object, **__: object) -> int:
    raise OperationalError("SELECT 1", {}, Exception("the server closed the connection"))


def test_all_workers_of_a_study_beat_alike(url: str, space: Space, request) -> None:
    """To one that expects a beat each second, a living one that beats every 30 s is dead: its
    point would be measured twice, again and again."""
    name = request.node.name
    first = join(url, name, IDENTITY, "first", space, 7)
    with pytest.raises(UnlikeWorkersError, match=r"workers have --heartbeat 7, this one has 1$"):
        join(url, name, IDENTITY, "hasty", space, 1)
    other = join(url, name, IDENTITY, "other", space)
    assert other.heartbeat_s == first.heartbeat_s == other.storage.heartbeat_interval == 7
    assert other.storage.grace_period == first.storage.grace_period == 7 * GRACE


def test_a_specbench_that_tells_otherwise_is_refused(
    joined: Joined, url: str, space: Space, request, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a traceback in the middle of its search, at the first thing that it cannot read."""
    joined("one")
    monkeypatch.setattr(joining, "FORMAT", 2)
    with pytest.raises(UnlikeWorkersError, match="specbench's findings 1, this one has 2"):
        join(url, request.node.name, IDENTITY, "newer", space, 1)


def test_hosts_of_two_time_zones_agree_who_is_alive(
    url: str, space: Space, request, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL has each session's own zone: nine hours of it made every claim stale at once."""
    one = join(url, request.node.name, IDENTITY, "one", space, 7)
    assert one.claim(space.points[0], 9)
    monkeypatch.setenv("PGTZ", "Asia/Tokyo")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    east = join(url, request.node.name, IDENTITY, "east", space, 7)
    assert east.look().live == {space.points[0]: "one"}
    assert east.claim(space.points[1], 9)
    assert len(one.look().live) == 2
    one.close()
    east.close()


def test_a_database_whose_host_is_gone_is_given_up_in_a_while(request) -> None:
    """A call into the void would wait for hours, and the worker with it; what the URL says of that
    stands."""
    server: Postgres = request.getfixturevalue("server")
    given = f"{server.url}&tcp_user_timeout=7000"
    for url, limit in ((server.url, str(1000 * optuna_storage.SILENT_S)), (given, "7000")):
        storage = open_storage(url)
        connection = storage.engine.raw_connection()
        parameters = connection.driver_connection.info.get_parameters()
        assert parameters["tcp_user_timeout"] == limit and parameters["keepalives_idle"] == "10"
        connection.close()
        storage.engine.dispose()


def test_a_reason_is_in_words() -> None:
    """SQLAlchemy's own of a lost connection is "()"."""
    try:
        try:
            raise OSError("server closed the connection")
        except OSError as lost:
            raise DisconnectionError() from lost
    except DisconnectionError as error:
        assert database_reason(error) == "server closed the connection"
    assert database_reason(DisconnectionError()) == "DisconnectionError"
