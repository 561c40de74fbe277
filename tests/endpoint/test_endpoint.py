"""Measuring a server that somebody else started."""

import gzip
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.server.launching import CHAIN, simulated
from tuner.cli.commands import specbench
from tuner.config.loader import load_sweep
from tuner.config.schema import EngineSpec, TimeoutSpec
from tuner.core.errors import EngineFailure, Failure, UserError
from tuner.endpoint.engine import EndpointEngine
from tuner.engines import make_engine
from tuner.loadgen.auth import Keys
from tuner.runs.run import Run
from tuner.server.ports import free_port


def endpoint(url: str) -> EndpointEngine:
    spec = EngineSpec(kind="endpoint", url=url)
    return EndpointEngine(spec, TimeoutSpec(request=20.0))


def test_it_attaches_reads_the_point_and_lets_go(tmp_path: Path) -> None:
    """Stopping somebody's production server would be the worst thing this tool can do."""
    case = simulated()
    with case.engine.launch(case.config(CHAIN), tmp_path / "theirs.log", 0) as theirs:
        engine = endpoint(theirs.url + "/")
        server = engine.launch(case.config(None), tmp_path / "ours.log", 0)
        assert server.url == theirs.url
        assert server.engine_version == theirs.engine_version
        assert engine.running_point(server.info) == CHAIN
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


SWEEP = """
name: theirs
engine: {kind: endpoint, url: "URL", api_key: "${THEIR_KEY}"}
model: {target: any/target, draft: any/draft, algorithm: EAGLE3}
space: {}
workload: {prompts: "builtin:chat", requests: 2, output_tokens: 8}
measure: {warmup_requests: 1, repeats: 1}
"""


def test_a_server_that_wants_a_key_is_measured_with_one_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of production servers are in no file, and in nothing that is left of the run."""
    case, key = simulated(), "their-own-key-5f1c"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with case.engine.launch(case.config(CHAIN, {"api-key": key}), tmp_path / "t.log", 0) as theirs:
        Path("s.yaml").write_text(SWEEP.replace("URL", theirs.url))
        words = ["sweep", "s.yaml", "--out", "out"]
        unset = CliRunner().invoke(specbench, words)
        assert "s.yaml:3: engine.api_key: the variable THEIR_KEY is not set" in str(unset.exception)
        wrong = CliRunner().invoke(specbench, words, env={"THEIR_KEY": "another-key-9921"})
        assert isinstance(wrong.exception, EngineFailure)
        assert "wants another API key than it was sent" in str(wrong.exception)
        right = CliRunner().invoke(specbench, words, env={"THEIR_KEY": key})
        assert right.exit_code == 0, right.output
    *_, last = sorted(Path("out").iterdir())
    (record,) = Run.open(last).records()
    assert (record.outcome, record.metrics["1"]["failed_requests"]) == ("ok", 0)
    assert 'api_key: "${THEIR_KEY}"' in (last / "sweep.yaml").read_text()
    for file in Path("out").rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            data = gzip.decompress(data) if file.suffix == ".gz" else data
            assert key.encode() not in data and b"another-key-9921" not in data, file


@pytest.mark.parametrize("key", ["schlüssel-des-servers", "two\nlines", " spaced-out "])
def test_a_key_that_no_header_can_carry_is_refused(key: str) -> None:
    """SGLang would answer 401 or 500 to every request, or a library raise at each."""
    with pytest.raises(UserError, match="printable ASCII") as refusal:
        Keys(key)
    assert key not in str(refusal.value)


def test_a_key_of_an_endpoint_is_refused_where_a_server_is_launched(tmp_path: Path) -> None:
    """The server would be launched for everybody on the machine, without a key."""
    file = tmp_path / "s.yaml"
    text = SWEEP.replace('endpoint, url: "URL"', "sglang, release: 0.5.17")
    file.write_text(
        text.replace("${THEIR_KEY}", "their-own-key-5f1c").replace("{}", "{num_steps: [1]}")
    )
    loaded = load_sweep(file)
    with pytest.raises(UserError, match=r"s.yaml:3: engine.api_key: .*server: {flags: {api-key"):
        make_engine(loaded.sweep).check(loaded)
