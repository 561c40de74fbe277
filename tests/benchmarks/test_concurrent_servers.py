"""Servers beside each other, measured in turns: what claims about single settings rest on."""

import json
from pathlib import Path

import pytest

from tests.gpu.concurrent_servers.__main__ import main, wanted
from tests.gpu.concurrent_servers.profile import kernels

SWEEP = """\
name: small
engine: {kind: simulated, preset: h200x2-llama8b, startup_scale: 0.01}
model: {target: any/target, draft: any/draft, algorithm: EAGLE3, tp: 2}
server: {step_switch: true}
space: {num_steps: [1, 3]}
workload: {prompts: "builtin:chat", requests: 2, output_tokens: 32, concurrency: [1, 2]}
"""
SERVERS = """\
sweep: {sweep}
servers:
  three: {{point: {{num_steps: 3}}}}
  switched: {{point: {{num_steps: 3}}, steps: [1, 3]}}
  none: {{}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    sweep = tmp_path / "small.yaml"
    sweep.write_text(SWEEP)
    servers = tmp_path / "servers.yaml"
    servers.write_text(SERVERS.format(sweep=sweep))
    return servers


def test_every_server_takes_each_turn(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A turn left out would make a ratio of unlike moments."""
    out = tmp_path / "out.json"
    assert main([str(file), "--rounds", "2", "--out", str(out)]) == 0
    found = json.loads(out.read_text())["entrants"]
    assert list(found) == ["three", "switched at 1", "switched at 3", "none"]
    for entrant in found.values():
        assert {level: len(rounds) for level, rounds in entrant["rounds"].items()} == {
            "1": 2,
            "2": 2,
        }
    length = {name: each["rounds"]["1"][0]["accept_length"] for name, each in found.items()}
    assert length["none"] is None
    assert 1 < length["switched at 1"] <= 2 < length["three"] == length["switched at 3"]
    assert "against three" in capsys.readouterr().out


def test_a_wrong_path_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Minutes of a GPU machine should not end in a traceback."""
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "none.yaml")])
    assert ended.value.code == 2
    assert "none.yaml" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("servers: {a: {}}", "'sweep' is missing"),
        ("[]", "does not fit"),
        ("sweep: SWEEP\nservers: {a: {point: {num_steps: 3, topk: 2}}}", "'topk'"),
    ],
)
def test_a_file_of_another_form_is_one_sentence(
    file: Path, capsys: pytest.CaptureFixture[str], text: str, named: str
) -> None:
    """A typo would otherwise be looked for in a traceback, on a machine that costs money."""
    file.write_text(text.replace("SWEEP", str(file.parent / "small.yaml")))
    with pytest.raises(SystemExit) as ended:
        main([str(file)])
    last = capsys.readouterr().err.splitlines()[-1]
    assert ended.value.code == 2 and named in last and str(file) in last


@pytest.mark.parametrize("name", ["steps", "placement"])
def test_the_kept_files_name_what_exists(name: str) -> None:
    """The docs' commands would fail on the GPU machine only."""
    import yaml

    content = yaml.safe_load(Path(f"tests/gpu/concurrent_servers/{name}.yaml").read_text())
    servers = wanted(content, "/opt/sglang/bin/python")
    assert [each.name for each in servers] == list(content["servers"])
    assert all(each.config.flags["max-total-tokens"] == 8192 for each in servers)


def test_kernels_that_overlap_count_once_as_busy() -> None:
    """Waiting for another rank beside computing would look like a busier GPU."""
    events = [
        {"cat": "kernel", "name": "gemm", "ts": 0, "dur": 10},
        {"cat": "kernel", "name": "all_reduce", "ts": 5, "dur": 10},
        {"cat": "kernel", "name": "gemm", "ts": 25, "dur": 5},
        {"cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 99},
    ]
    found = kernels(events)
    assert (found["span_us"], found["busy_us"]) == (30, 20)
    assert found["kernels"][0] == {"name": "gemm", "calls": 2, "us": 15}
