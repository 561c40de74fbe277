"""Notes and doubts about how a trial was launched."""

from collections.abc import Iterable

from tuner.errors import EngineFailure
from tuner.ledger.asked import PlaceLine
from tuner.ledger.lines import Ledger
from tuner.ledger.side_by_side import slowed
from tuner.measure.statistics import Interval
from tuner.sweep.level import Level, at
from tuner.trial.attempt import Attempt


def retries(failures: Iterable[EngineFailure]) -> list[dict[str, str]]:
    return [note("retried", "note", f"a launch failed before: {each}") for each in failures]


def version_doubt(ledger: Ledger, attempt: Attempt) -> list[dict[str, str]]:
    """Another release than the baseline's, as after an upgrade before a resume."""
    first, later = ledger.baseline, attempt.engine_version
    if first is None or later is None or first.engine_version == later:
        return []
    message = f"measured with {later}, the baseline with {first.engine_version}: begin a new run"
    return [note("engine version", "doubt", message)]


def beside_note(place: PlaceLine | None, level: Level, known: Interval) -> dict[str, str]:
    """A place whose servers are surely slower, or faster, while others run."""
    name = "its place" if place is None else place.name
    spread = f"{known.value:.3f} ({known.low:.3f} to {known.high:.3f})"
    message = (
        f"with servers beside it {name} serves no speculation at {spread} times the speed that it "
        f"has alone, {at(level)}: the speed-up is held against that"
    )
    return note("side by side", "doubt" if slowed(known) else "note", message)


def note(check: str, level: str, message: str) -> dict[str, str]:
    return {"check": check, "level": level, "message": message}
