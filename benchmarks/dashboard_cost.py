"""What the dashboard costs, on a ledger of a simulated sweep.

    python -m benchmarks.dashboard_cost [TRIALS]

Prints the CPU time to write one trial to study.db while a run goes on, and the time and memory to
open the dashboard on a ledger of TRIALS lines (10,000 by default) without a study.db.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.long_ledger import long_run
from tuner.config.loader import load_sweep
from tuner.dashboard.serve import study_to_view
from tuner.dashboard.study import open_own_study
from tuner.runs.run import Run

WRITTEN = 100
"""Trials that are written to study.db."""


def written_ms(run: Run) -> float:
    """Return the CPU milliseconds to write one trial, as at the end of each trial of a run."""
    loaded = load_sweep(run.sweep_file)
    study, trouble = open_own_study(run, loaded.sweep, loaded.space.points)
    assert study is not None, trouble
    with run.locked():
        began = time.process_time()
        for _ in range(WRITTEN):
            study.extend(1)
        return 1000 * (time.process_time() - began) / WRITTEN


def main() -> None:
    """Print both figures."""
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        run = long_run(Path(folder), trials)
        print(f"study.db: {written_ms(run):.1f} ms of CPU for each of {WRITTEN} trials")
        run.study_file.unlink()
        began, used = time.monotonic(), time.process_time()
        study_to_view(run)
        seconds, used = time.monotonic() - began, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(f"{trials:,} trials shown after {seconds:.0f} s ({used:.0f} s of CPU), {peak:.0f} MB")


if __name__ == "__main__":
    main()
