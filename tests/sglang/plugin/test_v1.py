"""What the plug-in does for SGLang up to 0.5.12 only; found by running 0.5.8 to 0.5.10 on a CPU.

The servers themselves are in `make draft-tp-matrix`.
"""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.sglang.plugin.fake_sglang import SCHEDULER, USE, fake_sglang
from tuner.sglang.draft_tp import CARRIER, SITECUSTOMIZE
from tuner.sglang.plugin.specbench_sglang import groups, versions, weights, workers

OLD = versions.parse("0.5.10")


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is rank 1 of a target at TP 2, its draft at TP 1."""
    place = SimpleNamespace(draft=SimpleNamespace(world_size=1, rank_in_group=0), is_stock=False)
    monkeypatch.setattr(groups, "placement", lambda: place)
    monkeypatch.setattr(versions, "installed", lambda: OLD)


@pytest.mark.parametrize(("device", "told"), [("cuda", (1, 0)), ("cpu", (2, 1))])
def test_a_runner_is_told_the_drafts_ranks_but_on_a_cpu(
    placed: None, monkeypatch: pytest.MonkeyPatch, device: str, told: tuple[int, int]
) -> None:
    """A CPU's runner binds its cores by its rank; with the draft's, a server at TP 2 ended."""

    class ModelRunner:
        def __init__(self, *, server_args: Any, tp_size: int, tp_rank: int) -> None:
            self.told = tp_size, tp_rank

    module = ModuleType("model_runner")
    module.ModelRunner = ModelRunner  # type: ignore[attr-defined]
    groups.patch_runner(module)
    arguments: dict[str, Any] = {
        "server_args": SimpleNamespace(device=device),
        "tp_size": 2,
        "tp_rank": 1,
    }
    assert ModelRunner(**arguments).told == (2, 1)  # the target's, outside of the scope
    monkeypatch.setattr(groups._Process, "in_scope", True)
    assert ModelRunner(**arguments).told == told


class Table:
    """A weight of some rows."""

    def __init__(self, rows: int) -> None:
        self.shape = (rows, 64)


@pytest.mark.parametrize("hot", [None, "even tokens"])
def test_a_token_map_gets_the_whole_head_and_not_the_drafts_short_one(
    placed: None, monkeypatch: pytest.MonkeyPatch, hot: str | None
) -> None:
    """SGLang picks the map's rows from what it is given; the draft's own table has only those."""
    own = Table(512), Table(512 if hot is None else 256)
    draft = SimpleNamespace(get_embed_and_head=lambda: own)
    monkeypatch.setattr(weights, "_share", lambda _shard, into: into)
    worker = SimpleNamespace(
        model_runner=SimpleNamespace(model=draft),
        speculative_algorithm=SimpleNamespace(is_eagle3=lambda: False),
        hot_token_id=hot,
    )
    target = SimpleNamespace(model_runner=SimpleNamespace(model=SimpleNamespace()))
    of = workers._V1Draft(worker, target)
    found = weights.reshare(of, Table(256), Table(256))
    assert found == (own[0], own[1] if hot is None else None)


def started(site: Path, **env: str) -> tuple[int, str]:
    """A Python that is started as specbench starts releases without plug-ins."""
    path = os.pathsep.join(map(str, (SITECUSTOMIZE, CARRIER, site)))
    told = subprocess.run(
        [sys.executable, "-c", USE],
        env={"PYTHONPATH": path, "PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        check=False,
    )
    return told.returncode, told.stdout + told.stderr


@pytest.mark.parametrize(
    ("release", "env", "said"),
    [
        ("0.5.10", {"SPECBENCH_DRAFT_TP": "1"}, "the scheduler has no draft that the plug-in"),
        ("0.5.10", {"SPECBENCH_DRAFT_TP": "3"}, "3 does not divide the target's TP size 4"),
        ("0.5.10", {"SPECBENCH_STEP_SWITCH": "1"}, "chain lengths are switched from SGLang 0.5.13"),
        ("0.5.7", {"SPECBENCH_DRAFT_TP": "1"}, "SGLang 0.5.7 is not known"),
    ],
)
def test_what_cannot_run_ends_a_server_without_plugins_too(
    tmp_path: Path, release: str, env: dict[str, str], said: str
) -> None:
    """Python prints what a sitecustomize raises and goes on: the server would run unpatched."""
    site = fake_sglang(tmp_path, release, SCHEDULER)
    code, text = started(site, **env)
    assert code == 1 and said in text
    assert started(site) == (0, "True\n")
