"""Speculation on SGLang 0.5.17: the same answers as without it, and counts that can be counted.

Not every combination: each algorithm on each release, each number of steps somewhere, TP 2 once.
The newest release's are in test_speculation_newest.py: one file runs on one core.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.real_sglang.serving import (
    OLD,
    PROMPTS,
    case,
    chain,
    counted_by_hand,
    launched,
    streamed,
    verify_by_verify,
)
from tuner.loadgen.client import Load, run_window
from tuner.metrics.catalogue import summarise
from tuner.metrics.samples import Request
from tuner.server.base import Server

TOKENS = 40


@dataclass(frozen=True)
class Run:
    release: str
    algorithm: str
    steps: int
    tp: int = 1

    def __str__(self) -> str:
        return f"{self.release}-{self.algorithm}-{self.steps}-tp{self.tp}"


RUNS = [
    Run(OLD, "EAGLE3", 3),
    Run(OLD, "EAGLE", 2),
    Run(OLD, "STANDALONE", 4),
    Run(OLD, "EAGLE3", 2, tp=2),
]


@cache
def answers_without_speculation(release: str) -> list[tuple[int, ...]]:
    """At TP 1, for every algorithm and TP: it is one model."""
    with (
        TemporaryDirectory() as folder,
        launched(case(release), None, Path(folder)) as server,
    ):
        return [streamed(server.url, prompt, TOKENS).tokens for prompt in PROMPTS]


@dataclass(frozen=True)
class Running:
    run: Run
    server: Server


@contextmanager
def speculating(run: Run, folder: Path) -> Iterator[Running]:
    answers_without_speculation(run.release)  # before, so that one server runs at a time
    one = case(run.release, run.algorithm, run.tp)
    with launched(one, chain(run.steps), folder) as server:
        yield Running(run, server)


@pytest.fixture(scope="module", params=RUNS, ids=str)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    with speculating(request.param, tmp_path_factory.mktemp("log")) as found:
        yield found


def test_greedy_answers_are_those_without_speculation(running: Running) -> None:
    """Otherwise a speed-up would be bought with other answers, and this set-up would be wrong."""
    expected = answers_without_speculation(running.run.release)
    found = [streamed(running.server.url, prompt, TOKENS).tokens for prompt in PROMPTS]
    assert found == expected


def test_counts_are_those_of_a_count_by_hand(running: Running) -> None:
    """Otherwise accept length and rates would be those of something else.

    By hand: how many tokens each chunk of a stream brought. By specbench: from the engine's counts.
    """
    steps, server = running.run.steps, running.server
    by_hand = [0] * (steps + 1)
    for prompt in PROMPTS:
        longer = verify_by_verify(server, prompt, TOKENS + steps + 2)
        counted = counted_by_hand(longer, TOKENS, steps)
        by_hand = [a + b for a, b in zip(by_hand, counted, strict=True)]
    verifies = sum(by_hand)
    correct = sum(accepted * times for accepted, times in enumerate(by_hand))
    assert correct > 0, "no draft was ever accepted: nothing is shown"

    server.flush_cache()
    requests = [Request(f"p{n}", "chat", input_ids=ids) for n, ids in enumerate(PROMPTS)]
    window = run_window(server.url, requests, Load(concurrency=1, output_tokens=TOKENS))
    specs = [sample.spec for sample in window.samples]
    assert all(spec is not None and spec.histogram is not None for spec in specs)
    histograms = [spec.histogram or () for spec in specs if spec]
    padded = [[*each, *[0] * (steps + 1 - len(each))] for each in histograms]
    assert [sum(column) for column in zip(*padded, strict=True)] == by_hand
    assert sum(spec.verify_ct for spec in specs if spec) == verifies
    assert sum(spec.correct_drafts for spec in specs if spec) == correct
    assert sum(spec.proposed_drafts or 0 for spec in specs if spec) == verifies * steps

    figures = summarise([window], steps, 1)
    assert figures["accept_length"] == pytest.approx(1 + correct / verifies)
    assert figures["accept_rate"] == pytest.approx(correct / (verifies * steps))
    by_position = [sum(by_hand[position:]) / verifies for position in range(1, steps + 1)]
    assert figures["accept_rate_by_position"] == pytest.approx(by_position)
    assert figures["completion_tokens"] == TOKENS * len(PROMPTS)
    # The engine's own rate is of the same counts; its length counts the prefill's token too.
    assert window.samples[0].engine_figures["spec_accept_rate"] == pytest.approx(
        specs[0].correct_drafts / (specs[0].verify_ct * steps)  # type: ignore[union-attr]
    )
