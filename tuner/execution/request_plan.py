"""The prompts that a run sends at each level. The sweep file and its prompts decide."""

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.config.conversation import Prompt, has_answers, to_send
from tuner.config.load_level import Level, Rate, listed
from tuner.config.loader import LoadedSweep
from tuner.config.prompts import held_out, pick
from tuner.runs.latency_limits import format_limits


@dataclass(frozen=True)
class Sent:
    """The prompts of one window by level. A smaller window is the beginning of a larger one."""

    chosen_on: Mapping[Level, tuple[Prompt, ...]]
    unseen: Mapping[Level, tuple[Prompt, ...]]
    """Prompts that no candidate is chosen on; () at each level if there are too few."""

    @property
    def used(self) -> int:
        """The most prompts of a window. With `turns: all` they are fewer than its requests."""
        return max(sum(not each.follows for each in some) for some in self.chosen_on.values())

    @property
    def conversations(self) -> frozenset[str]:
        """Ids of the conversations of which every turn is sent."""
        every = (*self.chosen_on.values(), *self.unseen.values())
        return frozenset(each.id.rpartition("#")[0] for some in every for each in some)


def between_turns(loaded: LoadedSweep) -> tuple[Prompt, ...]:
    """Return the conversations that are sent and have no answers of their own."""
    if loaded.sweep.workload.turns != "all" or all(map(has_answers, loaded.prompts)):
        return ()
    wanted = plan_requests(loaded).conversations
    return tuple(each for each in loaded.prompts if each.id in wanted and not has_answers(each))


def writes_answers(loaded: LoadedSweep) -> bool:
    """Return True if a first launch has to write the answers between turns."""
    given = {each.id for each in loaded.answers}
    return any(each.id not in given for each in between_turns(loaded))


def plan_requests(loaded: LoadedSweep) -> Sent:
    """Return the prompts to send."""
    workload = loaded.sweep.workload
    counts = {level: workload.requests_at(level) for level in workload.levels}
    streams = {n: 1 if workload.rate(n) else workload.streams(n) for n in counts}
    most = max(counts.values())

    def windows(picked: tuple[Prompt, ...]) -> dict[Level, tuple[Prompt, ...]]:
        return {
            n: to_send(picked, workload.turns, count, streams[n]) for n, count in counts.items()
        }

    chosen_on = windows(pick(loaded.prompts, most, workload.seed))
    used = Sent(chosen_on, {}).used
    return Sent(chosen_on, windows(held_out(loaded.prompts, most, workload.seed, used)))


def describe_load(loaded: LoadedSweep) -> str:
    """Return `16 requests a window come at 2, 4 requests/s, at most 256 open; limits: ...`."""
    workload, limits = loaded.sweep.workload, loaded.sweep.search.limits
    words = f"{workload.requests} request{'s' * (workload.requests != 1)} a window"
    if workload.request_rate is None:
        words += f" at {listed(workload.levels)}"
    else:
        rates = workload.request_rate
        sent = next(iter(plan_requests(loaded).chosen_on.values()))
        turns = len(sent) / sum(not each.follows for each in sent)
        come = [Rate(each, turns) for each in (rates if isinstance(rates, list) else [rates])]
        most = ", ".join(map(str, workload.concurrency))
        words += f" come at {listed(come)}, at most {most} open"
    return words + (f"; limits: {format_limits(limits)}" if limits else "")
