"""What the dashboard costs a search: CPU time of one trial's proposal and of all that is written.

    python -m benchmarks.dashboard_cost [TRIALS]

The study is a file in a temporary folder; a trial has 35 figures at each of two concurrencies and
a note of 1,800 characters, as on a real server.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import mean

from tuner.config.loader import load_sweep
from tuner.dashboard.shown import DashboardSchema, DashboardTrial
from tuner.dashboard.study import open_own_study
from tuner.search.observation import Observation
from tuner.search.optuna_study import Study
from tuner.search.samplers import combination

SWEEP = """
name: cost
engine: {kind: simulated}
model: {target: some/model, draft: some/draft, algorithm: EAGLE3, tp: 8}
space:
  num_steps: {low: 1, high: 40}
  eagle_topk: [1, 2]
  num_draft_tokens: [4, 8, 20, 32, 48]
  draft_tp: [1, 8]
  env: {NCCL_PROTO: [unset, LL]}
  flags: {disable-custom-all-reduce: [false, true]}
search: {sampler: random, trials: 1000}
"""
FIGURES = {f"c{level}.figure_{number}": 1.0 for level in (1, 8) for number in range(35)}


def cost(trials: int, folder: Path) -> list[tuple[float, float]]:
    """Seconds of CPU of each trial: the search's own, and the dashboard's."""
    path = folder / "cost.yaml"
    path.write_text(SWEEP, encoding="utf-8")
    loaded = load_sweep(path)
    study = Study(loaded.space, loaded.sweep.search, trials)
    stored, trouble = open_own_study(
        folder / "study.db", DashboardSchema("cost", "me", axes=loaded.space.dimensions)
    )
    assert stored is not None, trouble
    taken = []
    for number in range(trials):
        began = time.process_time()
        proposal = study.propose()
        assert proposal is not None
        asked = time.process_time()
        params = combination(loaded.space, proposal.point)
        stored.begin(DashboardTrial(params, "running", note="It runs."))
        shown = time.process_time()
        study.tell(proposal, Observation("ok", 1 + number / trials))
        told = time.process_time()
        files = ("logs/0001.log", "samples/0001.jsonl.gz")
        values = (1 + number / trials,)
        stored.finish(DashboardTrial(params, "ok", values, FIGURES, "x" * 1800, files))
        stored.describe("x" * 900, {"answer": str(number // 50)})
        ended = time.process_time()
        taken.append((asked - began + told - shown, shown - asked + ended - told))
    assert stored.lost is None, stored.lost
    return taken


def main() -> None:
    """Print milliseconds a trial, for the first and the last tenth of the trials."""
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as folder:
        taken = cost(trials, Path(folder))
    tenth = max(1, trials // 10)
    for name, part in (("first", taken[:tenth]), ("last", taken[-tenth:])):
        search, shown = (1000 * mean(each) for each in zip(*part, strict=True))
        print(f"{name} {tenth} trials: ask and tell {search:.1f} ms, dashboard {shown:.1f} ms")


if __name__ == "__main__":
    main()
