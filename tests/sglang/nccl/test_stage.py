"""The stage with SGLang's sweep and real processes: what it decides, and where it keeps out."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.factories import load_sweep_text
from tuner.config.loader import LoadedSweep
from tuner.config.point import Point
from tuner.core.errors import UserError
from tuner.engines import make_engine
from tuner.server.all_reduce import CommResults, Message, Setting, SettingResult, TimingOptions
from tuner.sglang.nccl.selection import (
    Screening,
    carriers,
    has_choice,
    own_tokens,
    read_screening,
    refusal,
    screen,
)

FAKE = Path(__file__).with_name("fake_child.py").resolve()
SWEEP = """
name: stage
engine: {kind: sglang, python: PYTHON, command: [COMMAND]}
model: {target: TARGET, draft: some/draft, algorithm: EAGLE3, tp: TP}
server: {flags: {FLAGS}}
baseline: {env: {BASELINE}}
space:
  num_steps: [1, 2]
  env: {SPACE}
  flags: {SPACE_FLAGS}
search: {SEARCH}
"""
NCCL = "NCCL_PROTO: [unset, LL, Simple]"
OFF = "disable-custom-all-reduce: [false, true]"


def measured(say: Callable[[str], None]) -> Callable[[LoadedSweep], CommResults]:
    """Measure with the engine of the sweep, and report progress to `say`."""
    options = TimingOptions()
    return lambda part: make_engine(part.sweep).screen_communication(part, options, os.environ, say)


def loaded(folder: Path, space: str = NCCL, **values: str) -> LoadedSweep:
    target, python = folder / "target", folder / "python"
    target.mkdir(exist_ok=True)
    (target / "config.json").write_text(json.dumps({"hidden_size": 64, "torch_dtype": "bfloat16"}))
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    python.chmod(0o755)
    words = {"COMMAND": "", "TP": "2", "SPACE_FLAGS": "", "FLAGS": "", "BASELINE": "", "SEARCH": ""}
    text = SWEEP.replace("{SPACE}", f"{{{space}}}")
    return load_sweep_text(folder, text, PYTHON=python, TARGET=target, **{**words, **values})


def left(sweep: LoadedSweep, found: Screening) -> set[Point]:
    space = sweep.space
    return set(found.narrowing(sweep.sweep, space).of(space).points)


def test_processes_decide_and_the_file_decides_the_same(tmp_path: Path) -> None:
    sweep, said = loaded(tmp_path), list[str]()
    found = screen(sweep, "NCCL", os.environ, measured(said.append))
    assert said[0] == "round 1 of 4: 3 settings"
    points = left(sweep, found)
    assert {point.env for point in points} == {(("NCCL_PROTO", "LL"),)}
    assert len(points) == 2

    path = tmp_path / "comm.json"
    path.write_text(json.dumps(found.to_json()))
    again = read_screening(path)
    assert again is not None
    assert left(sweep, again) == points
    path.write_text("{}")
    with pytest.raises(UserError, match="restore it or begin a new run"):
        read_screening(path)


def test_own_kernels_come_first(tmp_path: Path) -> None:
    """Points with custom all-reduce need one NCCL setting, those without are timed."""
    sweep = loaded(tmp_path, SPACE_FLAGS=OFF)
    found = screen(sweep, "custom all-reduce", os.environ, measured(lambda _: None))
    assert found.results is not None
    assert {(each.env, each.flags) for each in left(sweep, found)} == {
        ((), ()),
        ((("NCCL_PROTO", "LL"),), (("disable-custom-all-reduce", True),)),
    }
    own = loaded(tmp_path)
    found = screen(
        own, "custom all-reduce", os.environ, measured(lambda _: pytest.fail("nothing to time"))
    )
    assert "custom all-reduce carried" in (found.not_measured or "")
    assert {each.env for each in left(own, found)} == {()}


def test_what_may_change_the_back_end_is_not_taken_for_the_baselines(tmp_path: Path) -> None:
    sweep = loaded(tmp_path, f"{NCCL}, SGLANG_X: [unset, 1]", SPACE_FLAGS="enable-mscclpp: [true]")
    kinds = carriers(sweep.sweep, "custom all-reduce", own_tokens(sweep.sweep, os.environ))
    assert {kinds(point) for point in sweep.space.points} == {"another"}
    sweep = loaded(tmp_path, f"{NCCL}, SGLANG_X: [unset, 1]")
    most = own_tokens(sweep.sweep, os.environ)
    assert most == 8 * 2**20 // 128
    kinds = carriers(sweep.sweep, "custom all-reduce", most)
    told = {dict(point.env).get("SGLANG_X"): kinds(point) for point in sweep.space.points}
    assert told == {None: "own kernels", "1": "NCCL"}
    for unsure in (None, 2):  # too large for them, or of a size that is not known
        kinds = carriers(sweep.sweep, "custom all-reduce", unsure)
        assert kinds(Point(2, 1, 3, "target")) == "NCCL"


@pytest.mark.parametrize(
    ("space", "baseline", "says"),
    [
        ("NCCL_FAKE: [die, refuse]", "", "has no torch"),
        ("NCCL_FAKE: [unset, die]", "NCCL_FAKE: die", "the baseline ran with NCCL_FAKE=die"),
    ],
)
def test_a_benchmark_that_fails_takes_nothing_away(
    tmp_path: Path, space: str, baseline: str, says: str
) -> None:
    sweep = loaded(tmp_path, space, BASELINE=baseline)
    found = screen(sweep, None, os.environ, measured(lambda _: None))
    assert says in (found.not_measured or "")
    assert left(sweep, found) == set(sweep.space.points)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"COMMAND": "srun, -n1"}, "engine.command begins with srun"),
        ({"FLAGS": "nnodes: 2"}, "several machines"),
        ({"FLAGS": "device: cpu"}, "do not run on CUDA"),
        ({"FLAGS": "enable-dp-attention: true"}, "--enable-dp-attention"),
    ],
)
def test_where_it_cannot_stand_for_the_servers_it_is_left_out(
    tmp_path: Path, values: dict[str, str], says: str
) -> None:
    sweep = loaded(tmp_path, **values)
    why = make_engine(sweep.sweep).communication_refusal(sweep.sweep, os.environ)
    assert says in (why or "")
    measure = measured(lambda _: pytest.fail("nothing may start"))
    found = screen(sweep, None, os.environ, measure, why)
    assert found.results is None
    assert left(sweep, found) == set(sweep.space.points)
    assert refusal(loaded(tmp_path, COMMAND="numactl, --localalloc").sweep, os.environ) is None


def test_there_must_be_something_to_decide(tmp_path: Path) -> None:
    assert has_choice(loaded(tmp_path))
    assert has_choice(loaded(tmp_path, SEARCH="sampler: random, stages: [comm]"))
    assert not has_choice(loaded(tmp_path, TP="1"))
    assert not has_choice(loaded(tmp_path, "SGLANG_X: [unset, 1]"))
    for search in ("sampler: grid", "sampler: random", "stages: [anchors, model]"):
        assert not has_choice(loaded(tmp_path, SEARCH=search))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("settings", 0, "latencies", 0, "rounds"), [0.0, 1.0, 1.0, 1.0]),
        (("settings", 0, "latencies", 0, "rounds"), [float("nan")] * 4),
        (("settings", 0, "latencies", 0, "rounds"), [1.0]),
        (("settings", 0, "latencies", 0, "rounds"), []),
        (("settings", 0, "latencies"), []),
        (("messages",), []),
        (("own_tokens",), "many"),
        (("back_end",), 3),
        (("seconds",), "long"),
        (("not_measured",), []),
    ],
)
def test_figures_that_cannot_be_are_refused_in_a_sentence(
    tmp_path: Path, place: tuple[str | int, ...], value: object
) -> None:
    """A traceback hours into a run, or points left out for nothing, would be the other answers."""
    rounds = ((5.0, 5.1, 5.0, 5.2),) * 2
    sizes = Message(64, 128, 1, ("verify",)), Message(128, 256, 2, ("verify",))
    told = CommResults(sizes, (SettingResult(Setting(), rounds),), "NCCL", "GPU", 2)
    data = json.loads(json.dumps(Screening("NCCL", 8, told, seconds=1.5).to_json()))
    path = tmp_path / "comm.json"
    path.write_text(json.dumps(data))
    assert read_screening(path) is not None
    part = data
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    path.write_text(json.dumps(data))
    with pytest.raises(UserError, match="this is not what specbench"):
        read_screening(path)
