"""Once a log says what is taken before the weights, a launch that leaves no room is not spent."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.sglang.memory.test_fits import loaded
from tuner.core.errors import EngineFailure, Failure
from tuner.engines import make_engine
from tuner.server.base import server_config
from tuner.server.memory import Guarded, guarded

LOG = """\
[2026-11-29 20:00:00 TP0] Load weight begin. avail mem=BEFORE GB
[2026-11-29 20:00:00 TP0] Load weight end. elapsed=1 s, type=A, avail mem=4.5 GB, mem usage=7.48 GB.
"""


@dataclass
class Recorded:
    """An engine whose launches write a log, and fail where told so."""

    before: float
    fails: bool = False
    name: str = "sglang"
    launched: list[Any] = field(default_factory=list)

    def launch(self, config: Any, log: Path, launch_id: int) -> Any:
        self.launched.append(config)
        log.write_text(LOG.replace("BEFORE", str(self.before)))
        if self.fails:
            raise EngineFailure(Failure.OOM, "out of memory")
        return "a server"


@pytest.mark.parametrize("fails", [False, True])
def test_the_first_log_sharpens_the_rule(tmp_path: Path, fails: bool) -> None:
    """12 GiB hold 9.6 of weights; with 3 taken before, they do not."""
    sweep = loaded(tmp_path)
    machine = make_engine(sweep.sweep).estimate_memory(sweep.sweep, 12.0)
    whole = next(each for each in sweep.space.points if each.draft_tp == 1)
    baseline, alone = (server_config(sweep.sweep, point) for point in (None, whole))
    engine = Recorded(before=9.0, fails=fails)
    guard = guarded(engine, machine)  # type: ignore[arg-type]
    assert isinstance(guard, Guarded)
    if fails:
        with pytest.raises(EngineFailure):
            guard.launch(alone, tmp_path / "0.log", 0)
    else:
        guard.launch(baseline, tmp_path / "0.log", 0)
    with pytest.raises(EngineFailure, match=r"not launched: .* 3\.0 of it taken before") as caught:
        guard.launch(alone, tmp_path / "1.log", 1)
    assert caught.value.label == Failure.OOM
    assert len(engine.launched) == 1


def test_a_roomy_machine_launches_everything(tmp_path: Path) -> None:
    sweep = loaded(tmp_path, "mem-fraction-static: 0.6")
    machine = make_engine(sweep.sweep).estimate_memory(sweep.sweep, 140.4)
    engine = Recorded(before=138.21)
    guard = guarded(engine, machine)  # type: ignore[arg-type]
    for number, point in enumerate((None, *sweep.space.points)):
        guard.launch(server_config(sweep.sweep, point), tmp_path / f"{number}.log", number)
    assert len(engine.launched) == 1 + len(sweep.space.points)


def test_memory_that_another_process_held_is_not_learned(tmp_path: Path) -> None:
    """It may be gone by the next launch."""
    sweep = loaded(tmp_path)
    machine = make_engine(sweep.sweep).estimate_memory(sweep.sweep, 16.0)
    engine = Recorded(before=9.0)
    guard = guarded(engine, machine)  # type: ignore[arg-type]
    for number, point in enumerate(sweep.space.points):
        guard.launch(server_config(sweep.sweep, point), tmp_path / f"{number}.log", number)
    assert len(engine.launched) == len(sweep.space.points)


def test_without_known_memory_the_engine_stays_as_it_is(tmp_path: Path) -> None:
    engine = make_engine(loaded(tmp_path).sweep)
    assert guarded(engine, None) is engine
