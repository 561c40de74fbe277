"""When requests come, where they come at a rate instead of when an earlier one has ended."""

import random
from itertools import accumulate


def arrivals(count: int, rate: float, seed: int) -> list[float]:
    """Seconds from the first of `count` arrivals to each, ascending: a Poisson process of `rate`
    a second.

    The same for equal arguments on every machine. Another rate is the same pattern, faster or
    slower, so that levels differ by their load and not by their luck.
    """
    draw = random.Random(f"arrivals {seed}")
    gaps = [draw.expovariate(1.0) for _ in range(count - 1)]
    return [at / rate for at in accumulate(gaps, initial=0.0)][:count]
