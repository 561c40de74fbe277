"""How often intervals hold the truth: the figures of docs/statistics.md.

python -m tests.metrics.coverage_table
"""

from tests.metrics.performance_world import PerformanceWorld
from tuner.metrics.drift import Baselines, Launched
from tuner.metrics.statistics import Interval, speedup

WINDOWS = 0.003
"""How far windows of one launch differ, beyond the noise of cycles."""


def within(seed: int, steps: int | None, faster: float) -> tuple[Interval, float]:
    """The speed-up of one run with one launch of each, and the truth."""
    world = PerformanceWorld(seed, WINDOWS)
    base, other = world.configuration(None), world.configuration(steps, faster)
    found = speedup(base.launch(), other.launch(), "decode_tok_s", seed)
    assert found is not None
    return found, other.speed / base.speed


def over_launches(seed: int, launches: int, by_launch: float, drift: float) -> tuple[bool, bool]:
    """Whether the interval over all baselines, and over the first alone, holds that nothing has
    changed; `drift` is what the machine loses over the run."""
    world = PerformanceWorld(seed, WINDOWS, by_launch)
    same = world.configuration(None)
    times = [n / (launches - 1) for n in range(launches)]
    below = tuple(Launched(at, same.launch(drift=1 - drift * at)) for at in times)
    at = (1 + seed % 3) / 4
    measured = Launched(at, same.launch(drift=1 - drift * at))
    settled = Baselines(below, "decode_tok_s").speedup(measured)
    first = speedup(below[0].windows, measured.windows, "decode_tok_s")
    return holds(settled, 1.0), holds(first, 1.0)


def holds(found: Interval | None, truth: float) -> bool:
    assert found is not None and found.low is not None and found.high is not None
    return found.low <= truth <= found.high


def main() -> None:
    """A Markdown table: launches' deviation, drift, and the share of runs that hold the truth."""
    runs = 1000
    held = sum(holds(*within(seed, 3, 1.0)) for seed in range(runs)) / runs
    null = sum(not holds(*within(seed, None, 1.0)) for seed in range(runs)) / runs
    found = [within(seed, None, 1.02)[0] for seed in range(runs)]
    power = sum(each.low is not None and each.low > 1 for each in found) / runs
    print(f"one launch: holds {held:.1%}, 0 % significant {null:.1%}, 2 % found {power:.1%}\n")
    print("| launches differ by | drift | first baseline alone | 2 launches | 3 launches |")
    print("|---:|---:|---:|---:|---:|")
    for by_launch, drift in ((0, 0), (0.002, 0), (0.005, 0), (0.01, 0), (0, 0.03)):
        cells = [f"{by_launch:.1%}", f"{drift:.0%}"]
        pairs = {n: [over_launches(s, n, by_launch, drift) for s in range(runs)] for n in (2, 3)}
        cells.append(f"{sum(first for _, first in pairs[2]) / runs:.1%}")
        cells += [f"{sum(all_ for all_, _ in each) / runs:.1%}" for each in pairs.values()]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
