"""Workers on one search in threads of this process: real searches, a real database, played servers
with figures that are known. A search of many candidates takes a second."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.execution.played_slots import PlayedEngine, PlayedSlots, PlayedTime
from tests.sweeps import Listener
from tuner.config.loader import LoadedSweep
from tuner.execution.executor import LaunchFuture
from tuner.runner.sweep_run import begin_run, measure_all, reopen_run
from tuner.runs.run import Run
from tuner.runs.settings import WorkerSettings
from tuner.workers.joining import join

LIMIT_S = 100
HEARTBEAT_S = 30
IDENTITY = {"the release": "0.5.17"}


class SlowSlots(PlayedSlots):
    """Launches that take a moment, in which other workers come to theirs."""

    def wait(self, futures: Sequence[LaunchFuture]) -> LaunchFuture:
        time.sleep(0.02)
        return super().wait(futures)


@dataclass
class PlayedWorker:
    """One worker, as often as it is called."""

    loaded: LoadedSweep
    run: Run
    url: str
    slots: int = 1
    time: PlayedTime = field(default_factory=PlayedTime)
    listener: Listener = field(default_factory=Listener)
    lose: set[int] = field(default_factory=set)
    """Launches that are lost."""
    error: BaseException | None = None

    @classmethod
    def begin(cls, loaded: LoadedSweep, url: str, name: str, slots: int = 1) -> "PlayedWorker":
        who = WorkerSettings(study=loaded.sweep.name, name=name)
        run = begin_run(loaded.path.parent / name, loaded, None, worker=who)
        return cls(loaded, run, url, slots)

    def again(self) -> "PlayedWorker":
        """The same worker, resumed."""
        run = reopen_run(self.run.path, self.loaded, None)
        return PlayedWorker(self.loaded, run, self.url, self.slots, self.time)

    def go(self) -> None:
        """Search until nothing is left; what is raised is kept."""
        sweep, who = self.loaded.sweep, self.run.settings.worker
        assert who is not None
        engine = PlayedEngine(sweep.engine, sweep.timeouts)
        fleet = join(self.url, who.study, IDENTITY, who.name, self.loaded.space, HEARTBEAT_S)
        try:
            with self.run.locked():
                measure_all(
                    self.loaded, self.run, engine, self.listener, self.time.clock,
                    lambda rig, report: SlowSlots(rig, report, self.slots, self.time, self.lose),
                    fleet,
                )  # fmt: skip
        except BaseException as error:
            self.error = error

    @property
    def points(self) -> list[str]:
        return [each.at.key for each in self.run.ledger().candidates if each.at]

    @property
    def roles(self) -> Counter[str]:
        return Counter(each.role for each in self.run.records())


def together(*workers: PlayedWorker) -> None:
    """Let them search at the same time, to the end."""
    in_threads(*[each.go for each in workers])
    for each in workers:
        if each.error is not None:
            raise each.error


def in_threads(*acts: Callable[[], None]) -> None:
    threads = [threading.Thread(target=act, daemon=True) for act in acts]
    for each in threads:
        each.start()
    end = time.monotonic() + LIMIT_S
    for each in threads:
        each.join(max(0.0, end - time.monotonic()))
        assert not each.is_alive(), "a worker hangs"


def shared_file(folder: Path) -> str:
    return f"sqlite:///{folder / 'shared.db'}"
