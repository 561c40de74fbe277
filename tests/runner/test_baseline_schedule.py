"""The baseline is launched again where it is due, and a resumed run does as an undisturbed one."""

from pathlib import Path

import pytest

from tests.sweeps import Listener, tiny_sweep
from tuner.analysis.summary import summarise_run
from tuner.config.loader import LoadedSweep
from tuner.engines import make_engine
from tuner.execution.schedule import is_due_at_the_end, is_due_in_the_middle
from tuner.preflight.plan import make_plan
from tuner.runner.sweep_run import begin_run, reopen_run, run_sweep
from tuner.runs.ledger import Ledger
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run

B, C, F = "baseline", "candidate", "failed"


def ledger(*words: str) -> Ledger:
    """`baseline`, `candidate`, or either with `failed` behind it; a launch each."""
    records = []
    for number, word in enumerate(words):
        role, _, outcome = word.partition(" ")
        point = {"num_steps": number, "eagle_topk": 1, "num_draft_tokens": number + 1,
                 "draft_tp": "target", "env": {}, "flags": {}}  # fmt: skip
        records.append(
            TrialRecord(
                trial=number,
                role=role,  # type: ignore[arg-type]
                point=point if role == C else None,
                outcome=outcome or "ok",  # type: ignore[arg-type]
                failure=None,
                engine="simulated",
                engine_version=None,
                launch_id=number,
                launch_s=1.0,
                started="2026-11-29T00:00:00Z",
                metrics={},
                samples=None,
            )
        )
    return Ledger(tuple(records))


@pytest.mark.parametrize(
    ("words", "due"),
    [
        ((B, C), True),
        ((B, C, C, C), True),
        ((B,), False),
        ((B, f"{C} {F}"), False),
        ((B, C, B), False),
        ((B, C, B, C), True),
        ((B, C, B, f"{C} {F}"), False),
        ((B, C, f"{B} {F}"), False),
        ((B, C, f"{B} {F}", C), True),
    ],
)
def test_the_end_is_after_the_last_candidate(words: tuple[str, ...], due: bool) -> None:
    """Otherwise an extended run has candidates that nothing tells drift of, or a resumed one
    launches the baseline every time."""
    assert is_due_at_the_end(ledger(*words), 2) is due
    assert not is_due_at_the_end(ledger(*words), 1)


@pytest.mark.parametrize(
    ("candidates", "expected", "due"), [(3, 8, False), (4, 8, True), (5, 8, True), (3, 6, False)]
)
def test_the_middle_is_once_and_where_there_are_enough(
    candidates: int, expected: int, due: bool
) -> None:
    """Otherwise ten minutes are spent on a launch that says little, or again and again."""
    words = [C] * candidates
    assert is_due_in_the_middle(ledger(B, *words), 3, expected) is due
    assert is_due_in_the_middle(ledger(f"{B} {F}", B, *words), 3, expected) is due
    assert not is_due_in_the_middle(ledger(B, *words), 2, expected)
    assert not is_due_in_the_middle(ledger(B, *words, B), 3, expected)
    assert not is_due_in_the_middle(ledger(B, *words, f"{B} {F}"), 3, expected)


def go(loaded: LoadedSweep, run: Run, listener: Listener | None = None):
    return run_sweep(loaded, run, make_engine(loaded.sweep), listener or Listener())


def test_start_middle_and_end_also_after_an_interrupt(tmp_path: Path) -> None:
    """Otherwise a crash costs the run its last baseline, or gives it another answer."""
    loaded = tiny_sweep(tmp_path, search="sampler: grid", steps="1, 2, 3, 4", baselines=3)
    assert make_plan(loaded).estimate.launches == 1 + 8 + 2 + 1
    run = begin_run(tmp_path / "runs", loaded, None)

    class Interrupting(Listener):
        def phase(self, phase) -> None:
            if phase.role == B and phase.trial in (5, 10) and phase.doing == "measuring":
                raise KeyboardInterrupt

    listener = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        go(loaded, run, listener)
    assert [each.role for each in run.records()] == [B, C, C, C, C]
    with pytest.raises(KeyboardInterrupt):
        listener.phase = lambda phase: None if phase.trial < 10 else Interrupting.phase(
            listener, phase
        )  # type: ignore[method-assign]  # fmt: skip
        go(loaded, reopen_run(run.path, loaded, None), listener)
    assert [each.role for each in run.records()] == [B, *[C] * 4, B, *[C] * 4]
    result = go(loaded, reopen_run(run.path, loaded, None))
    records = run.records()
    assert [each.role for each in records] == [B, *[C] * 4, B, *[C] * 4, B, "plain"]
    assert len({each.launch_id for each in records}) == len(records), "never beside a candidate"
    assert result.to_json()["baseline_drift"]["1"]["launches"] == 3
    assert result == summarise_run(Run.open(run.path))
    again = Listener()
    assert go(loaded, reopen_run(run.path, loaded, None), again) == result
    assert again.records == []


def test_a_baseline_that_fails_at_the_end_ends_nothing(tmp_path: Path) -> None:
    """Otherwise a night's run has no answer for its last launch."""
    loaded = tiny_sweep(tmp_path, "{kind: oom-load, launches: [3]}", "trials: 2", baselines=2)
    run, listener = begin_run(tmp_path / "runs", loaded, None), Listener()
    result = go(loaded, run, listener)
    assert (B, "infeasible") in [(r.role, r.outcome) for r in run.records()]
    assert result.exit_code == 0 and result.baseline == run.records()[0]
    assert any("whether the machine has drifted is not known" in note for note in listener.notes)
    assert go(loaded, reopen_run(run.path, loaded, None)) == result
