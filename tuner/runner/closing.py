"""What is launched besides candidates: the baseline again, the winner once more, its settings."""

from itertools import takewhile

from tuner.analysis.equivalence import by_samples
from tuner.analysis.winner import (
    MAX_CONFIRMED,
    confirmed_choice,
    find_winner,
    next_confirmation,
    pooled_figures,
)
from tuner.execution.recording import TrialRequest
from tuner.execution.schedule import (
    closing_launches,
    confirms,
    is_due_at_the_end,
    is_due_in_the_middle,
)
from tuner.runner.context import SearchContext, sweep_progress
from tuner.runs.ledger import Ledger
from tuner.runs.records import TrialRecord
from tuner.server.base import plain_config, server_config


def close(search: SearchContext) -> None:
    """After the last candidate."""
    _baseline_at_the_end(search)
    if _is_elsewhere(search):
        return
    _confirm(search)
    _without_speculation(search)


def _is_elsewhere(search: SearchContext) -> bool:
    """Another worker has the winner, and launches it once more: it has the machine that the
    figure is of."""
    if search.together is None:
        return False
    search.together.look()
    fastest = search.together.fastest_elsewhere()
    if fastest is not None:
        search.progress.note(f"the fastest of all workers is {fastest}, and is confirmed there")
    return fastest is not None


def closing_s(search: SearchContext) -> float:
    """What the launches of `close` are expected to take, where a candidate has been measured.

    One confirmation: another one, where that refutes the winner, is not reckoned with.
    """
    sweep = search.bench.sweep
    seconds = 0.0
    if sweep.baseline.launches > 1:
        seconds += search.pace.expected(held_out=_is_unseen(search))
    return seconds + _confirming_s(search) + _settings_s(search)


def has_closing(search: SearchContext) -> bool:
    """Whether a run like this one has launches after its candidates, where its winner stands."""
    shared, scored = bool(search.blocks.of_sweep), bool(search.bench.task)
    return closing_launches(search.bench.sweep, shared=shared, scored=scored) > 0


def _confirming_s(search: SearchContext) -> float:
    if not _confirms(search):
        return 0.0
    return search.pace.expected(held_out=bool(search.bench.held_out))


def _settings_s(search: SearchContext) -> float:
    """Of the winner's settings without speculation."""
    space = search.bench.sweep.space
    return search.pace.expected() if space.env or space.flags else 0.0


def _confirms(search: SearchContext) -> bool:
    """Whether a winner is launched once more, whichever it is."""
    shared, scored = bool(search.blocks.of_sweep), bool(search.bench.task)
    return confirms(search.bench.sweep, shared=shared, scored=scored)


def is_baseline_due(search: SearchContext) -> bool:
    """Whether the baseline is to be launched once more before the next candidate."""
    launches = search.bench.sweep.baseline.launches
    return is_due_in_the_middle(search.bench.run.ledger(), launches, search.launches)


def baseline_in_the_middle(search: SearchContext) -> None:
    """The baseline once more, where half of the candidates' launches are done."""
    _baseline_again(search, at_the_end=False)


def _baseline_at_the_end(search: SearchContext) -> None:
    if not is_due_at_the_end(search.bench.run.ledger(), search.bench.sweep.baseline.launches):
        return
    its = search.pace.expected(held_out=_is_unseen(search))
    if (why := search.budget.why_not(its + _confirming_s(search))) is not None:
        search.progress.note(f"{why}, the baseline is not launched again")
        search.unclosed.append(why)
        return
    _baseline_again(search, at_the_end=True)


def _is_unseen(search: SearchContext) -> bool:
    """Whether the last baseline is also measured on prompts that no candidate is chosen on."""
    return _confirms(search) and bool(search.bench.held_out)


