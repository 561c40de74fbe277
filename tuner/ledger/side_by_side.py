"""What servers that stand side by side do to each other, by the baseline measured both ways."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tuner.ledger.lines import Ledger
from tuner.measure.statistics import Interval
from tuner.sweep.level import Level, at

SLOWED = 0.03
"""Share of its speed that a server may surely lose to those beside it before that is a doubt."""
_NAMES = ("interference", "interference_low", "interference_high")


def interference(ledger: Ledger, place: str, level: Level) -> Interval | None:
    """Speed without speculation with servers in all other places, over its speed alone, by the last
    launch that showed it; None where none did, or where it may as well be 1."""
    for record in reversed(ledger.records):
        if record.role != "abreast" or record.place is None or record.place.name != place:
            continue
        figures = record.metrics.get(str(level), {})
        value, low, high = (figures.get(f"speedup{end}") for end in ("", "_low", "_high"))
        if value and low and high:
            found = Interval(value, low, high)
            return None if found.includes_one else found
    return None


def beside(ratio: Interval | None, known: Interval | None) -> Interval | None:
    """A speed-up over the baseline alone, as one over the baseline beside others."""
    if ratio is None or known is None:
        return ratio
    value = ratio.value / known.value
    if not (ratio.low and ratio.high and known.low and known.high):
        return Interval(value, None, None)
    down = math.hypot(math.log(ratio.value / ratio.low), math.log(known.high / known.value))
    up = math.hypot(math.log(ratio.high / ratio.value), math.log(known.value / known.low))
    return Interval(value, value * math.exp(-down), value * math.exp(up))


def figures_of(known: Interval | None) -> dict[str, float | None]:
    """As the metrics of a line that was held against it have it; {} of others."""
    if known is None:
        return {}
    return dict(zip(_NAMES, (known.value, known.low, known.high), strict=True))


def held_in(figures: Mapping[str, Any]) -> Interval | None:
    """What `figures_of` wrote."""
    value, low, high = (figures.get(name) for name in _NAMES)
    return None if value is None else Interval(value, low, high)


def slowed(known: Interval | None) -> bool:
    """Surely slower by more than `SLOWED`."""
    return known is not None and known.high is not None and known.high < 1 - SLOWED


def side_words(ledger: Ledger) -> Iterator[str]:
    """What was found for each place, a sentence each; none of a run with one place."""
    abreast = (each for each in ledger.records if each.role == "abreast")
    last = {each.place.name: each for each in abreast if each.place is not None}
    for name, record in sorted(last.items()):
        if record.outcome != "ok":
            yield f"{name}: the baseline beside others was not measured ({record.failure})"
            continue
        found = []
        for level, figures in record.metrics.items():
            value, low, high = (figures.get(f"speedup{end}") for end in ("", "_low", "_high"))
            if value is not None:
                spread = f" ({low:.3f} to {high:.3f})" if low and high else ""
                ratio = Interval(value, low, high)
                sure = ", a doubt" if slowed(ratio) else ""
                found.append(f"{value:.3f}{spread} {at(level)}{sure}")
        yield (
            f"{name}, others beside it: without speculation {'; '.join(found)} times the speed "
            "that it has alone"
        )
