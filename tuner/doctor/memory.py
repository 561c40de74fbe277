"""Checks of what servers will hold of each GPU."""

from collections import Counter
from collections.abc import Iterator

from tuner.doctor.finding import Finding
from tuner.engine.base import Checked, server_config
from tuner.memory.fits import Machine
from tuner.memory.planned import words


def fits(checked: Checked, fitting: Checked, machine: Machine) -> Iterator[Finding]:
    """Points that cannot fit, and the estimate of the first server that drafts.

    `checked` is the sweep before such points were taken out, `fitting` after.
    """
    left = [*fitting.loaded.space.points]
    known = dict(checked.loaded.space.excluded)
    gone = [why for at, why in fitting.loaded.space.excluded.items() if at not in known]
    for why, count in Counter(gone).items():
        yield Finding(
            "doubt", "memory", f"{count} points are left out: {why}",
            "raise model.tp, or write another draft_tp",
        )  # fmt: skip
    sweep = fitting.loaded.sweep
    found = machine.memory(server_config(sweep, left[0] if left else None))
    name = left[0].label() if left else "no speculation"
    message = f"{name}, GiB on each GPU: {words(found, machine.gpu)}"
    if found.is_tight(machine.gpu):
        todo = "raise mem-fraction-static or model.tp; docs/memory.md says what is assumed"
        yield Finding("doubt", "memory", message, todo)
    else:
        yield Finding("ok", "memory", message)