def _baseline_again(search: SearchContext, *, at_the_end: bool) -> None:
    """The baseline once more, alone on the machine as every launch is; a failure ends nothing."""
    unseen = at_the_end and _is_unseen(search)
    with search.pace.launching() as records:
        record = search.bench.measure(TrialRequest("baseline", None, held_out=unseen), None).record
        records.append(record)
    search.progress.recorded(record, sweep_progress(search, record))
    if record.outcome != "ok":
        search.progress.note(
            f"the baseline could not be launched again ({record.failure}): whether the machine has "
            "drifted is not known"
        )


def _confirm(search: SearchContext) -> None:
    """Measure the winner once more, on a server of its own; the next one where that refutes it."""
    while _confirmed(search.bench.run.ledger()) < MAX_CONFIRMED and _confirm_one(search):
        pass


def _confirmed(ledger: Ledger) -> int:
    """Winners launched once more since the last candidate; those of an earlier call count too, or a
    resume would launch what an undisturbed run does not."""
    after = takewhile(lambda each: each.role != "candidate", reversed(ledger.records))
    return sum(each.role == "confirm" for each in after)


def _winner(search: SearchContext) -> tuple[Ledger, TrialRecord | None]:
    """The ledger over all launches of the baseline so far, and its candidate to run; None where
    that does not beat the baseline."""
    settled, spec = search.settling.settled(), search.bench.sweep.search.objective
    return settled.ledger, find_winner(settled.ledger, spec, by_samples(settled, spec))


def _confirm_one(search: SearchContext) -> bool:
    """Whether a launch was made.

    It is where the stage `confirm` is on (the best of many is so by luck too; then it is the point
    that the search takes for the fastest, where that is another one), where the winner was measured
    on a shared server, where a race had left windows of it out because of one that was refuted
    since, and where it has a task to be scored by. It has windows on prompts that no candidate was
    measured on, where the baseline has.
    """
    bench, settled = search.bench, search.settling.settled()
    ledger, spec, recommended = settled.ledger, bench.sweep.search.objective, None
    if "confirm" in bench.sweep.search.active_stages and confirmed_choice(ledger) is None:
        recommended = search.study.recommended()
    found = next_confirmation(ledger, spec, by_samples(settled, spec), recommended)
    if found is None:
        return False
    fastest, decision = found
    point = fastest.at
    own = confirms(bench.sweep, shared=bool(fastest.warm_steps), scored=bool(bench.task))
    if decision is None and not (own or fastest.fell_behind):
        return False
    if any(each.role == "confirm" and each.at == point for each in ledger.records):
        return False
    unseen = any(each.held_out is not None for each in ledger.baselines)
    if (why := search.budget.why_not(search.pace.expected(held_out=unseen))) is not None:
        search.progress.note(f"{why}, the winner has no launch of its own")
        search.unclosed.append(why)
        return False
    smoothed = {} if _confirmed(ledger) else pooled_figures(ledger, recommended)
    asked = TrialRequest("confirm", point, decision, held_out=unseen, smoothed=smoothed)
    with search.pace.launching() as records:
        record = bench.measure(asked, search.baseline).record
        records.append(record)
    search.progress.recorded(record, sweep_progress(search, record))
    return True


def _without_speculation(search: SearchContext) -> None:
    """Launch the winner's own settings without speculation once, where it has any: what they give
    is no gain of speculation's."""
    bench, (ledger, fastest) = search.bench, _winner(search)
    settings = None if fastest is None or fastest.at is None else fastest.at.settings
    if fastest is None or settings is None:
        return
    its, baseline = plain_config(bench.sweep, settings), server_config(bench.sweep, None)
    if its == baseline or ledger.plain(fastest) is not None:
        return
    if (why := search.budget.why_not(search.pace.expected())) is not None:
        search.progress.note(f"{why}, the winner's settings are not launched without speculation")
        search.unclosed.append(why)
        return
    with search.pace.launching() as records:
        record = bench.measure(TrialRequest("plain", settings), search.baseline).record
        records.append(record)
    search.progress.recorded(record, sweep_progress(search, record))
