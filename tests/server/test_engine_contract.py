"""What every engine that launches servers must do. One suite, over the simulated and the real one.

To run it over SGLang: SPECBENCH_SGLANG_PYTHON=.../python SPECBENCH_SGLANG_MODELS=.../models
pytest -m sglang -n 0 tests/server/test_engine_contract.py
(models: tiny_w8 as target and tiny_eagle3_w1 as its EAGLE-3 draft).
"""

import json
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.server import launching
from tests.server.launching import CHAIN, Case, generate, port_of
from tuner.config.prompts import Prompt
from tuner.config.schema import ServerFlag, ServerSpec
from tuner.core.errors import EngineFailure, Failure
from tuner.loadgen.auth import Keys
from tuner.loadgen.client import Load, run_window
from tuner.metrics.samples import Request
from tuner.server import ports
from tuner.server.base import Server
from tuner.server.http_api import ServerApi
from tuner.sglang.releases import parse_version

ENGINES = [
    pytest.param(launching.simulated, id="simulated"),
    pytest.param(
        launching.sglang_on_cpu,
        id="sglang",
        marks=[
            pytest.mark.sglang,
            pytest.mark.timeout(900),
            pytest.mark.skipif(
                "SPECBENCH_SGLANG_PYTHON" not in os.environ,
                reason="SPECBENCH_SGLANG_PYTHON is not set",
            ),
        ],
    ),
]


@pytest.fixture(scope="module", params=ENGINES)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param()


