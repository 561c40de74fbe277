"""When a run's winner is launched once more, and what else comes after its candidates."""

from tuner.sweep.model import Sweep


def confirms(sweep: Sweep, *, shared: bool, scored: bool) -> bool:
    """Whether a winner is launched once more for what the run is, whatever its figures are.

    `shared`: it was, or winners may be, measured on a server that others shared. `scored`: the run
    puts the questions of a task to its winner.
    """
    return shared or scored or "confirm" in sweep.search.active_stages


def closing_launches(sweep: Sweep, *, shared: bool, scored: bool) -> int:
    """The baseline again, the winner again, its settings without speculation: those that may come;
    `shared` and `scored` as of `confirms`."""
    again = confirms(sweep, shared=shared, scored=scored)
    settings = bool(sweep.space.env or sweep.space.flags)
    return (sweep.baseline.launches > 1) + again + settings
