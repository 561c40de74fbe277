"""Which prompts a run sends, level by level; decided by the sweep file and its prompts alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.sweep.door import LoadedSweep
from tuner.sweep.level import Level, Rate
from tuner.sweep.prompt import Prompt
from tuner.sweep.turns import to_send
from tuner.sweep.workload import held_out, pick


@dataclass(frozen=True)
class Sent:
    """The prompts of one window by level; what fewer requests take is how that of more begins."""

    chosen_on: Mapping[Level, tuple[Prompt, ...]]
    unseen: Mapping[Level, tuple[Prompt, ...]]
    """Of prompts that no candidate is chosen on; () at each level where there are too few."""

    @property
    def conversations(self) -> frozenset[str]:
        """Ids of the conversations that every turn is sent of."""
        every = (*self.chosen_on.values(), *self.unseen.values())
        return frozenset(each.id.rpartition("#")[0] for some in every for each in some)


def sent_of(loaded: LoadedSweep) -> Sent:
    """What is sent of the sweep's prompts."""
    workload = loaded.sweep.workload
    counts = {level: workload.requests_at(level) for level in workload.levels}
    streams = {n: 1 if isinstance(n, Rate) else n for n in counts}
    most = max(counts.values())
    chosen_on, unseen = (
        {n: to_send(some, workload.turns, count, streams[n]) for n, count in counts.items()}
        for some in (
            pick(loaded.prompts, most, workload.seed),
            held_out(loaded.prompts, most, workload.seed),
        )
    )
    return Sent(chosen_on, unseen)
