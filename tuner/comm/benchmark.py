"""The rounds: every setting's process group anew in each, so that drift and starts are shared.

NCCL reads its variables once, at its start. Groups are started side by side, a wave of a few, and
wait; they measure one after the other while the rest of the wave sleeps.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tuner.comm.group import BUDGET_S, PAUSE_S, Group, Order, Trouble
from tuner.comm.messages import Message
from tuner.comm.results import CommResults, Measured
from tuner.comm.settings import Setting
from tuner.errors import EngineFailure

ROUNDS = 4
AT_ONCE = 4
START_S = 10.0
"""ASSUMED, of a wave of groups until all are up; two ranks on H200 took 5 s."""


@dataclass(frozen=True)
class Job:
    """A benchmark to run."""

    order: Order
    settings: tuple[Setting, ...]
    messages: tuple[Message, ...]
    rounds: int = ROUNDS
    at_once: int = AT_ONCE
    """Groups that are up at a time; each holds a CUDA context on every GPU."""
    notes: tuple[str, ...] = ()


def expected_s(settings: int, sizes: int) -> float:
    """Seconds that a benchmark of so many settings and message sizes takes, about."""
    starting = -(-settings // AT_ONCE) * START_S
    return ROUNDS * (starting + settings * sizes * BUDGET_S)


@dataclass
class _Tally:
    """What is known of one setting so far."""

    rounds: list[list[float]] = field(default_factory=list)
    """Medians by round, then by message."""
    trouble: Trouble | None = None
    no_graphs: str | None = None


def run_job(job: Job, say: Callable[[str], None]) -> CommResults:
    """Measure every setting; `say` gets a line as each round begins.

    A setting that hangs or crashes is not started again. Raises EngineFailure where none gave
    figures, UserError where the interpreter cannot measure at all. Whatever is raised, also
    KeyboardInterrupt, no process is left.
    """
    tallies = {setting: _Tally() for setting in job.settings}
    facts: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="specbench-comm-") as folder:
        for number in range(job.rounds):
            alive = [each for each in job.settings if tallies[each].trouble is None]
            noun = "setting" if len(alive) == 1 else "settings"
            say(f"round {number + 1} of {job.rounds}: {len(alive)} {noun}")
            for index, wave in enumerate(_waves(alive, number, job.at_once)):
                place = Path(folder) / f"{number}-{index}"
                facts |= _run_wave(job, wave, place, tallies, say)
    measured = tuple(_measured(setting, tally) for setting, tally in tallies.items())
    troubles = [tally.trouble for tally in tallies.values() if tally.trouble is not None]
    if len(troubles) == len(tallies):
        first = troubles[0]
        raise EngineFailure(first.failure, f"no setting could be measured: {first.message}")
    return CommResults(
        messages=job.messages,
        measured=measured,
        backend=facts.get("backend", "unknown"),
        device=facts.get("device", "unknown"),
        tp=job.order.world,
        notes=(*job.notes, *_graph_notes(measured)),
    )


def _waves(alive: Sequence[Setting], number: int, size: int) -> Iterator[list[Setting]]:
    """The settings of a round in groups, begun elsewhere each time and backwards every other."""
    if not alive:
        return
    turn = number % len(alive)
    order = [*alive[turn:], *alive[:turn]]
    if number % 2:
        order.reverse()
    for begin in range(0, len(order), size):
        yield order[begin : begin + size]


def _run_wave(
    job: Job,
    wave: Sequence[Setting],
    folder: Path,
    tallies: dict[Setting, _Tally],
    say: Callable[[str], None],
) -> dict[str, str]:
    """One round of these settings; returns what a group said it is made of."""
    groups = [Group(setting, job.order, folder / str(index)) for index, setting in enumerate(wave)]
    with ExitStack() as stack:
        for group in groups:
            stack.callback(group.stop)
            group.start()
        # Nobody measures while another one starts.
        while not all(group.is_settled for group in groups):
            _look(groups)
        for group in groups:
            if group.trouble is None:
                group.begin_turn()
            while not group.is_done:
                _look([group])
        for group in groups:
            _add(tallies[group.setting], group, job)
            group.dismiss()
    for group in groups:
        if group.trouble is not None:
            say(f"{group.setting.label()}: {group.trouble.failure}, {group.trouble.message}")
    facts = next((found for group in groups if (found := group.ready_facts())), {})
    return {name: str(value) for name, value in facts.items()}


def _look(groups: Sequence[Group]) -> None:
    for group in groups:
        group.look()
    time.sleep(PAUSE_S)


def _add(tally: _Tally, group: Group, job: Job) -> None:
    tally.trouble = group.trouble
    if group.trouble is not None:
        return
    found = group.sizes()
    tally.rounds.append([statistics.median(found[m.elements, m.ranks]["us"]) for m in job.messages])
    whys = (line["why"] for line in found.values() if line["why"] is not None)
    tally.no_graphs = next(whys, tally.no_graphs)


def _measured(setting: Setting, tally: _Tally) -> Measured:
    if tally.trouble is not None:
        return Measured(setting, failure=tally.trouble.failure, message=tally.trouble.message)
    by_message = tuple(tuple(each) for each in zip(*tally.rounds, strict=True))
    return Measured(setting, by_message, no_graphs=tally.no_graphs)


def _graph_notes(measured: Sequence[Measured]) -> list[str]:
    without = [each for each in measured if each.no_graphs is not None]
    if not without:
        return []
    names = "; ".join(each.setting.label() for each in without)
    return [
        f"measured without CUDA graphs, so that launching hides differences ({names}): "
        f"{without[0].no_graphs}"
    ]
