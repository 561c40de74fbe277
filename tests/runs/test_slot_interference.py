"""What servers side by side do to each other is said as long as it is worth saying."""

from tuner.runs.ledger import Ledger
from tuner.runs.records import PlaceLine, TrialRecord
from tuner.runs.slot_interference import describe_slots, no_difference, places_beside


def beside(trial: int, *ratios: tuple[float, float, float]) -> TrialRecord:
    """The baseline in a slot with servers in the others, by level."""
    levels = zip(("1", "8", "64"), ratios, strict=False)
    place = PlaceLine(name=f"slot {trial}", alone=False, slots=2)
    return TrialRecord(
        trial=trial, role="abreast", point=None, outcome="ok", failure=None, engine="simulated",
        engine_version=None, launch_id=trial, launch_s=1.0, started="2026-11-29T00:00:00Z",
        metrics={
            level: {"speedup": value, "speedup_low": low, "speedup_high": high}
            for level, (value, low, high) in levels
        },
        samples=None, place=place,
    )  # type: ignore[arg-type]  # fmt: skip


def test_nothing_found_is_one_sentence() -> None:
    """Twelve numbers in a paragraph said `no difference`."""
    ledger = Ledger((beside(1, (1.01, 0.98, 1.03)), beside(2, (0.99, 0.97, 1.02))))
    (told,) = describe_slots(ledger)
    assert told == (
        "no difference between servers alone and side by side is shown in 2 places: without "
        "speculation 0.990 to 1.010 times the speed alone, every interval includes 1"
    )


def test_a_place_that_is_slowed_is_named_with_its_figures() -> None:
    """One difference among many that are none must not drown in `no difference`."""
    ledger = Ledger((beside(1, (1.01, 0.98, 1.03)), beside(2, (0.90, 0.88, 0.92))))
    assert no_difference(places_beside(ledger)) is None
    first, second = describe_slots(ledger)
    assert first.startswith("slot 1, others beside it: without speculation 1.010 (0.980 to 1.030)")
    assert "0.900 (0.880 to 0.920) at concurrency 1, a doubt" in second


def test_without_an_interval_nothing_is_called_the_same() -> None:
    record = beside(1, (1.0, 1.0, 1.0))
    record.metrics["1"]["speedup_low"] = None
    assert no_difference(places_beside(Ledger((record,)))) is None
    assert list(describe_slots(Ledger(()))) == []
