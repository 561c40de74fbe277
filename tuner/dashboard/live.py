"""From the ledger to the dashboard: a study kept at what the ledger says while the run goes on."""

from collections.abc import Sequence
from contextlib import suppress

from tuner.analysis.baselines import DriftCorrector
from tuner.analysis.equivalence import by_samples
from tuner.analysis.winner import find_answer
from tuner.config.schema import Sweep
from tuner.core.errors import UserError
from tuner.dashboard.notes import study_note
from tuner.dashboard.shown import DashboardSchema, DashboardTrial
from tuner.dashboard.study import StoredStudy
from tuner.dashboard.trials import brief_trial, on_axes, shown_trial, trial_params
from tuner.execution.progress import Phase, Progress, SweepProgress
from tuner.runs.raw_samples import RawSamples
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run

MOST_SHOWN, DETAILED = 5000, 500
"""Lines of the ledger that a study is made of when a run is resumed or viewed, the newest; and of
these the ones with all that is known, the newest again. What is measured from then on comes
besides, in full. With more the dashboard's own pages take minutes, and so does a resume."""
CHUNK = 250
"""Trials that are put into the storage at once."""
CUT_OFF = "the run stopped before it was measured, it is in no ledger line"


def records_to_show(records: Sequence[TrialRecord]) -> Sequence[TrialRecord]:
    """Those lines that the study is made of: all, or the newest of very many."""
    return records[-MOST_SHOWN:]


class Showing:
    """Keeps the dashboard's study at what the ledger says, and listens to the run for that."""

    def __init__(
        self, run: Run, sweep: Sweep, layout: DashboardSchema, stored: StoredStudy | None
    ) -> None:
        """Shows what the ledger has already; without a study there is nothing to keep."""
        self._run, self._sweep, self._layout, self._stored = run, sweep, layout, stored
        self._settling = DriftCorrector(run, sweep.search.objective.metric, RawSamples(run))
        self._shown = 0
        self._begun: int | None = None
        if stored is not None:
            records = run.records()
            shown = records_to_show(records)
            for start in range(0, len(shown), CHUNK):
                some = shown[start : start + CHUNK]
                stored.add([self._in_short(record, records) for record in some])
            self._shown = len(records)
            self._describe(by_all=True)

    @property
    def lost(self) -> str | None:
        """Why the study is no longer kept up; None while it is."""
        return None if self._stored is None else self._stored.lost

    def launching(self, phase: Phase) -> None:
        """Show the trial that begins, once for all of its launches."""
        if self._stored is None or phase.doing != "launching" or phase.place is not None:
            return  # several at a time are shown when they have ended
        if self._begun == phase.trial:
            return
        self._begun = phase.trial
        what = "no speculation" if phase.point is None else phase.point.label()
        params = trial_params(self._sweep, phase.point)
        self._stored.begin(
            DashboardTrial(
                params=on_axes(params, self._layout),
                state="running",
                attributes={"configuration": what, "role": phase.role},
                note="It runs. Its figures come when it has ended.",
            )
        )

    def catch_up(self) -> None:
        """Show the ledger's new lines."""
        records = self._run.records()
        if self._stored is None:
            return
        for record in records[self._shown :]:
            self._stored.finish(self._of(record))
        self._shown = len(records)
        self._describe(by_all=False)

    def stop(self) -> None:
        """No trial runs any more: what was begun and is in no ledger line was cut off."""
        if self._stored is not None:
            self._stored.give_up(CUT_OFF)
            self._describe(by_all=True)

    def _in_short(self, record: TrialRecord, records: Sequence[TrialRecord]) -> DashboardTrial:
        """An old one of many in few words."""
        if len(records) > DETAILED and record.trial < records[-DETAILED].trial:
            return brief_trial(self._sweep, self._layout, record)
        return self._of(record)

    def _of(self, record: TrialRecord) -> DashboardTrial:
        return shown_trial(self._run, self._sweep, self._layout, record)

    def _describe(self, *, by_all: bool) -> None:
        if self._stored is not None:
            answer = self._answer(by_all=by_all)
            self._stored.describe(study_note(self._run, self._sweep, answer), {"answer": answer})

    def _answer(self, *, by_all: bool) -> str:
        """As the report has it, over all launches of the baseline and by all samples; while trials
        come, by the lines alone, which takes no longer with each of them."""
        spec = self._sweep.search.objective
        best, value = find_answer(self._run.ledger(), spec)
        if by_all:
            with suppress(UserError):  # the run itself says which samples are broken
                settled = self._settling.settled()
                best, value = find_answer(settled.ledger, spec, by_samples(settled, spec))
        if best is None or value is None:
            measured = self._run.ledger().baseline is not None
            return "no speculation" if measured else "nothing is measured yet"
        return f"trial {best.trial}: {best.label}, {value:.3f} times the baseline"


class DashboardListener(Progress):
    """Keeps the dashboard's study up to date."""

    def __init__(self, showing: Showing) -> None:
        self._showing = showing

    def phase(self, phase: Phase) -> None:
        self._showing.launching(phase)

    def recorded(self, record: TrialRecord, standing: SweepProgress) -> None:  # noqa: ARG002
        self._showing.catch_up()
