"""Raw samples come back from disk as they were."""

import gzip
import json
from pathlib import Path

import pytest

from tests.measure.make import World, sample
from tuner.errors import UserError
from tuner.measure.metrics import summarise
from tuner.measure.samples import SpecCounts, Window
from tuner.measure.samples_file import read_samples, write_samples


def levels() -> dict[int, list[Window]]:
    spec = SpecCounts(4, 4, 8, (1, 2, 1))
    samples = (
        sample(spec=spec, engine_figures={"spec_accept_length": 2.25}),
        sample(spec=SpecCounts(4, 3)),
        sample((), (), error="HTTP 500: «no»", timed_out=True, finish_reason=None),
    )
    stopped = Window(64, 1.25, 0.5, samples, "a request timed out")
    return {1: World(0, 4, 0.1, 0.1).windows(2), 64: [stopped, Window(64, 0.0, 0.0, ())]}


def test_what_is_written_comes_back_equal(tmp_path: Path) -> None:
    """Otherwise summaries cannot be recomputed from a run folder."""
    path = tmp_path / "0007.jsonl.gz"
    write_samples(path, levels())
    assert read_samples(path) == levels()
    assert summarise(read_samples(path)[64], 2, 1) == summarise(levels()[64], 2, 1)
    assert [each.name for each in tmp_path.iterdir()] == ["0007.jsonl.gz"]


def test_a_line_for_each_request_and_window(tmp_path: Path) -> None:
    """Otherwise other tools cannot read the samples line by line."""
    path = tmp_path / "0007.jsonl.gz"
    write_samples(path, levels())
    with gzip.open(path, "rt", encoding="utf-8") as file:
        kinds = [next(iter(json.loads(line))) for line in file]
    some = ["window", *["request"] * 4] * 2
    assert kinds == ["format", *some, "window", *["request"] * 3, "window"]


@pytest.mark.parametrize(
    "text",
    [
        "no json\n",
        "",
        '{"format": 2}\n',
        "[1]\n",
        '{"format": 1}\n{"request": {}}\n',
        '{"format": 1}\n{"window": {"concurrency": 1}}\n',
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    """Otherwise a foreign file ends in a traceback, or in wrong numbers."""
    path = tmp_path / "0007.jsonl.gz"
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(UserError, match=r"0007\.jsonl\.gz"):
        read_samples(path)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """Otherwise a full disk's half file is summarised as if it were the whole."""
    path = tmp_path / "0007.jsonl.gz"
    write_samples(path, levels())
    whole = path.read_bytes()
    for damaged in (whole[:-12], whole[: len(whole) // 2], b"no gzip", b"\xff" + whole[1:]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"0007\.jsonl\.gz"):
            read_samples(path)
    path.unlink()
    with pytest.raises(UserError):
        read_samples(path)
