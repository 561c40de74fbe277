"""Two runs of one sweep with other numbers of slots: their wall clocks, and whether they agree.

    python -m benchmarks.slots_ratio RUN-OF-TWO RUN-OF-ONE [--json]

Wall clocks are of the ledgers: from the beginning of the first trial to the end of the report, and
of the candidates alone, which are what slots are for. A run that was resumed has its pauses in it.
Results agree where a point's two intervals of its speed-up overlap.
"""

import argparse
import json
from datetime import datetime
from pathlib import Path
from typing import Any

from tuner.analysis.baselines import settle
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run


def seconds_of(run: Run) -> dict[str, float]:
    """`whole` and `candidates`, in seconds of this run's wall clock."""
    records = run.records()
    end = datetime.fromtimestamp(run.report_md.stat().st_mtime).astimezone()
    first = next(each for each in records if each.role == "candidate")
    last = [index for index, each in enumerate(records) if each.role == "candidate"][-1]
    after = _began(records[last + 1]) if last + 1 < len(records) else end
    begun = min(_began(each) for each in records if each.role == "candidate")
    assert begun <= _began(first)
    return {
        "whole": (end - _began(records[0])).total_seconds(),
        "candidates": (after - begun).total_seconds(),
    }


def _began(record: TrialRecord) -> datetime:
    return datetime.fromisoformat(record.started)


def agreement(one: Run, other: Run) -> dict[str, Any]:
    """Of points that both have measured, how many agree, and those that do not."""
    found = [{each.label: each for each in settle(run).ledger.candidates} for run in (one, other)]
    apart, compared = [], 0
    for label in found[0].keys() & found[1].keys():
        first, second = (each[label] for each in found)
        for level in first.metrics.keys() & second.metrics.keys():
            compared += 1
            a, b = first.metrics[level], second.metrics[level]
            if a["speedup_low"] > b["speedup_high"] or b["speedup_low"] > a["speedup_high"]:
                apart.append(f"{label} at concurrency {level}")
    return {"compared": compared, "apart": sorted(apart)}


def main() -> None:
    """Print the ratio of the second run's wall clock to the first's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    two, one = (Run.open(path) for path in given.runs)
    times = [seconds_of(run) for run in (two, one)]
    found = {
        "seconds": times,
        "ratio": {name: round(times[1][name] / times[0][name], 3) for name in times[0]},
        **agreement(two, one),
    }
    if given.json:
        print(json.dumps(found, indent=2))
        return
    for name, ratio in found["ratio"].items():
        print(f"{name}: {times[0][name]:.0f} s against {times[1][name]:.0f} s, {ratio} times")
    apart = found["apart"]
    print(
        f"{found['compared']} speed-ups compared, {len(apart)} apart by more than their intervals"
    )
    for each in apart:
        print(f"  {each}")


if __name__ == "__main__":
    main()
