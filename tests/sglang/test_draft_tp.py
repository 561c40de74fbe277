"""The real engine and the plug-in that moves the draft."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.config.point import Point
from tuner.config.schema import EngineSpec, ModelSpec, TimeoutSpec
from tuner.core.errors import EngineFailure, Failure
from tuner.server.base import ServerConfig
from tuner.sglang import draft_tp
from tuner.sglang.engine import SglangEngine
from tuner.sglang.failure_diagnosis import cause_of_death
from tuner.sglang.releases import parse_version

MODEL = ModelSpec(target="t", draft="d", algorithm="EAGLE3", tp=2)
MOVED = Point(num_steps=3, eagle_topk=1, num_draft_tokens=4, draft_tp=1)
STOCK = Point(num_steps=3, eagle_topk=1, num_draft_tokens=4, draft_tp="target")
WHOLE = Point(num_steps=3, eagle_topk=1, num_draft_tokens=4, draft_tp=2)
LINE = "specbench: draft TP 1 of target TP 2, ranks [{}]\n"


def config(point: Point | None, **env: str) -> ServerConfig:
    return ServerConfig(MODEL, point, {}, env, frozenset())


def test_sglang_finds_the_plugin_by_python_path_alone() -> None:
    """SGLang's interpreter has no specbench; what it loads early must not need torch."""
    program = (
        "import sys; from importlib.metadata import entry_points as e; "
        "[found] = [p for p in e(group='sglang.srt.plugins') if p.name == 'specbench']; "
        "found.load()(); print(sorted({'torch', 'sglang', 'tuner', 'numpy'} & set(sys.modules)))"
    )
    environment = {"PYTHONPATH": str(draft_tp.CARRIER), "PATH": os.environ["PATH"]}
    told = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "[]\n"


def test_the_launch_shows_what_carries_the_plugin() -> None:
    """best.sh and the plan must be complete commands."""
    engine = SglangEngine(EngineSpec(kind="sglang", release="0.5.17"), TimeoutSpec())
    env = engine.command(config(MOVED, PYTHONPATH="/mine")).env
    assert env == {"SPECBENCH_DRAFT_TP": "1", "PYTHONPATH": f"{draft_tp.CARRIER}{os.pathsep}/mine"}
    for point in (None, STOCK, WHOLE):
        assert engine.command(config(point)).env == {}


def test_an_inherited_python_path_is_kept() -> None:
    """Some installations are found through it."""
    release = parse_version("0.5.23")
    carried = draft_tp.carried(config(MOVED), release, {"PYTHONPATH": "/theirs"})
    assert carried.env["PYTHONPATH"] == f"{draft_tp.CARRIER}{os.pathsep}/theirs"


def test_releases_without_plugins_get_a_sitecustomize() -> None:
    """0.5.8 to 0.5.10 look for no entry points."""
    assert draft_tp.python_path(parse_version("0.5.10"), None).split(os.pathsep) == [
        str(draft_tp.SITECUSTOMIZE),
        str(draft_tp.CARRIER),
    ]
    assert draft_tp.python_path(parse_version("0.5.11"), None) == str(draft_tp.CARRIER)


def test_the_sitecustomize_that_it_hides_is_run(tmp_path: Path) -> None:
    """Python imports one only; without it the user's environment would be another."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.theirs = True")
    folders = [str(draft_tp.SITECUSTOMIZE), str(draft_tp.CARRIER), str(tmp_path)]
    told = subprocess.run(
        [sys.executable, "-c", "import sys; print(sys.theirs, len(sys.meta_path))"],
        env={"PYTHONPATH": os.pathsep.join(folders), "SPECBENCH_DRAFT_TP": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.startswith("True") and not told.stderr


@pytest.mark.parametrize(
    ("point", "log", "proven"),
    [
        (MOVED, LINE.format(0) + "[2026-01-01 TP0] more\n" + LINE.format(1), True),
        (MOVED, LINE.format(0), False),
        (MOVED, "no sign of it", False),
        (MOVED, LINE.format("0, 1").replace("TP 1", "TP 2") * 2, False),
        (STOCK, "", True),
        (None, "", True),
    ],
)
def test_a_server_without_proof_is_not_measured(
    tmp_path: Path, point: Point | None, log: str, proven: bool
) -> None:
    """SGLang starts unpatched when a plug-in fails; its numbers would be booked as draft TP 1."""
    path = tmp_path / "server.log"
    path.write_text(log)
    if proven:
        draft_tp.require_proof(config(point), path)
        return
    with pytest.raises(EngineFailure) as caught:
        draft_tp.require_proof(config(point), path)
    assert caught.value.label is Failure.NOT_PATCHED


def test_an_unpatched_server_is_stopped(tmp_path: Path) -> None:
    """It holds the GPU's memory."""
    program = tmp_path / "python"
    words = f"{sys.executable} -m tuner.simulator --startup-scale 0"
    program.write_text(f'#!/bin/sh\nshift 2\nexec {words} "$@"\n')
    program.chmod(0o755)
    spec = EngineSpec(kind="sglang", python=str(program), release="0.5.17")
    engine = SglangEngine(spec, TimeoutSpec(launch=60.0, request=20.0))
    with pytest.raises(EngineFailure, match="0 of 2 schedulers") as caught:
        engine.launch(config(MOVED), tmp_path / "server.log", 0)
    assert caught.value.label is Failure.NOT_PATCHED


@pytest.mark.parametrize(
    ("line", "label"),
    [
        ("specbench_sglang.problems.Refused: specbench: draft TP refused: HiCache", "BAD_ARGS"),
        ("specbench: not patched: SGLang 0.6.0 is not known", "NOT_PATCHED"),
    ],
)
def test_the_plugin_says_why_a_server_does_not_start(line: str, label: str) -> None:
    """A refusal is the point's own; an unknown SGLang is nobody's."""
    found, message = cause_of_death(1, f"something\n{line}\n")
    assert found == label and message == line
