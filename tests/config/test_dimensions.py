"""The table of dimensions: what an entry in it is enough for."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ENTRY = """    Dimension(
        "draft_window",
        "Draft window in tokens.",
        Values,
        lambda value: f"window {value}",
        argument="speculative-draft-window-size",
        bounds=(1, 4096),
        applies_to=_has_draft_model,
    ),
)
\"\"\"In the order of labels"""
FIELD = "    draft_window: int | None = None\n    env: tuple[tuple[str, str], ...] = ()\n"
SWEEP = """
name: windows
engine: {kind: simulated, preset: quickstart}
model: {target: example/target-8b, draft: example/draft-eagle3, algorithm: EAGLE3, tp: 4}
space:
  num_steps: [1, 2]
  draft_window: [64, 128]
  exclude: [{num_steps: 1, draft_window: 128}]
workload: {prompts: "builtin:chat", requests: 2, output_tokens: 8, concurrency: [1]}
measure: {warmup_requests: 0, repeats: 1}
search: {sampler: grid, trials: 3}
"""
FRAME = """
import sys, tuner
frame = tuner.load_run(sys.argv[1]).trials
print(sorted(frame["draft_window"].dropna().astype(str)))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package with one more dimension: an entry in the table, a field in Point."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree("tuner", tmp_path / "tuner", ignore=ignored)
    for name, old, new in (
        ("dimensions", ')\n"""In the order of labels', ENTRY),
        ("point", "    env: tuple[tuple[str, str], ...] = ()\n", FIELD),
    ):
        file = tmp_path / "tuner" / "config" / f"{name}.py"
        text = file.read_text()
        assert text.count(old) == 1
        file.write_text(text.replace(old, new))
    (tmp_path / "windows.yaml").write_text(SWEEP)
    return tmp_path


def specbench(package: Path, *words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "tuner", *words]
    done = subprocess.run(
        command, cwd=package, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_added_dimension_is_in_every_view(package: Path) -> None:
    """The plan, the server's arguments, the ledger, the report, data frames and the JSON Schema."""
    plan = json.loads(specbench(package, "plan", "windows.yaml", "--json"))
    words = [command["argv"] for command in plan["commands"]]
    flag = "--speculative-draft-window-size"
    windows = [argv[argv.index(flag) + 1] for argv in words]
    assert sorted(windows) == ["128", "64", "64"]
    assert "Draft window in tokens." in specbench(package, "schema")
    specbench(package, "sweep", "windows.yaml", "--out", "results")
    run = next((package / "results").rglob("trials.jsonl")).parent
    lines = [json.loads(line) for line in (run / "trials.jsonl").read_text().splitlines()]
    tried = [line["point"]["draft_window"] for line in lines if line["role"] == "candidate"]
    assert sorted(tried) == [64, 64, 128]
    report = (run / "report.md").read_text()
    assert "2 steps, 3 tokens, window 64" in report
    assert "draft_window: " in (run / "best.yaml").read_text()
    frame = subprocess.run(
        [sys.executable, "-c", FRAME, str(run)], cwd=package, capture_output=True, text=True
    )
    assert frame.stdout.count("64") >= 2, frame.stderr
