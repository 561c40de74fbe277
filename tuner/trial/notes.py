"""Notes and doubts about how a trial was launched."""

from collections.abc import Iterable

from tuner.errors import EngineFailure
from tuner.ledger.lines import Ledger
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


def note(check: str, level: str, message: str) -> dict[str, str]:
    return {"check": check, "level": level, "message": message}
