"""When a winner is launched once more: a plan and the run that it plans must agree."""

from pathlib import Path

import pytest

from tests.sweeps import tiny_sweep
from tuner.execution.schedule import confirms


@pytest.mark.parametrize(
    ("stages", "shared", "scored", "is_confirmed"),
    [
        ("[]", False, False, False),
        ("[confirm]", False, False, True),
        ("[]", True, False, True),
        ("[]", False, True, True),
    ],
)
def test_a_winner_has_a_launch_of_its_own(
    tmp_path: Path, stages: str, shared: bool, scored: bool, is_confirmed: bool
) -> None:
    sweep = tiny_sweep(tmp_path, search=f"trials: 3, stages: {stages}").sweep
    assert confirms(sweep, shared=shared, scored=scored) is is_confirmed
