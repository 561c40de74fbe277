"""The report's section "GPU memory" tells launches apart, on any machine."""

import json
import shutil
from pathlib import Path

import pytest

from tests.sglang.memory.configs import EAGLE3_DRAFT, LLAMA_8B
from tuner.report.memory import launches_held, memory_table
from tuner.runs.run import Run
from tuner.sglang.memory.model_shape import ShapePair, read_shape

SHARED = Path("results/h200_placement/20261130-022458")
"""Chains of 1, 3, 5 and 7 steps in a launch for each placement of the draft."""
HERE = ShapePair(read_shape(LLAMA_8B), read_shape(EAGLE3_DRAFT))
NOT_HERE = ShapePair("the target is not on this machine", "the draft is not on this machine")


@pytest.mark.parametrize("pair", [HERE, NOT_HERE], ids=["with models", "without"])
def test_every_launch_has_a_label_of_its_own(pair: ShapePair) -> None:
    """Shared launches with the draft on TP 2 and on TP 1 read alike otherwise."""
    labels = [held.label for held in launches_held(Run.open(SHARED), pair)]
    assert labels == [
        "no speculation",
        "chains of 1, 3, 5, 7 steps",
        "chains of 1, 3, 5, 7 steps, draft TP 1",
        "3 steps, 4 tokens, draft TP 1",
    ]


def test_a_report_written_elsewhere_has_the_estimates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the models are not, `specbench report` put `- / 7.48` in the place of them."""
    shutil.copytree(SHARED, tmp_path / "run")
    monkeypatch.chdir(tmp_path)  # the sweep's models are models/llama8b-...
    run = Run.open(tmp_path / "run")
    for name, config in (("target", LLAMA_8B), ("eagle3", EAGLE3_DRAFT)):
        folder = tmp_path / "models" / f"llama8b-{name}"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config))
    of_the_files = memory_table(run)
    assert of_the_files is not None and "| no speculation | 7.48 / 7.48 |" in of_the_files
    with run.locked():
        pass
    shutil.rmtree(tmp_path / "models")
    assert memory_table(Run.open(run.path)) == of_the_files
    run.models_file.unlink()
    assert "| no speculation | - / 7.48 |" in str(memory_table(run))
