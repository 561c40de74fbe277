"""The real engine and the plug-in that switches chain lengths."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tuner.config.point import Point
from tuner.config.schema import EngineSpec, ModelSpec, ServerFlag, TimeoutSpec
from tuner.core.errors import EngineFailure, Failure
from tuner.server.base import ServerConfig
from tuner.server.http_api import ServerApi
from tuner.sglang import draft_tp
from tuner.sglang.engine import SglangEngine
from tuner.sglang.failure_diagnosis import cause_of_death
from tuner.sglang.flags import running_point
from tuner.sglang.releases import parse_version
from tuner.sglang.step_switching import step_switch_refusal

MODEL = ModelSpec(target="t", draft="d", algorithm="EAGLE3", tp=2)
POINT = Point(num_steps=3, eagle_topk=1, num_draft_tokens=4, draft_tp="target")
WARM = ServerConfig(MODEL, POINT, {}, {}, frozenset(), warm_steps=(1, 3, 5))
LINE = "specbench: chain lengths [{}] built, 5 pinned, rank {} of 2\n"


def engine(release: str = "0.5.17") -> SglangEngine:
    return SglangEngine(EngineSpec(kind="sglang", release=release), TimeoutSpec())


def test_the_launch_prepares_every_length_and_starts_with_the_longest() -> None:
    """Some of SGLang's buffers have the size of the launch's length."""
    command = engine().command(WARM)
    words = " ".join(command.argv)
    assert "--speculative-num-steps 5 --speculative-eagle-topk 1" in words
    assert "--speculative-num-draft-tokens 6" in words and "--speculative-adaptive" in words
    assert command.env == {
        "SPECBENCH_STEP_SWITCH": "1",
        "SPECBENCH_STEPS": "1,3,5",
        "PYTHONPATH": str(draft_tp.CARRIER),
    }
    alone = engine().command(replace(WARM, warm_steps=()))
    assert alone.env == {} and "--speculative-adaptive" not in alone.argv


def test_it_goes_with_a_draft_that_is_moved() -> None:
    """One plug-in carries both; the path must not stand there twice."""
    moved = replace(WARM, point=replace(POINT, draft_tp=1))
    env = engine().command(moved).env
    assert env["SPECBENCH_DRAFT_TP"] == "1" and env["SPECBENCH_STEPS"] == "1,3,5"
    assert env["PYTHONPATH"].split(os.pathsep) == [str(draft_tp.CARRIER)]


@pytest.mark.parametrize(
    ("log", "proven"),
    [
        (LINE.format("1, 3, 5", 0) + "[TP0] more\n" + LINE.format("1, 3, 5", 1), True),
        (LINE.format("1, 3, 5", 0), False),
        (LINE.format("1, 5", 0) + LINE.format("1, 5", 1), False),
        ("", False),
    ],
)
def test_a_server_without_proof_is_not_measured(tmp_path: Path, log: str, proven: bool) -> None:
    """SGLang starts unpatched when a plug-in fails, and then chooses the length itself."""
    launched = replace(WARM, point=replace(POINT, num_steps=5, num_draft_tokens=6))
    path = tmp_path / "server.log"
    path.write_text(log)
    if proven:
        draft_tp.require_proof(launched, path)
        return
    with pytest.raises(EngineFailure, match="chains of 1, 3, 5 was asked for") as caught:
        draft_tp.require_proof(launched, path)
    assert caught.value.label is Failure.NOT_PATCHED


def test_the_plugins_refusal_is_the_cause_of_death() -> None:
    line = "specbench_sglang.problems.Refused: specbench: step switching refused: topk=4"
    assert cause_of_death(1, f"something\n{line}\n") == ("BAD_ARGS", line)


@pytest.mark.parametrize(
    ("release", "algorithm", "flags", "topk", "reason"),
    [
        ("0.5.13", "EAGLE3", {}, 1, None),
        ("0.5.23", "NEXTN", {"page-size": 16, "pp-size": 1}, 1, None),
        ("0.5.12.post1", "EAGLE3", {}, 1, "SGLang 0.5.12.post1 cannot switch chain lengths"),
        ("0.5.17", "STANDALONE", {}, 1, "STANDALONE cannot switch"),
        ("0.5.17", "EAGLE3", {}, 4, "trees"),
        ("0.5.17", "EAGLE3", {"enable-dp-attention": True}, 1, "enable-dp-attention"),
        ("0.5.17", "EAGLE3", {"enable-multi-layer-eagle": True}, 1, "enable-multi-layer-eagle"),
        ("0.5.17", "EAGLE3", {"enable-two-batch-overlap": True}, 1, "two-batch-overlap"),
        ("0.5.17", "EAGLE3", {"enable-pdmux": True}, 1, "enable-pdmux"),
        ("0.5.17", "EAGLE3", {"speculative-adaptive": True}, 1, "choose the chain length itself"),
        ("0.5.17", "EAGLE3", {"pipeline-parallel-size": 2}, 1, "pp-size|pipeline"),
        ("0.5.17", "EAGLE3", {"disaggregation-mode": "decode"}, 1, "PD disaggregation"),
    ],
)
def test_what_cannot_be_switched_is_known_before_a_launch(
    release: str, algorithm: Any, flags: dict[str, ServerFlag], topk: int, reason: str | None
) -> None:
    """Otherwise a sweep would find out after loading the weights."""
    model = MODEL.model_copy(update={"algorithm": algorithm})
    found = step_switch_refusal(parse_version(release), model, flags, topk)
    if reason is None:
        assert found is None
    else:
        assert found is not None
        assert any(each in found for each in reason.split("|"))


def test_the_engine_answers_by_its_release() -> None:
    assert engine().switch_refusal(WARM) is None
    assert "0.5.12" in str(engine("0.5.12").switch_refusal(WARM))


class Answers(BaseHTTPRequestHandler):
    """Says what it was told to say; the last answer again and again."""

    switches: list[tuple[int, Any]]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        status, content = self.switches.pop(0) if len(self.switches) > 1 else self.switches[0]
        self._say(status, content)

    def _say(self, status: int, content: Any) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def answering(*switches: tuple[int, Any]) -> Iterator[ServerApi]:
    handler = type("Handler", (Answers,), {"switches": list(switches)})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        api = ServerApi(f"http://127.0.0.1:{server.server_address[1]}", 10.0)
        yield api
        server.shutdown()


DONE = (200, [{"updated": True, "speculative_num_steps": 3}])
OTHER = (200, [{"updated": True, "speculative_num_steps": 1}])
BUSY = (409, [{"updated": False, "reason": "the scheduler is not idle (1 requests running)"}])
UNKNOWN = (409, [{"updated": False, "reason": "3 is not among the chain lengths built: 1"}])


@pytest.mark.parametrize(
    ("switches", "reason"),
    [
        ([DONE], None),
        ([BUSY, DONE], None),
        ([BUSY], "not idle"),
        ([UNKNOWN], "not among"),
        ([OTHER], "it reports a chain length of 1"),
        ([(200, [*DONE[1], *BUSY[1]])], "not idle"),
        ([(200, [True])], "cannot switch"),
        ([(200, [False])], "cannot switch"),
        ([(200, [])], "cannot switch"),
    ],
)
def test_a_switch_is_believed_when_the_server_shows_it(
    switches: list[tuple[int, Any]], reason: str | None
) -> None:
    """A health check makes a server busy for a moment; a stock one does not say why not."""
    with answering(*switches) as api:
        if reason is None:
            api.set_steps(3)
            return
        with pytest.raises(EngineFailure, match=f"did not take 3 steps: .*{reason}") as caught:
            api.set_steps(3)
        assert caught.value.label is Failure.CLIENT


def test_an_endpoint_is_at_the_length_that_it_was_switched_to() -> None:
    """Its arguments go on showing that of the launch."""
    info = {
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 5,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 6,
    }

    def at(pinned: int) -> Point | None:
        return running_point({**info, "internal_states": [{"specbench_steps": {"pinned": pinned}}]})

    launched = running_point(info)
    assert launched is not None and launched.num_steps == 5
    switched = at(3)
    assert switched is not None
    assert (switched.num_steps, switched.num_draft_tokens) == (3, 4)
    assert at(0) is None
