"""When a run's winner is launched once more."""

from tuner.sweep.model import Sweep


def confirms(sweep: Sweep, *, shared: bool, scored: bool) -> bool:
    """Whether a winner is launched once more for what the run is, whatever its figures are.

    `shared`: it was, or winners may be, measured on a server that others shared. `scored`: the run
    puts the questions of a task to its winner.
    """
    return shared or scored or "confirm" in sweep.search.active_stages
