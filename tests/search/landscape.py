"""A search space, and a landscape whose best point is known."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.factories import load_sweep_text
from tuner.config.loader import LoadedSweep
from tuner.config.point import Point
from tuner.search.observation import LevelFigures
from tuner.search.optuna_study import Observation, Study

SWEEP = """
name: searched
engine: {kind: simulated}
model: {target: some/model, draft: some/draft, algorithm: EAGLE3, tp: 8}
space:
  num_steps: {low: 1, high: 6}
  eagle_topk: [1, 2]
  num_draft_tokens: [4, 8, 20]
  draft_tp: [1, 8]
  env: {NCCL_PROTO: [unset, LL]}
  flags: {disable-custom-all-reduce: [false, true]}
search: {sampler: SAMPLER, trials: 24, seed: 3}
"""

GP = pytest.param(
    "gp", marks=pytest.mark.skipif(find_spec("torch") is None, reason="the extra gp is not there")
)

SMALL = SWEEP.replace("high: 6", "high: 3").replace("[4, 8, 20]", "[4, 8]")


def load_searched(folder: Path, sampler: str, text: str = SWEEP) -> LoadedSweep:
    """Load the sweep with this sampler."""
    return load_sweep_text(folder, text, SAMPLER=sampler)


def measured(point: Point) -> Observation:
    """Measure a point of a landscape with its best at 3 steps, NCCL_PROTO=LL, and an OOM corner."""
    if point.num_steps == 6 and point.eagle_topk == 2:
        return Observation("infeasible", reason="OOM: out of memory")
    if point.num_steps == 5:
        return Observation("failed", reason="CRASH: ended")
    value = 1.2 - 0.05 * abs(point.num_steps - 3) - 0.05 * (point.eagle_topk - 1)
    value += 0.1 * (dict(point.env).get("NCCL_PROTO") == "LL") - 0.04 * len(point.flags)
    return Observation("ok", value)


def run_study(study: Study, count: int) -> list[tuple[Point, Observation]]:
    """Measure `count` proposals, or fewer if the study has no more."""
    done = []
    for _ in range(count):
        proposal = study.propose()
        if proposal is None:
            break
        verdict = measured(proposal.point)
        study.tell(proposal, verdict)
        done.append((proposal.point, verdict))
    return done


def make_study(loaded: LoadedSweep) -> Study:
    """Return a study of 24 trials."""
    return Study(loaded.space, loaded.sweep.search, 24)


def measured_at_two_levels(point: Point) -> Observation:
    """Measure a point where long chains are best for one stream and short chains for eight."""
    first, second = 1 + 0.1 * point.num_steps, 1.7 - 0.1 * point.num_steps
    levels = {1: LevelFigures(1.0, speedup=first), 8: LevelFigures(1.0, speedup=second)}
    return Observation("ok", (first * second) ** 0.5, levels=levels)