@pytest.fixture(scope="module")
def speculating(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("log") / "speculating.log"
    server = case.engine.launch(case.config(CHAIN), log, 1)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def plain(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("log") / "plain.log"
    server = case.engine.launch(case.config(None), log, 0)
    yield server
    server.stop()


def skips_tokenizer(case: Case) -> bool:
    return case.flags.get("skip-tokenizer-init") is True


def test_a_launch_says_what_it_started(case: Case, speculating: Server) -> None:
    """Otherwise records could carry another server's version or a launch time of nothing."""
    assert speculating.engine_version[0].isdigit()
    assert speculating.info["version"] == speculating.engine_version
    assert speculating.launch_s > 0
    assert speculating.url.startswith("http://127.0.0.1:")
    speculating.check_alive()


def test_the_server_runs_with_the_point_that_was_asked_for(speculating: Server) -> None:
    """Otherwise a number would be booked under another point."""
    info = speculating.info
    assert info["speculative_algorithm"] == "EAGLE3"
    assert info["speculative_num_steps"] == 3
    assert info["speculative_eagle_topk"] == 1
    assert info["speculative_num_draft_tokens"] == 4


def test_the_server_is_known_by_a_name_of_this_launch(speculating: Server) -> None:
    """Otherwise somebody else's server on the port would be measured."""
    assert str(speculating.info["served_model_name"]).startswith("specbench-")
    assert speculating.info["port"] == port_of(speculating.url)


def test_the_baseline_does_not_speculate(case: Case, plain: Server) -> None:
    """Otherwise every speed-up would be against the wrong thing."""
    assert plain.info["speculative_algorithm"] is None
    answer = generate(plain.url, 8, skips_tokenizer=skips_tokenizer(case)).json()
    assert answer["meta_info"]["completion_tokens"] == 8
    assert not [name for name in answer["meta_info"] if name.startswith("spec_")]


def test_counts_of_a_stream_agree_with_each_other(case: Case, speculating: Server) -> None:
    """Otherwise accept length and rates would be computed from counts of something else."""
    lines = generate(
        speculating.url, 24, stream=True, skips_tokenizer=skips_tokenizer(case)
    ).iter_lines()
    data = [line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: ")]
    assert data[-1] == b"[DONE]"
    chunks = [json.loads(each)["meta_info"] for each in data[:-1]]
    counts = [chunk["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    last = chunks[-1]
    assert counts[-1] == 24
    assert last["finish_reason"] == {"type": "length", "length": 24}
    release = parse_version(speculating.engine_version)
    verifies, correct = last["spec_verify_ct"], last[release.text("correct_drafts") or ""]
    histogram = last[release.text("histogram") or ""]
    assert sum(histogram) == verifies
    assert sum(k * count for k, count in enumerate(histogram)) == correct
    assert last[release.text("proposed_drafts") or ""] == 3 * verifies
    # The prefill brings the first token, each verify its drafts and one more; the end is cut off.
    assert 24 <= 1 + verifies + correct <= 24 + 3


def test_the_cache_can_be_emptied(case: Case, speculating: Server) -> None:
    """Otherwise the second window would measure the first one's prefixes."""
    generate(speculating.url, 2, skips_tokenizer=skips_tokenizer(case))
    speculating.flush_cache()
    speculating.flush_cache()
    again = generate(speculating.url, 2, skips_tokenizer=skips_tokenizer(case)).json()
    assert again["meta_info"]["cached_tokens"] == 0


def test_stop_leaves_no_process_and_no_port(case: Case, tmp_path: Path) -> None:
    """Otherwise the next launch finds no memory, or measures beside a living server."""
    server = case.engine.launch(case.config(None), tmp_path / "server.log", 0)
    port = port_of(server.url)
    family = launching.family_of(port)
    assert family
    server.stop()
    server.stop()
    assert all(map(launching.is_gone, family))
    assert ports.is_free(port)


def test_a_server_that_died_is_noticed_with_its_cause(case: Case, tmp_path: Path) -> None:
    """Otherwise a dead server would be measured until every request has timed out."""
    server = case.engine.launch(case.config(None), tmp_path / "server.log", 0)
    family = launching.family_of(port_of(server.url))
    os.kill(family[0].pid, signal.SIGKILL)
    with pytest.raises(EngineFailure) as failure:  # a large process takes a moment to go
        launching.wait_for(server.check_alive)
    assert failure.value.label is Failure.CRASH
    assert "SIGKILL" in failure.value.message
    with pytest.raises(EngineFailure) as failure:
        server.flush_cache()
    assert failure.value.label is Failure.CRASH
    server.stop()
    assert all(map(launching.is_gone, family))


def test_refused_arguments_are_told_as_such(case: Case, tmp_path: Path) -> None:
    """Otherwise the sampler would try the same impossible point again."""
    config = case.config(CHAIN, flags={"max-running-requests": "many"})
    with pytest.raises(EngineFailure) as failure:
        case.engine.launch(config, tmp_path / "server.log", 0)
    assert failure.value.label is Failure.BAD_ARGS
    assert "max-running-requests" in failure.value.message
    assert "usage:" in (tmp_path / "server.log").read_text() or failure.value.log_tail


def test_variables_are_set_and_removed(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an `unset` dimension would measure whatever the shell happened to hold."""
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    config = case.config(None, env={"NCCL_PROTO": "LL"}, unset=frozenset({"NCCL_ALGO"}))
    server = case.engine.launch(config, tmp_path / "server.log", 0)
    try:
        environment = launching.family_of(port_of(server.url))[0].environ()
    finally:
        server.stop()
    assert environment["NCCL_PROTO"] == "LL"
    assert "NCCL_ALGO" not in environment


def test_the_shown_command_is_complete_and_starts_nothing(case: Case) -> None:
    """Otherwise best.sh would not start what was measured."""
    command = case.engine.command(case.config(CHAIN, env={"NCCL_PROTO": "LL"}))
    text = " ".join(command.argv)
    assert "--port PORT" in text
    assert f"--model-path {case.model.target}" in text
    assert "--speculative-num-steps 3" in text
    assert "specbench-" not in text
    assert command.env == {"NCCL_PROTO": "LL"}


def test_prompts_keep_their_order(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise samples would be booked under other prompts."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    prompts = [Prompt(f"p{n}", "chat", (("user", f"question {n}"),)) for n in range(3)]
    tokenised = case.engine.tokenise(case.model, ServerSpec(flags=case.flags), prompts)
    assert [request.prompt_id for request in tokenised.requests] == ["p0", "p1", "p2"]
    for request in tokenised.requests:
        assert (request.text is None) != (request.input_ids is None)
    # Without a tokenizer there are only made-up ids, and the report must say so.
    assert (tokenised.doubt is not None) == skips_tokenizer(case)


@pytest.fixture(scope="module")
def switching(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = replace(case.config(CHAIN), warm_steps=(1, 3))
    if (reason := case.engine.switch_refusal(config)) is not None:
        pytest.skip(reason)
    server = case.engine.launch(config, tmp_path_factory.mktemp("log") / "switching.log", 2)
    yield server
    server.stop()


def test_a_running_server_takes_another_chain_length(case: Case, switching: Server) -> None:
    """Otherwise windows would be booked under a length that the server did not have."""
    for steps in (1, 3, 1):
        switching.set_steps(steps)
        answer = generate(switching.url, 24, skips_tokenizer=skips_tokenizer(case)).json()
        histogram = answer["meta_info"]["spec_correct_drafts_histogram"]
        verifies = answer["meta_info"]["spec_verify_ct"]
        assert len(histogram) <= steps + 1
        assert sum(histogram) == verifies
        # The prefill brings the first token, each verify its drafts and one more.
        assert verifies * (steps + 1) >= 24 - 1
        switching.flush_cache()


def test_a_chain_length_that_was_not_prepared_is_refused(case: Case, switching: Server) -> None:
    """Otherwise the numbers of another length would stand under this one."""
    switching.set_steps(3)
    with pytest.raises(EngineFailure) as failure:
        switching.set_steps(2)
    assert failure.value.label is Failure.CLIENT
    assert "2 steps" in failure.value.message
    switching.check_alive()
    switching.flush_cache()
    switching.set_steps(1)


def test_a_chain_length_is_not_switched_under_load(case: Case, switching: Server) -> None:
    """Otherwise a request would be drafted for by two lengths."""
    switching.flush_cache()
    switching.set_steps(1)
    with generate(switching.url, 200, stream=True, skips_tokenizer=skips_tokenizer(case)) as answer:
        lines = answer.iter_lines()  # held: a generator that is dropped closes the connection
        next(lines)
        with pytest.raises(EngineFailure) as failure:
            switching.set_steps(3)
    assert failure.value.label is Failure.CLIENT
    switching.flush_cache()
    switching.set_steps(3)


def test_a_server_of_one_length_refuses_others(speculating: Server) -> None:
    """Otherwise a launch without the switch would be measured as if it had one."""
    with pytest.raises(EngineFailure) as failure:
        speculating.set_steps(2)
    assert failure.value.label is Failure.CLIENT
    speculating.check_alive()


KEY, ADMIN_KEY = "a-key-of-the-contract-7f3a", "its-admin-key-91bc"


@pytest.fixture(scope="module", params=[False, True], ids=["key", "both-keys"])
def keyed(
    case: Case, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Server]:
    flags: dict[str, ServerFlag] = {"api-key": KEY}
    if request.param:
        flags["admin-api-key"] = ADMIN_KEY
    log = tmp_path_factory.mktemp("log") / "keyed.log"
    server = case.engine.launch(case.config(None, flags), log, 3)
    yield server
    server.stop()
    assert not {KEY, ADMIN_KEY} & set(re.findall(r"[\w-]+", log.read_text()))


def test_every_request_to_a_server_with_a_key_carries_it(case: Case, keyed: Server) -> None:
    """Otherwise a user's usual flags make every launch fail, or every window."""
    keyed.check_alive()
    keyed.flush_cache()
    assert keyed.info["version"] == keyed.engine_version
    ids = (5, 6, 7, 8) if skips_tokenizer(case) else None
    asked = Request("p", "chat", text=None if ids else "one two three", input_ids=ids)
    window = run_window(keyed.url, [asked], Load(1, 4, keys=keyed.keys))
    assert [each.error for each in window.samples] == [None]
    assert window.samples[0].tokens == 4
    window = run_window(keyed.url, [asked], Load(1, 4))
    assert "HTTP 401" in str(window.samples[0].error)


def test_a_wrong_key_is_told_as_that(keyed: Server) -> None:
    """A server that merely answers nonsense would be looked for in the wrong place."""
    for keys, what in ((Keys(), "wants an API key"), (Keys("wrong"), "another API key than")):
        api = ServerApi(keyed.url, 20.0, keys)
        assert api.is_healthy(), "health is for everybody"
        for ask in (api.server_info, api.flush_cache, lambda a=api: a.generate_one_token({})):
            with pytest.raises(EngineFailure, match=what) as failure:
                ask()
            assert failure.value.label is Failure.CLIENT
            assert "wrong" not in failure.value.message


def test_the_shown_command_has_a_name_in_the_place_of_the_key(case: Case) -> None:
    """best.sh goes to production by way of a chat."""
    command = case.engine.command(case.config(None, {"api-key": KEY})).hidden()
    assert "--api-key ${API_KEY}" in " ".join(command.argv)
    assert KEY not in str(command)
