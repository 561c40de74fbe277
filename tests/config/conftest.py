"""A sweep file in parts, so that each test changes just what it is about."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.config.loader import LoadedSweep, load_sweep

BASE = """\
name: trial
engine: {kind: simulated, preset: quickstart}
model: {target: t, draft: d, algorithm: EAGLE3, tp: 4}
space:
  num_steps: [1, 2]
"""

Load = Callable[..., LoadedSweep]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write a sweep file and read it through the door."""

    def write_and_load(text: str = BASE, **options: str) -> LoadedSweep:
        path = tmp_path / "s.yaml"
        path.write_text(text, encoding="utf-8")
        return load_sweep(path, **options)

    return write_and_load
