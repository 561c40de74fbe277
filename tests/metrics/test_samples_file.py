"""Raw samples come back from disk as they were."""

import gzip
import json
import re
from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from tests.factories import World, make_gpu_trace, make_sample
from tuner.core.errors import UserError
from tuner.metrics.catalogue import summarise
from tuner.metrics.samples import EngineCounters, SpecCounts, Window
from tuner.metrics.samples_file import read_samples, write_samples


def levels() -> dict[int, list[Window]]:
    spec = SpecCounts(4, 4, 8, (1, 2, 1))
    samples = (
        make_sample(spec=spec, engine_figures={"spec_accept_length": 2.25}),
        make_sample(spec=SpecCounts(4, 3)),
        make_sample(output_ids=array("I", [5, 70_000]), text="a «b\ud83d»"),
        make_sample(text=""),
        make_sample((), (), error="HTTP 500: «no»", timed_out=True, finish_reason=None),
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
    assert kinds == ["format", *some, "window", *["request"] * 5, "window"]


def test_answers_are_named_only_where_they_were_kept(tmp_path: Path) -> None:
    """Files would grow by two words a request for nothing; those from before have none."""
    path = tmp_path / "0007.jsonl.gz"
    write_samples(path, {1: levels()[1]})
    lines = gzip.decompress(path.read_bytes())
    assert b"output_ids" not in lines and b'"text"' not in lines
    assert read_samples(path)[1][0].samples[0].output_ids is None


@pytest.mark.parametrize(
    "text",
    [
        "no json\n",
        "",
        '{"format": 2}\n',
        "[1]\n",
        '{"format": 1}\n{"request": {}}\n',
        '{"format": 1}\n{"window": {"concurrency": 1}}\n',
        '{"format": 1}\n{"window": 3}\n',
        '{"format": 1}\n{"window": []}\n',
        '{"format": 1}\n'
        '{"window": {"level": 4, "wall_s": 1, "client_cpu_s": 1, "concurrency": 1}}\n',
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    """Otherwise a foreign file ends in a traceback, or in wrong numbers."""
    path = tmp_path / "0007.jsonl.gz"
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(UserError, match=r"0007\.jsonl\.gz"):
        read_samples(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("wall_s", '"long"'),
        ("wall_s", "NaN"),
        ("wall_s", "1e999"),
        ("client_cpu_s", "null"),
        ("sent", '"now"'),
        ("ended", "null"),
        ("chunk_times", '["a"]'),
        ("chunk_times", "[1, 2, 3]"),
        ("chunk_tokens", "[NaN]"),
        ("engine_tokens", '"many"'),
        ("verify_ct", '"many"'),
        ("spec", "3"),
    ],
)
def test_what_is_no_number_is_refused_when_it_is_read(
    tmp_path: Path, field: str, value: str
) -> None:
    """Otherwise it is found out after the next launch, in a traceback."""
    path = tmp_path / "0007.jsonl.gz"
    write_samples(path, levels())
    text = gzip.decompress(path.read_bytes()).decode()
    found = re.compile(rf'"{field}": (\[[^]]*\]|\{{[^}}]*\}}|[^,}}]+)')
    changed, count = found.subn(f'"{field}": {value}', text, count=1)
    assert count == 1
    path.write_bytes(gzip.compress(changed.encode()))
    with pytest.raises(UserError, match=r"0007\.jsonl\.gz"):
        read_samples(path)


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    """A full disk or a file in the folder's place must not end a sweep in a traceback."""
    (tmp_path / "samples").write_text("")
    with pytest.raises(UserError, match="Not a directory, make it writable"):
        write_samples(tmp_path / "samples" / "0007.jsonl.gz", levels())
    (tmp_path / "0008.jsonl.gz").mkdir()
    with pytest.raises(UserError, match="Is a directory"):
        write_samples(tmp_path / "0008.jsonl.gz", levels())
    assert sorted(each.name for each in tmp_path.iterdir()) == ["0008.jsonl.gz", "samples"]


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


def read_beside() -> Window:
    counters = EngineCounters(2, (1.9, None), (100.5, None))
    gpus = (make_gpu_trace(), replace(make_gpu_trace(gpu="GPU-abc"), sm_mhz=(None, 1, 2, 3)))
    return Window(1, 10.0, 0.1, (make_sample(),), gpus=gpus, engine=counters)


def test_what_was_read_beside_the_load_comes_back(tmp_path: Path) -> None:
    """Energy per token could not be recomputed from a run folder."""
    path = tmp_path / "0007.jsonl.gz"
    write_samples(path, {1: [read_beside()]})
    assert read_samples(path) == {1: [read_beside()]}
    again = summarise(read_samples(path)[1], None, None)
    assert again["energy_j_per_token"] == pytest.approx(2 * 5000 / 5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("at", "[0.0]"),
        ("sm_mhz", '["fast", 1, 2, 3]'),
        ("power_w", "[1e999, 1, 2, 3]"),
        ("reasons", "[0.5, 1, 2, 3]"),
        ("energy_j", "3"),
        ("gpu", "0"),
        ("ranks", '"two"'),
        ("accept_lengths", "[true]"),
        ("throughputs", "[1e999]"),
    ],
)
def test_readings_that_are_none_are_refused(tmp_path: Path, name: str, value: str) -> None:
    """Otherwise the next report ends in a traceback."""
    path = tmp_path / "0007.jsonl.gz"
    write_samples(path, {1: [read_beside()]})
    text = gzip.decompress(path.read_bytes()).decode()
    changed, count = re.subn(rf'"{name}": (\[[^]]*\]|[^,}}]+)', f'"{name}": {value}', text, count=1)
    assert count == 1
    path.write_bytes(gzip.compress(changed.encode()))
    with pytest.raises(UserError, match=r"0007\.jsonl\.gz"):
        read_samples(path)


def test_a_file_from_before_gpus_were_read_is_as_it_was(tmp_path: Path) -> None:
    """Runs of an earlier specbench stay readable, and say that nothing was read."""
    path = tmp_path / "0007.jsonl.gz"
    write_samples(path, levels())
    assert b'"gpus"' not in gzip.decompress(path.read_bytes())
    assert read_samples(path)[1][0].gpus is None
