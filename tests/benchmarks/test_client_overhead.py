"""The benchmark of load clients: it plays, counts and paces as its figures take for granted."""

import argparse
import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.client_overhead.__main__ import table
from benchmarks.client_overhead.entrants import OURS, RIVALS, Entrant, Load, why_missing
from benchmarks.client_overhead.measure import Measured, Pace, RunFailed, measure
from benchmarks.client_overhead.server import Connection, Play, chat, completions, generate

ASKED = b"POST /generate HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}"


@pytest.mark.parametrize("entrant", OURS, ids=lambda each: each.name)
def test_our_figures_are_those_of_a_known_pace(entrant: Entrant) -> None:
    """Otherwise what it says of other servers is not to be believed either."""
    tries = (measure(entrant, Load(4, 8, 20), Pace(first_ms=80.0, each_ms=20.0)) for _ in range(5))
    assert any(agree(each) for each in tries)  # a busy machine holds up the one or the other


def agree(found: Measured) -> bool:
    said, truth = found.client_said, found.server
    assert found.tokens == 160
    assert 0 < found.cpu_s < found.wall_s
    return (
        truth.tpot_ms == pytest.approx(20.0, rel=0.1)
        and said.tpot_ms == pytest.approx(truth.tpot_ms, rel=0.05)
        and said.tok_s == pytest.approx(truth.tok_s, rel=0.15)
        and 0.98 < said.ttft_ms / truth.ttft_ms < 1.3
    )


def test_a_flood_is_read_whole_and_told_in_a_row() -> None:
    found = measure(OURS[0], Load(2, 8, 4096), Pace())
    assert found.tokens == 8 * 4096
    (row,) = table([found])
    assert (row["client"], row["load"], row["times_our_cpu"]) == ("specbench", "flood", 1.0)
    assert row["tok_s"] > 0 and row["cpu_s_per_million_tokens"] > 0


class Reader(asyncio.Transport):
    """A client's end: it counts events, and takes no more while told so."""

    def __init__(self) -> None:
        super().__init__()
        self.events = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.events += bytes(data).count(b"data: {")

    def is_closing(self) -> bool:
        return False


async def turns() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


def test_a_flood_goes_on_whoever_reads_slowly() -> None:
    """A request that came while another's connection was full was never answered, and the
    benchmark hung."""
    options = {"tokens": 64, "incremental": True, "pace_ms": 0.0, "ttft_ms": 0.0, "burst": 1}
    wanted = argparse.Namespace(**options, warmups=0, requests=9, last=1)

    async def flood() -> tuple[int, int, int]:
        play = Play(wanted)
        readers = [Reader(), Reader()]
        slow, quick = (Connection(play) for _ in readers)
        for connection, reader in zip((slow, quick), readers, strict=True):
            connection.connection_made(reader)
        slow.data_received(ASKED)
        slow.pause_writing()
        await turns()
        quick.data_received(ASKED)
        await turns()
        held = readers[0].events
        slow.resume_writing()
        await turns()
        return held, readers[0].events, readers[1].events

    held, slow, quick = asyncio.run(flood())
    assert (held, slow, quick) == (0, 64, 64)


def test_a_load_without_measured_cpu_time_has_no_ratio() -> None:
    """A division by its 0 would cost the figures of all that ran before."""
    found = measure(OURS[0], Load(1, 1, 2), Pace())
    (row,) = table([replace(found, cpu_s=0.0)])
    assert row["times_our_cpu"] is None and row["tok_s"] > 0


def test_every_form_brings_each_token_in_an_event_of_its_own() -> None:
    """Otherwise clients are held against each other on unlike loads."""
    forms = [generate(9, False), generate(9, True)]
    forms += [form(9, asked) for form in (completions, chat) for asked in (False, True)]
    assert [len(form) for form in forms] == [9] * 6
    assert all(form[-1].endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") for form in forms)
    assert [b"total_tokens" in form[-1] for form in forms] == [False] * 2 + [False, True] * 2


def test_a_client_that_fails_is_told_in_a_sentence(tmp_path: Path) -> None:
    """It must not end the others' runs, or stand there with figures."""
    script = tmp_path / "broken"
    script.write_text("#!/bin/sh\necho it does not start >&2\nexit 1\n")
    script.chmod(0o755)
    broken = Entrant("broken", "/", script, "broken", lambda *_: [], OURS[0].read)
    with pytest.raises(RunFailed, match=r"broken did not do its load .*it does not start"):
        measure(broken, Load(1, 1, 2), Pace())


def test_a_rival_that_is_not_there_is_said() -> None:
    gone = Entrant("gone", "/", Path("/nowhere/gone"), "gone", lambda *_: [], OURS[0].read)
    assert gone.version() is None
    assert "benchmarks.client_overhead.install" in why_missing(gone)
    assert len({each.name for each in (*OURS, *RIVALS)}) == len(OURS) + len(RIVALS)
