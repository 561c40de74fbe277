"""What `specbench plan` reckons with."""

import json
from pathlib import Path

import pytest

from tests.factories import Trial, make_point, make_run
from tuner.preflight import estimate
from tuner.preflight.estimate import earlier_runs


def run_on(root: Path, gpu: str, launch_s: float) -> None:
    trials = [Trial(None, 90.0, launch_s=launch_s), Trial(make_point(2), 100.0, launch_s=launch_s)]
    machine = make_run(root, trials).machine_file
    facts = json.loads(machine.read_text())
    machine.write_text(json.dumps({**facts, "gpus": [{"name": gpu}] * 2}))


@pytest.mark.parametrize(
    ("here", "launches", "words"),
    [
        (["H200", "H200"], {70.0}, "as in this sweep's earlier runs"),
        (["B200", "B200"], {50.0}, "as in this sweep's earlier runs"),
        (["B200"], set(), "as in this sweep's earlier runs"),
        ([], {50.0}, "as in this sweep's earlier runs on 2x B200"),
    ],
)
def test_an_estimate_is_of_gpus_like_these(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    here: list[str],
    launches: set[float],
    words: str,
) -> None:
    """Else the first plan in a fresh clone promises the launches of somebody else's GPUs."""
    run_on(tmp_path / "a", "H200", 70.0)
    run_on(tmp_path / "b", "B200", 50.0)
    results = tmp_path / "results"
    results.mkdir()
    for folder in (*(tmp_path / "a").iterdir(), *(tmp_path / "b").iterdir()):
        folder.rename(results / f"{folder.parent.name}-{folder.name}")
    monkeypatch.setattr(estimate, "machine_facts", lambda: {"gpus": [{"name": n} for n in here]})
    found = earlier_runs(results, "sglang")
    assert {each.launch_s for each in found.trials if each.proposed} == launches
    assert found.words == words
