"""What the real engine refuses before it starts anything."""

import sys
from pathlib import Path

import pytest

from tuner.engine.base import server_config
from tuner.engine.make import make_engine
from tuner.errors import UserError
from tuner.sweep.model import EngineSpec, ModelSpec, ServerSpec, SpaceSpec, Sweep
from tuner.sweep.point import Point


def sweep(python: str, site: Path | None = None, draft_tp: list[int] | None = None) -> Sweep:
    return Sweep(
        name="s",
        engine=EngineSpec(kind="sglang", python=python),
        model=ModelSpec(target="t", draft="d", algorithm="EAGLE3", tp=2),
        server=ServerSpec(env={"PYTHONPATH": str(site)} if site else {}),
        space=SpaceSpec(num_steps=[1], draft_tp=draft_tp),
    )


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with something that can be found as sglang, and breaks when it is imported."""
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").write_text("raise RuntimeError('imported')")
    return tmp_path


def test_an_interpreter_with_sglang_is_accepted_without_importing_it(site: Path) -> None:
    """Importing SGLang takes half a minute and opens the GPU."""
    given = sweep(sys.executable, site)
    make_engine(given).refuse(given)


@pytest.mark.parametrize("python", ["/no/such/python", sys.executable])
def test_an_interpreter_without_sglang_is_refused_with_the_remedy(python: str) -> None:
    """Otherwise the first launch fails after the user has gone home."""
    given = sweep(python)
    with pytest.raises(UserError, match=r"engine\.python"):
        make_engine(given).refuse(given)


def test_a_folder_called_sglang_is_not_sglang(tmp_path: Path) -> None:
    """A checkout beside the sweep file makes an empty namespace package."""
    (tmp_path / "sglang").mkdir()
    given = sweep(sys.executable, tmp_path)
    with pytest.raises(UserError, match="has no sglang"):
        make_engine(given).refuse(given)


def test_draft_tp_can_be_planned_and_not_launched(site: Path, tmp_path: Path) -> None:
    """Without the patch the draft would silently stay on the target's GPUs."""
    given = sweep(sys.executable, site, [1])
    engine = make_engine(given)
    point = Point(num_steps=1, eagle_topk=1, num_draft_tokens=2, draft_tp=1)
    config = server_config(given, point)
    assert engine.command(config).env["SPECBENCH_DRAFT_TP"] == "1"
    with pytest.raises(UserError, match=r"draft_tp: \[target\]"):
        engine.refuse(given)
    with pytest.raises(UserError, match="draft-TP patch"):
        engine.launch(config, tmp_path / "server.log", 0)
