"""What the tests on a real SGLang share: its releases, its models, and answers taken apart."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import requests

from tests.real_sglang import build
from tests.server.launching import CPU_FLAGS, Case
from tuner.config.point import Point
from tuner.config.schema import EngineSpec, ModelSpec, ServerFlag, ServerSpec, TimeoutSpec
from tuner.server.base import Server
from tuner.sglang.engine import SglangEngine

RELEASES = build.RELEASES
OLD, NEW = RELEASES

TARGET = "tiny_w8"
MODELS: dict[str, tuple[str, str | None]] = {
    "EAGLE3": (TARGET, "tiny_eagle3_w1"),
    "EAGLE": (TARGET, "tiny_eagle_w1"),
    "STANDALONE": (TARGET, "tiny_draft_w2"),
    "NEXTN": ("tiny_mimo_w8", None),
}
"""Target and draft of each algorithm; NEXTN's draft is part of the target."""

PROMPTS = ((5, 6, 7, 8), (9, 100, 200, 3, 4, 44), (300, 17, 450))
"""Ids inside the vocabulary of 512; one outside ends the server."""


# Servers of one module idle beside each other's launches on few cores.
FLAGS: dict[str, ServerFlag] = {**CPU_FLAGS, "sleep-on-idle": True}


def chain(steps: int) -> Point:
    return Point(num_steps=steps, eagle_topk=1, num_draft_tokens=steps + 1, draft_tp="target")


def named(algorithm: str, folder: Path) -> dict[str, Any]:
    """A sweep's `model` with the algorithm's tiny models in this folder."""
    target, draft = MODELS[algorithm]
    model = {"target": str(folder / target), "algorithm": algorithm}
    return model if draft is None else {**model, "draft": str(folder / draft)}


def case(release: str, algorithm: str = "EAGLE3", tp: int = 1, python: Path | None = None) -> Case:
    """The release's engine with the algorithm's tiny target and draft."""
    model = ModelSpec(**named(algorithm, build.models()), tp=tp)
    spec = EngineSpec(kind="sglang", python=str(python or build.interpreter(release)))
    limits = TimeoutSpec(launch=400.0, request=120.0)
    flags = dict(FLAGS)  # a test may add to its own
    return Case(SglangEngine(spec, limits, ServerSpec(flags=flags)), model, flags)


def log_of(server: Server) -> Path:
    """Where the server's output goes."""
    return server._launch.log  # type: ignore[attr-defined]


def writers_to(log: Path) -> list[psutil.Process]:
    """Living processes whose output is this file: a launch's own, whatever became of parents."""
    found = []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            output = Path(f"/proc/{process.pid}/fd/1").readlink()
            if output == log and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


@contextmanager
def launched(of: Case, point: Point | None, folder: Path, **env: str) -> Iterator[Server]:
    """A server with this point, stopped at the end whatever happens."""
    log = folder / f"{of.model.algorithm}-{'plain' if point is None else point.num_steps}.log"
    server = of.engine.launch(of.config(point, env=env), log, 0)
    try:
        yield server
    finally:
        server.stop()


@dataclass(frozen=True)
class Answer:
    """One streamed answer, chunk by chunk."""

    chunks: tuple[tuple[int, ...], ...]
    """The new tokens of each chunk."""
    meta: dict[str, Any]
    """The last chunk's meta_info."""

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(token for chunk in self.chunks for token in chunk)


def body(prompt: tuple[int, ...], tokens: int, **more: Any) -> dict[str, Any]:
    parameters = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
    return {"input_ids": list(prompt), "sampling_params": parameters, **more}


def streamed(url: str, prompt: tuple[int, ...], tokens: int) -> Answer:
    """A greedy answer of exactly this length, as its chunks arrive (stream interval 1)."""
    chunks: list[tuple[int, ...]] = []
    so_far: list[int] = []
    meta: dict[str, Any] = {}
    with requests.post(
        f"{url}/generate", json=body(prompt, tokens, stream=True), stream=True, timeout=120
    ) as reply:
        reply.raise_for_status()
        for line in reply.iter_lines():
            if not line.startswith(b"data: ") or line == b"data: [DONE]":
                continue
            event = json.loads(line.removeprefix(b"data: "))
            meta, ids = event["meta_info"], event["output_ids"]
            # Either all ids so far or only the new ones, by release and flag.
            new = ids[len(so_far) :] if ids[: len(so_far)] == so_far else ids
            so_far += new
            if new:
                chunks.append(tuple(new))
    assert meta["completion_tokens"] == len(so_far)
    return Answer(tuple(chunks), meta)


def verify_by_verify(server: Server, prompt: tuple[int, ...], tokens: int) -> Answer:
    """An answer each of whose chunks after the first is one verify.

    On a busy machine two verifies can come in one chunk; greedy answers can be asked for again.
    """
    for _ in range(8):
        server.flush_cache()
        answer = streamed(server.url, prompt, tokens)
        if len(answer.chunks) == 1 + answer.meta["spec_verify_ct"] and len(answer.chunks[0]) == 1:
            return answer
    raise AssertionError(f"{len(answer.chunks)} chunks, but {answer.meta['spec_verify_ct']} + 1")


def counted_by_hand(longer: Answer, tokens: int, steps: int) -> list[int]:
    """Verifies by the number of drafts they accepted, in an answer of `tokens` tokens.

    `longer` is the same answer, but going on: the last verify of the short one is cut at its
    length, here it can be seen whole. Each verify brings its accepted drafts and one more token.
    """
    histogram = [0] * (steps + 1)
    so_far = 1  # the prefill's
    for chunk in longer.chunks[1:]:
        if so_far >= tokens:
            return histogram
        histogram[len(chunk) - 1] += 1
        so_far += len(chunk)
    raise AssertionError("the longer answer is not long enough")
