"""The engine contract (tests/server/test_engine_contract.py) on SGLang and real GPUs.

The server is that of sweeps/h200_llama8b_eagle3.yaml: a Llama of 8B with dummy weights, TP 2, or
TP 1 where there is one GPU.
Nothing here is timed, so several workers may share the GPUs.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpu.conftest import INTERPRETER
from tests.server.launching import Case
from tests.server.test_engine_contract import *  # noqa: F403
from tuner.config.loader import load_sweep
from tuner.config.schema import EngineSpec, TimeoutSpec
from tuner.server.base import Server
from tuner.server.gpu import visible_gpus
from tuner.sglang.engine import SglangEngine

CHECKOUT = Path(__file__).resolve().parents[2]
SWEEP = CHECKOUT / "sweeps" / "h200_llama8b_eagle3.yaml"


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    folder = tmp_path_factory.mktemp("models")
    script = CHECKOUT / "scripts" / "make_dummy_models.py"
    subprocess.run([sys.executable, str(script), str(folder)], check=True)
    sweep = load_sweep(SWEEP).sweep
    seen = visible_gpus({})
    assert seen is not None, "no GPU is seen"
    model = sweep.model.model_copy(
        update={
            "tp": min(sweep.model.tp, len(seen.cards)),
            "target": str(folder / Path(sweep.model.target).name),
            "draft": str(folder / Path(str(sweep.model.draft)).name),
        }
    )
    # Workers load beside each other: a little memory each, and no look at what else a GPU holds
    # (on one GPU the weights of four servers, which SGLang takes off its share).
    flags = {**sweep.server.flags, "mem-fraction-static": 0.8, "max-total-tokens": 16384}
    spec = EngineSpec(kind="sglang", python=os.environ[INTERPRETER])
    limits = TimeoutSpec(launch=600.0, request=120.0)
    server = sweep.server.model_copy(update={"flags": flags})
    with pytest.MonkeyPatch.context() as patched:
        # SGLang's own spelling.
        patched.setenv("SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK", "0")
        yield Case(SglangEngine(spec, limits, server), model, flags)


def test_the_gpus_that_a_server_holds_are_known(case: Case, plain: Server) -> None:
    """Without them there is no energy, and no doubt about a hot GPU."""
    assert plain.gpus is not None
    assert len(plain.gpus.names) == case.model.tp
    assert plain.counters() is not None
