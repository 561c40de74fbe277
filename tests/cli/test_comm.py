"""`specbench comm` as scripts and people use it, where no torch is needed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.server.all_reduce import CommResults
from tuner.sglang.nccl.screening import screened


def comm(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tuner", "comm", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def test_a_preset_answers_and_says_that_it_is_simulated(tmp_path: Path) -> None:
    """The rehearsal of the case: 72 settings on eight PCIe GPUs come down to a handful."""
    out = tmp_path / "comm.json"
    case = Path("sweeps/kimi_eagle3.yaml")
    done = comm(case, "--engine", "simulated", "--tokens", "3,6", "--json", "--out", out)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["simulated"] is True
    assert any("simulated" in note for note in found["notes"])
    best = {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring", "NCCL_P2P_LEVEL": "SYS"}
    assert found["screened"]["keep"][0]["env"] == best
    assert len(found["screened"]["keep"]) < 5 < len(found["settings"])
    kept = CommResults.from_json(json.loads(out.read_text()), "out")
    assert screened(kept).to_json() == found["screened"]


def test_people_see_a_table_or_its_lines() -> None:
    done = comm("sweeps/quickstart.yaml", "--engine", "simulated", "--tokens", "4")
    assert "NCCL_PROTO=LL" in done.stdout
    assert "note: simulated" in done.stdout
    assert done.stdout.rstrip().endswith("worth a server: NCCL_PROTO=LL")
    assert "all all-reduces of one verify pass together" in done.stdout
    assert "in brackets" not in done.stdout  # a preset has no intervals


def test_people_see_the_settings_that_count(tmp_path: Path) -> None:
    """36 or 72 rows of dropped settings scroll away the two that are worth a server."""
    case, out = Path("sweeps/kimi_eagle3.yaml"), tmp_path / "comm.json"
    done = comm(case, "--engine", "simulated", "--tokens", "3,6", "--out", out)
    found = json.loads(out.read_text())
    kept = len(found["screened"]["keep"])
    shown = done.stdout.count("dropped:") + done.stdout.count("the same:")
    assert shown == 5
    more = len(found["settings"]) - kept - 5
    assert f"{more} more, none worth a server: {out} has all" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "give a sweep file, or --tp, --hidden and --tokens"),
        (["--tp", "1", "--hidden", "8", "--tokens", "1"], "on one GPU there are no all-reduces"),
        (["--tp", "2", "--hidden", "8", "--tokens", "0"], "write 1,4,8"),
        (["--tp", "2", "--hidden", "8", "--tokens", "1", "--setting", "LL"], "is no setting"),
        (["--tp", "2", "--hidden", "8", "--tokens", "1", "--dtype", "int8"], "--dtype int8"),
        (["--tp", "2", "--hidden", "8", "--tokens", "1", "--limit", "soon"], "--limit: 'soon'"),
        (["--tp", "2", "--hidden", "8", "--tokens", "1", "--engine", "simulated"], "give one"),
        (["sweeps/quickstart.yaml", "--out", "/nowhere/at/all.json"], "there is no such folder"),
        (
            ["sweeps/kimi_eagle3.yaml", "--engine", "simulated", "--setting", "NCCL_BUFFSIZE=1"],
            "has no numbers for NCCL_BUFFSIZE (it has some for NCCL_PROTO",
        ),
        (["sweeps/kimi_eagle3.yaml", "--engine", "sglang"], "is not known"),
    ],
)
def test_mistakes_are_told_in_a_sentence(words: list[str], says: str) -> None:
    done = comm(*words)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
