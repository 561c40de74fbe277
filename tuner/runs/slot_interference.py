"""What servers that stand side by side do to each other, by the baseline measured both ways."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tuner.config.load_level import Level, at
from tuner.core import formatting
from tuner.metrics.statistics import Interval
from tuner.runs.ledger import Ledger
from tuner.runs.records import PlaceLine, TrialRecord

SLOWED = 0.03
"""Share of its speed that a server may surely lose to those beside it before that is a doubt."""
_NAMES = ("interference", "interference_low", "interference_high")


def interference(ledger: Ledger, place: PlaceLine, level: Level) -> Interval | None:
    """Speed without speculation with servers in all other places, over its speed alone, by the last
    launch that showed it; None where none did, or where it may as well be 1. Of another number of
    slots it is another figure."""
    for record in reversed(ledger.records):
        where = record.place
        if record.role != "abreast" or where is None:
            continue
        if (where.name, where.slots) != (place.name, place.slots):
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


def evened(
    ratio: Interval | None, one: TrialRecord, other: TrialRecord, level: Level
) -> Interval | None:
    """`other` over `one`, of what was measured, as if others had slowed neither down."""
    first, second = (held_in(each.metrics.get(str(level), {})) for each in (one, other))
    if first == second:  # the same place: it is in both
        return ratio
    if first is not None:
        low, high = (None if not end else 1 / end for end in (first.high, first.low))
        ratio = beside(ratio, Interval(1 / first.value, low, high))
    return beside(ratio, second)


def slot_figures(known: Interval | None) -> dict[str, float | None]:
    """As the metrics of a line that was held against it have it; {} of others."""
    if known is None:
        return {}
    return dict(zip(_NAMES, (known.value, known.low, known.high), strict=True))


def held_in(figures: Mapping[str, Any]) -> Interval | None:
    """What `slot_figures` wrote."""
    value, low, high = (figures.get(name) for name in _NAMES)
    return None if value is None else Interval(value, low, high)


def slowed(known: Interval | None) -> bool:
    """Surely slower by more than `SLOWED`."""
    return known is not None and known.high is not None and known.high < 1 - SLOWED


def places_beside(ledger: Ledger) -> dict[str, TrialRecord]:
    """The last measurement of the baseline beside others, by the place's name; {} of a run with one
    place."""
    last: dict[tuple[int, str], TrialRecord] = {}
    for record in ledger.records:
        if record.role == "abreast" and record.place is not None:
            last[record.place.slots or 0, record.place.name] = record
    several = len({slots for slots, _ in last}) > 1
    return {
        f"{place} of {slots}" if several else place: record
        for (slots, place), record in sorted(last.items())
    }


def beside_at(record: TrialRecord) -> dict[str, Interval]:
    """By level as text, its speed beside others over that alone."""
    found = {}
    for level, figures in record.metrics.items():
        value, low, high = (figures.get(f"speedup{end}") for end in ("", "_low", "_high"))
        if value is not None:
            found[level] = Interval(value, low, high)
    return found


def no_difference(places: Mapping[str, TrialRecord]) -> str | None:
    """That no place shows that others beside it change anything, in a sentence; None where one
    does, or was not measured."""
    ratios = [each for record in places.values() for each in beside_at(record).values()]
    if not ratios or any(record.outcome != "ok" for record in places.values()):
        return None
    if any(each.includes_one is not True for each in ratios):
        return None
    values = [each.value for each in ratios]
    return (
        f"no difference between servers alone and side by side is shown in {len(places)} places: "
        f"without speculation {min(values):.3f} to {max(values):.3f} times the speed alone, "
        "every interval includes 1"
    )


def describe_slots(ledger: Ledger) -> Iterator[str]:
    """What was found: one sentence where nothing differs, else one for each place; none of a run
    with one place."""
    places = places_beside(ledger)
    if (words := no_difference(places)) is not None:
        yield words
        return
    for name, record in places.items():
        if record.outcome != "ok":
            yield f"{name}: the baseline beside others was not measured ({record.failure})"
            continue
        found = []
        for level, speed in beside_at(record).items():
            sure = ", a doubt" if slowed(speed) else ""
            found.append(f"{formatting.ratio(speed)} {at(level)}{sure}")
        yield (
            f"{name}, others beside it: without speculation {'; '.join(found)} times the speed "
            "that it has alone"
        )
