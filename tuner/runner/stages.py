"""The course of a call: the baseline, communication, then candidates; or an endpoint as it is."""

from tuner.config.loader import LoadedSweep
from tuner.config.prompts import needed_to_hold_out
from tuner.config.space import Space
from tuner.execution.measurement import Windows
from tuner.execution.progress import Progress, SweepProgress
from tuner.execution.recording import TrialRequest
from tuner.execution.schedule import confirms
from tuner.execution.step_blocks import Blocks
from tuner.execution.trial import TrialRunner
from tuner.metrics.samples_file import read_samples
from tuner.runner.budget import STOPPED, Budget, Clock, Pace
from tuner.runner.candidates import search_candidates
from tuner.runner.context import SearchContext
from tuner.runner.nccl_stage import narrowed_by_comm
from tuner.runner.observations import make_study
from tuner.runs.ledger import Ledger
from tuner.runs.run import Run
from tuner.runs.status import Ended, write_ended
from tuner.workers.worker import Worker


def search_all(
    bench: TrialRunner,
    loaded: LoadedSweep,
    budget: Budget,
    progress: Progress,
    clock: Clock,
    together: Worker | None,
    *,
    here: bool,
) -> None:
    """The baseline, then candidates; `here` are the servers' GPUs, or elsewhere."""
    run, pace, blocks = bench.run, Pace(loaded.sweep, clock), Blocks.of(bench.engine, loaded)
    begun = run.ledger()
    pace.know(begun)
    if begun.baseline is None and _was_stopped(run, budget, progress):
        return
    for note in blocks.notes():
        progress.note(note)
    confirmed = confirms(bench.sweep, shared=bool(blocks.of_sweep), scored=bool(bench.task))
    prompts = len(loaded.prompts)
    baseline = _baseline(bench, _wanted(loaded, run), pace, progress, prompts, confirmed=confirmed)
    left = narrowed_by_comm(loaded, bench, budget, progress, here=here)
    study = make_study(left.loaded, run, left.timed, together)
    blocks, wanted = Blocks.of(bench.engine, left.loaded), _wanted(left.loaded, run)
    if (said := describe_progress(begun, left.loaded.space, wanted)) is not None:
        progress.note(said)
    left_out, points = left.narrowing.counts, len(left.loaded.space.points)
    search_candidates(
        SearchContext(
            study, blocks, bench, baseline, wanted, budget, pace, progress, points, left_out,
            together,
        )
    )  # fmt: skip


def comes_too_late(together: Worker | None, loaded: LoadedSweep, run: Run) -> bool:
    """Whether a worker that has launched nothing finds its search at its end. Says so."""
    if together is None or run.records() or not together.has_ended(_wanted(loaded, run)):
        return False
    write_ended(run, Ended(True))
    return True


def measure_endpoint(bench: TrialRunner, budget: Budget, progress: Progress) -> None:
    """The server as it is, once; nothing to compare it with."""
    if any(record.outcome == "ok" for record in bench.run.ledger().records):
        write_ended(bench.run, Ended(True))
        progress.note("the server has been measured in this run, begin a new one to repeat that")
        return
    if _was_stopped(bench.run, budget, progress):
        return
    measured = bench.measure(TrialRequest("candidate", None), None)
    progress.recorded(measured.record, SweepProgress(1, 1, None, measured.record, None))
    if measured.failure is not None:
        raise measured.failure
    write_ended(bench.run, Ended(True))


def _was_stopped(run: Run, budget: Budget, progress: Progress) -> bool:
    """Whether somebody wants nothing more before the first trial: answers between turns may have
    been written until now. Says so."""
    if budget.asked_to_stop:
        progress.note(f"{STOPPED}, nothing is begun")
        write_ended(run, Ended(False, STOPPED))
    return budget.asked_to_stop


def _wanted(loaded: LoadedSweep, run: Run) -> int:
    """Candidates in all."""
    points, grid = len(loaded.space.points), loaded.sweep.search.sampler == "grid"
    return points if grid else min(points, run.settings.wanted)


def _baseline(
    bench: TrialRunner,
    wanted: int,
    pace: Pace,
    progress: Progress,
    prompts: int,
    *,
    confirmed: bool,
) -> Windows:
    """The windows of the baseline, measured unless the ledger has it. `confirmed`: the winner will
    be, so the last baseline has windows on prompts that no candidate is chosen on."""
    spec = bench.sweep
    if confirmed and not bench.held_out:
        used = max(sum(not each.follows for each in some) for some in bench.requests.values())
        progress.note(
            f"the prompts are too few to hold some out (there are {prompts}, "
            f"{needed_to_hold_out(used)} are needed): the winner is confirmed on those "
            "that it was chosen on"
        )
    known = bench.run.ledger().baseline
    if known is not None:
        assert known.samples is not None
        return read_samples(bench.run.within(known.samples))
    unseen = spec.baseline.launches == 1 and confirmed and bool(bench.held_out)
    with pace.launching() as records:
        measured = bench.measure(TrialRequest("baseline", None, held_out=unseen), None)
        records.append(measured.record)
    done = len(bench.run.ledger().candidates)
    progress.recorded(measured.record, SweepProgress(done, wanted, None, None, None))
    if measured.failure is not None:
        raise measured.failure
    return measured.windows


def describe_progress(ledger: Ledger, space: Space, wanted: int) -> str | None:
    """How far the run is, in one sentence; None of one that begins with its baseline.

    `space` holds what may be launched, `wanted` is the number of candidates in all.
    """
    if ledger.baseline is None:
        return None
    done, measured = len(ledger.candidates), {each.at for each in ledger.candidates}
    if done and all(point in measured for point in space.points):
        return f"all {_points(len(space.points))} are measured: there is no candidate to add"
    if not done:
        return "the baseline is measured, no candidate yet"
    if done >= wanted:
        return f"{done:,} of {wanted:,} candidates are measured, --trials +20 asks for more"
    return f"{done:,} of {wanted:,} candidates are measured, going on with number {done + 1:,}"


def _points(count: int) -> str:
    return f"{count:,} points" if count > 1 else "one point"
