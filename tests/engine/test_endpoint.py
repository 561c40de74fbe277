"""Measuring a server that somebody else started."""

from pathlib import Path

import pytest

from tests.engine.launching import CHAIN, simulated
from tuner.engine.endpoint import EndpointEngine
from tuner.engine.ports import free_port
from tuner.errors import EngineFailure, Failure
from tuner.sweep.engine_keys import EngineSpec
from tuner.sweep.model import ModelSpec, TimeoutSpec


def endpoint(url: str) -> EndpointEngine:
    model = ModelSpec(target="any/target", draft="any/draft", algorithm="EAGLE3")
    spec = EngineSpec(kind="endpoint", url=url)
    return EndpointEngine(spec, TimeoutSpec(request=20.0), model)


def test_it_attaches_reads_the_point_and_lets_go(tmp_path: Path) -> None:
    """Stopping somebody's production server would be the worst thing this tool can do."""
    case = simulated()
    with case.engine.launch(case.config(CHAIN), tmp_path / "theirs.log", 0) as theirs:
        engine = endpoint(theirs.url + "/")
        server = engine.launch(case.config(None), tmp_path / "ours.log", 0)
        assert server.url == theirs.url
        assert server.engine_version == theirs.engine_version
        assert engine.point_of(server.info) == CHAIN
        server.flush_cache()
        server.check_alive()
        server.stop()
        server.stop()
        theirs.check_alive()
        theirs.flush_cache()
        assert not (tmp_path / "ours.log").exists()


def test_nobody_there_is_told_with_the_address(tmp_path: Path) -> None:
    """Otherwise a wrong url ends in a traceback of the HTTP library."""
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(EngineFailure, match=url) as failure:
        endpoint(url).launch(simulated().config(None), tmp_path / "server.log", 0)
    assert failure.value.label is Failure.CLIENT
