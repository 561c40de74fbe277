"""`specbench comm` with a real process group: gloo, on this machine's CPU."""

import json
import subprocess
import sys
from pathlib import Path

from tests.real_sglang import build

SWEEP = """
name: comm
engine: {{kind: sglang, python: {python}}}
model: {{target: {target}, draft: {target}, algorithm: STANDALONE, tp: 2}}
server: {{flags: {{device: cpu}}}}
space:
  num_steps: [3]
  env: {{GLOO_SOCKET_IFNAME: [unset, nowhere0]}}
"""


def test_two_ranks_reduce_at_the_models_sizes(tmp_path: Path) -> None:
    """A setting that cannot start is told from one that can, by torch's own words."""
    target = build.models() / "tiny_w8"
    hidden = json.loads((target / "config.json").read_text())["hidden_size"]
    sweep, out = tmp_path / "comm.yaml", tmp_path / "comm.json"
    python = build.DEFAULT / "venv" / "bin" / "python"
    sweep.write_text(SWEEP.format(python=python, target=target))
    command = [sys.executable, "-m", "tuner", "comm", str(sweep), "--rounds", "2"]
    done = subprocess.run(
        [*command, "--out", str(out), "--json"], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == json.loads(out.read_text())
    assert (found["backend"], found["device"], found["tp"]) == ("gloo", "CPU", 2)
    assert [(each["parts"], each["elements"]) for each in found["messages"]] == [
        (["draft"], hidden),
        (["verify"], 4 * hidden),
    ]
    unset, broken = found["settings"]
    assert unset["failure"] is None
    assert all(us > 0 for each in unset["latencies"] for us in each["rounds"])
    assert [len(each["rounds"]) for each in unset["latencies"]] == [2, 2]
    assert broken["failure"] == "CRASH"
    assert "nowhere0" in broken["message"]
    assert [each["env"] for each in found["screened"]["keep"]] == [{}]
    assert [each["failure"] for each in found["screened"]["drop"]] == ["CRASH"]


def test_four_ranks_reduce_in_pairs_for_a_draft_on_two(tmp_path: Path) -> None:
    """Groups that some rank does not make, or makes in another order, wait for ever."""
    target = build.models() / "tiny_w8"
    hidden = json.loads((target / "config.json").read_text())["hidden_size"]
    python = build.DEFAULT / "venv" / "bin" / "python"
    text = SWEEP.format(python=python, target=target).replace("tp: 2", "tp: 4")
    text = text.replace("[unset, nowhere0]", "[unset]").replace(
        "num_steps: [3]", "num_steps: [3]\n  draft_tp: [target, 2, 1]"
    )
    sweep = tmp_path / "comm.yaml"
    sweep.write_text(text)
    command = [sys.executable, "-m", "tuner", "comm", str(sweep), "--rounds", "2", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(each["parts"], each["elements"], each.get("ranks")) for each in found["messages"]] == [
        (["draft"], hidden, None),
        (["verify"], 4 * hidden, None),
        (["draft TP 2"], hidden, 2),
    ]
    (unset,) = found["settings"]
    assert [len(each["rounds"]) for each in unset["latencies"]] == [2, 2, 2]
    assert all(us > 0 for each in unset["latencies"] for us in each["rounds"])
