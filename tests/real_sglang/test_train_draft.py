"""The training of the real pair's draft: what it counts is what drafting is worth, and it keeps."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.real_sglang import build
from tests.real_sglang.serving import OLD, TARGET

STEPS, TOKENS = 3, 28
REAL = build.DEFAULT / "real-pair" / "target"
TARGETS = {"tiny": build.models() / TARGET, "real": REAL}


def answer_of(script: str, task: dict[str, Any]) -> Any:
    """What a script beside this file prints, run where torch is."""
    done = subprocess.run(
        [str(build.interpreter(OLD)), str(Path(__file__).with_name(script))],
        input=json.dumps(task),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@dataclass
class Trained:
    target: Path
    out: Path
    found: dict[str, Any]


@pytest.fixture(scope="module", params=TARGETS)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    target = TARGETS[request.param]
    if not (target / "model.safetensors").is_file():
        pytest.skip("make real-pair makes it")
    out = tmp_path_factory.mktemp("draft")
    task = {"target": str(target), "out": str(out), "training": 25}
    found = answer_of("train_tiny.py", {**task, "steps": STEPS, "tokens": TOKENS})
    return Trained(target, out, found)


def test_training_counts_what_drafting_step_by_step_has_accepted(trained: Trained) -> None:
    """Otherwise a draft is trained for, and reported by, another game than SGLang plays."""
    task = {"target": str(trained.target), "draft": str(trained.out / "draft")}
    task |= {"answers": trained.found["answers"]}
    counted = answer_of("count_eagle3.py", {**task, "steps": STEPS, "tokens": TOKENS})
    assert counted == trained.found["histograms"]
    assert sum(sum(histogram[2:]) for histogram in counted) > 0, "no draft of a draft was right"


def test_training_brings_the_loss_down(trained: Trained) -> None:
    first, last = trained.found["losses"]
    assert last < 0.85 * first  # what is left is mostly the target's own doubt


def test_packing_keeps_a_draft_but_for_a_rounding(trained: Trained) -> None:
    """A kept draft must be the trained one: half a step of 127, and bfloat16's 8 bits."""
    packing = trained.found["packing"]
    assert packing["shapes_kept"] and packing["vocabulary_kept"]
    assert max(packing["errors"].values()) < 0.5 / 127 + 2**-8
    assert packing["dtypes"] == ["torch.bfloat16", "torch.bool", "torch.int64"]


@pytest.mark.parametrize("file", ["packed/packed.safetensors", "draft/model.safetensors"])
def test_packing_and_unpacking_give_the_same_bits_again(trained: Trained, file: str) -> None:
    """Otherwise two machines would measure two drafts."""
    folder, name = file.split("/")
    again = trained.out / f"{folder}_again" / name
    assert (trained.out / file).read_bytes() == again.read_bytes()
