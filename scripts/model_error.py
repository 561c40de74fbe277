"""How far the acceptance curve and the cycle model are off in a run that measured several chains.

    python scripts/model_error.py results/NAME/RUN-ID

Prints, at the lowest concurrency, for each chain the accept length that the longest chain predicts,
and the cycle that all other configurations predict, beside what was measured.
"""

import sys
from pathlib import Path

from tuner.analysis.summary import TrialResult, summarise_run
from tuner.core.errors import UserError
from tuner.core.formatting import interval, number, text_table
from tuner.runs.run import Run
from tuner.search.acceptance import AcceptanceCurve, read_chain
from tuner.search.cycle_time_fit import Cycle, CycleModel


def main(folder: Path) -> None:
    summary = summarise_run(Run.open(folder))
    level = summary.levels[0]
    chains = [each for each in summary.ranked if each.point and each.point.eagle_topk == 1]
    chains.sort(key=steps)
    longest = read_chain(summary.windows(chains[-1], level), steps(chains[-1]))
    curve = AcceptanceCurve(() if longest is None else (longest,))
    cycles = [
        Cycle(each.point, n, ms)
        for each in summary.ranked
        for n in summary.levels
        if each.point and (ms := each.metric(n, "cycle_ms")) is not None
    ]
    rows = []
    for each in chains:
        assert each.point is not None
        others = CycleModel(c for c in cycles if c.point != each.point)
        length, ms = each.metric(level, "accept_length"), each.metric(level, "cycle_ms")
        told, time = curve.accept_length(steps(each)), others.cycle(each.point, level)
        rows.append([each.label, *beside(length, told), *beside(ms, time), ""])
    header = ["chain", "accept length", "predicted", "off"]
    print(text_table([*header, "cycle, ms", "predicted", "off", ""], rows))


def steps(each: TrialResult) -> int:
    assert each.point is not None
    assert each.point.num_steps is not None
    return each.point.num_steps


def beside(measured, predicted) -> list[str]:
    if measured is None or predicted is None:
        return [number(measured, 3), "-", "-"]
    told = interval(predicted.value, predicted.low, predicted.high, 3)
    return [number(measured, 3), told, f"{100 * (predicted.value / measured - 1):+.1f} %"]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("give one run: python scripts/model_error.py results/NAME/RUN-ID")
    try:
        main(Path(sys.argv[1]))
    except UserError as error:
        sys.exit(str(error))
